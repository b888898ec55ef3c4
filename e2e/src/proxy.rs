//! A TCP proxy on loopback that tests break on purpose: cut every connection, let nothing through, heal.
//!
//! It knows nothing of what it carries. While nothing passes, bytes wait as they would behind a network that drops
//! packets; they go on when it heals, so no connection is ever handed a stream with a hole in it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The proxy. It lives on the runtime it was started on and ends, with all its connections, when dropped.
#[derive(Debug)]
pub struct Cut {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    mode: Mode,
    /// A connection ends when the count it began with has passed.
    cuts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    Held,
    Refused,
}

impl Cut {
    /// Starts to forward a free loopback port to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no free port for the proxy")?;
        Self::serve(listener, target)
    }

    /// Forwards what this listener takes, from the network that the calling thread is in.
    pub(crate) fn serve(listener: TcpListener, target: SocketAddr) -> Result<Self> {
        let address = listener.local_addr().context("the proxy's port is not known")?;
        let (state, seen) = watch::channel(State {
            mode: Mode::Open,
            cuts: 0,
        });
        let task = tokio::spawn(accept(listener, target, seen));
        Ok(Self { address, state, task })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection now; new ones pass as before.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Ends every connection now, and every new one as soon as it is made, until [`Cut::heal`].
    pub fn refuse(&self) {
        self.state.send_modify(|state| {
            *state = State {
                mode: Mode::Refused,
                cuts: state.cuts + 1,
            }
        });
    }

    /// Lets nothing through in either direction, until [`Cut::heal`]: bytes are taken and no answer comes, nobody
    /// is told.
    pub fn black_hole(&self) {
        self.state.send_modify(|state| state.mode = Mode::Held);
    }

    /// Back to normal. Connections that outlived a black hole go on where they were.
    pub fn heal(&self) {
        self.state.send_modify(|state| state.mode = Mode::Open);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: watch::Receiver<State>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, target, state.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let began = *state.borrow_and_update();
    if began.mode == Mode::Refused {
        return;
    }
    let ended = {
        let mut state = state.clone();
        async move {
            let _ = state.wait_for(|now| now.cuts != began.cuts).await;
        }
    };
    tokio::select! {
        () = ended => {}
        _ = forward(client, target, state) => {}
    }
}

async fn forward(client: TcpStream, target: SocketAddr, state: watch::Receiver<State>) -> io::Result<()> {
    open(&state).await;
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::try_join!(
        pump(client_read, server_write, &state),
        pump(server_read, client_write, &state)
    )?;
    Ok(())
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        open(state).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

/// Returns once bytes may pass. A dropped sender means that the proxy is ending, which ends the caller too.
async fn open(state: &watch::Receiver<State>) {
    let _ = state.clone().wait_for(|now| now.mode == Mode::Open).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);
    /// Long enough for an answer over loopback to have come if it were going to.
    const NOTHING: Duration = Duration::from_millis(200);

    /// Answers every byte with itself.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
        stream.write_all(&[byte]).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_lets_new_ones_in() {
        let cut = Cut::start(echo().await).await.unwrap();
        let mut old = TcpStream::connect(cut.address()).await.unwrap();
        assert_eq!(timeout(SOON, ask(&mut old, 1)).await.unwrap().unwrap(), 1);

        cut.cut();

        assert!(timeout(SOON, old.read_u8()).await.unwrap().is_err());
        let mut new = TcpStream::connect(cut.address()).await.unwrap();
        assert_eq!(timeout(SOON, ask(&mut new, 2)).await.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn a_black_hole_swallows_silently_and_a_healed_connection_goes_on() {
        let cut = Cut::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(cut.address()).await.unwrap();
        assert_eq!(timeout(SOON, ask(&mut stream, 1)).await.unwrap().unwrap(), 1);

        cut.black_hole();
        stream.write_all(&[2]).await.unwrap();
        assert!(
            timeout(NOTHING, stream.read_u8()).await.is_err(),
            "an answer came through the black hole"
        );

        cut.heal();
        assert_eq!(timeout(SOON, stream.read_u8()).await.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn refused_connections_end_at_once_until_healed() {
        let cut = Cut::start(echo().await).await.unwrap();
        cut.refuse();
        let mut refused = TcpStream::connect(cut.address()).await.unwrap();
        assert!(timeout(SOON, ask(&mut refused, 1)).await.unwrap().is_err());

        cut.heal();
        let mut stream = TcpStream::connect(cut.address()).await.unwrap();
        assert_eq!(timeout(SOON, ask(&mut stream, 2)).await.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn a_dropped_proxy_takes_its_connections_with_it() {
        let cut = Cut::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(cut.address()).await.unwrap();
        assert_eq!(timeout(SOON, ask(&mut stream, 1)).await.unwrap().unwrap(), 1);
        drop(cut);
        assert!(timeout(SOON, stream.read_u8()).await.unwrap().is_err());
    }
}
