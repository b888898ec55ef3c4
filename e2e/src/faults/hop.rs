//! A longer way: TCP connections to one port of a pod go through a hop in the hub that passes every byte on later.
//! Connections by the pod's own address or name take it; those by the address of a service do not.

use std::fs::File;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::chronicle::Lasting;
use crate::cluster::{Cluster, Node};
use crate::namespaces::Entry;
use crate::network::CONTROL_PLANE;

/// Pieces on their way in one direction of a connection; a sender that is further ahead has to wait.
const ON_THE_WAY: usize = 1024;

/// The hop. Dropping it breaks the connections that go through it.
#[derive(Debug)]
pub struct Hop {
    rules: Vec<(Entry, Vec<String>)>,
    passed: Arc<AtomicU64>,
    lasting: Lasting,
    _end: oneshot::Sender<()>,
}

impl Cluster {
    /// Delays what goes to and what comes from a port of a pod by this much each way.
    pub async fn delay(&self, namespace: &str, pod: &str, port: u16, delay: Duration) -> Result<Hop> {
        let (_, address) = self.place_of(namespace, pod).await?;
        let what = format!(
            "port {port} of {namespace}/{pod} is {} ms further away",
            delay.as_millis()
        );
        let lasting = Lasting::begun(&self.chronicle(), what);
        let target: SocketAddr = format!("{address}:{port}")
            .parse()
            .with_context(|| format!("{address} is no address"))?;
        let passed = Arc::new(AtomicU64::new(0));
        let (end, ended) = oneshot::channel();
        let hop = start(self.control_plane().hub()?, target, delay, passed.clone(), ended).await?;
        let port = port.to_string();
        let to = hop.to_string();
        let own = CONTROL_PLANE.to_string();
        let mut rules = Vec::new();
        for entry in self.nodes().iter().filter(|node| node.exists()).map(Node::entry) {
            for chain in ["PREROUTING", "OUTPUT"] {
                let rule = [
                    chain,
                    "!",
                    "-s",
                    &own,
                    "-d",
                    &address,
                    "-p",
                    "tcp",
                    "--dport",
                    &port,
                    "-j",
                    "DNAT",
                    "--to-destination",
                    &to,
                ];
                nat(entry, "-I", &rule).await?;
                rules.push((entry, rule.map(str::to_owned).to_vec()));
            }
        }
        Ok(Hop {
            rules,
            passed,
            lasting,
            _end: end,
        })
    }
}

impl Hop {
    /// How many bytes took the longer way.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Leads connections the short way again; what it gives back can still tell what has passed.
    pub async fn heal(self) -> Result<Self> {
        for (entry, rule) in &self.rules {
            let words: Vec<&str> = rule.iter().map(String::as_str).collect();
            nat(*entry, "-D", &words).await?;
        }
        self.lasting.healed();
        Ok(self)
    }
}

async fn nat(entry: Entry, action: &str, rule: &[&str]) -> Result<()> {
    let words = [&["-w", "-t", "nat", action], rule].concat();
    entry.run("iptables", &words).await?;
    Ok(())
}

/// Sockets belong to the network of the thread that makes them: one thread of its own lives in the hub.
async fn start(
    hub: Entry,
    target: SocketAddr,
    delay: Duration,
    passed: Arc<AtomicU64>,
    ended: oneshot::Receiver<()>,
) -> Result<SocketAddrV4> {
    let (tell, told) = oneshot::channel();
    let network = File::open(format!("/proc/{}/ns/net", hub.keeper().pid()))
        .context("cannot open the hub's network namespace")?;
    std::thread::Builder::new()
        .name("hop".to_owned())
        .spawn(move || {
            let listen = || -> Result<_> {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                    .context("cannot enter the hub's network")?;
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .context("cannot start a runtime")?;
                let listener = runtime.block_on(TcpListener::bind((CONTROL_PLANE, 0)))?;
                let port = listener.local_addr()?.port();
                Ok((runtime, listener, port))
            };
            match listen() {
                Ok((runtime, listener, port)) => {
                    let _ = tell.send(Ok(SocketAddrV4::new(CONTROL_PLANE, port)));
                    runtime.block_on(async {
                        tokio::select! {
                            () = accept(listener, target, delay, passed) => {}
                            _ = ended => {}
                        }
                    });
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })
        .context("cannot start the hop's thread")?;
    told.await.context("the hop's thread ended")?
}

async fn accept(listener: TcpListener, target: SocketAddr, delay: Duration, passed: Arc<AtomicU64>) {
    loop {
        if let Ok((client, _)) = listener.accept().await {
            let passed = passed.clone();
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4()?;
                let server = socket.connect(target).await?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                join(client, server, delay, &passed).await
            });
        }
    }
}

async fn join(
    mut client: TcpStream,
    mut server: TcpStream,
    delay: Duration,
    passed: &AtomicU64,
) -> std::io::Result<()> {
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    tokio::try_join!(
        later(client_read, server_write, delay, passed),
        later(server_read, client_write, delay, passed)
    )?;
    Ok(())
}

/// Passes on what it reads, each piece when its time has come: many can be on the way at once.
async fn later(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Duration,
    passed: &AtomicU64,
) -> std::io::Result<()> {
    let (put, mut take) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let reading = async move {
        loop {
            let mut piece = vec![0; 16 * 1024];
            let count = from.read(&mut piece).await?;
            piece.truncate(count);
            if put.send((Instant::now() + delay, piece)).await.is_err() || count == 0 {
                return Ok(());
            }
        }
    };
    let writing = async {
        while let Some((due, piece)) = take.recv().await {
            tokio::time::sleep_until(due).await;
            if piece.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&piece).await?;
            passed.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    tokio::try_join!(reading, writing)?;
    Ok(())
}
