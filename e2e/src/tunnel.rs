//! A way from this host's loopback into the network of a node, to which no route leads from here.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::namespaces::Entry;
use crate::proxy::Cut;

/// A loopback port of this host that leads to an address as a node sees it. Dropping it closes the port and all connections.
#[derive(Debug)]
pub(crate) struct Tunnel {
    address: SocketAddr,
    _end: oneshot::Sender<()>,
}

impl Tunnel {
    /// Forwards a free loopback port to `target` in the network behind `entry`.
    pub(crate) fn start(entry: Entry, target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port for a tunnel")?;
        listener
            .set_nonblocking(true)
            .context("the tunnel's port blocks")?;
        let address = listener.local_addr().context("the tunnel's port is not known")?;
        let network = File::open(format!("/proc/{}/ns/net", entry.keeper().pid()))
            .context("the node has no network namespace")?;
        let (end, ended) = oneshot::channel();
        let (enter, entered) = mpsc::channel();
        // A thread of its own: the network namespace is one of the thread.
        thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || {
                let runtime = runtime_within(&network);
                let serves = runtime.and_then(|runtime| {
                    let cut = runtime.block_on(async {
                        Cut::serve(tokio::net::TcpListener::from_std(listener)?, target)
                    })?;
                    Ok((runtime, cut))
                });
                match serves {
                    Ok((runtime, _cut)) => {
                        let _ = enter.send(Ok(()));
                        let _ = runtime.block_on(ended);
                    }
                    Err(error) => {
                        let _ = enter.send(Err(error));
                    }
                }
            })
            .context("no thread for a tunnel")?;
        entered.recv().context("the tunnel's thread has ended")??;
        Ok(Self { address, _end: end })
    }

    /// Where clients of this host connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A runtime of the calling thread, whose new connections are made in this network namespace from now on.
fn runtime_within(network: &File) -> Result<Runtime> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot enter the network of a node")?;
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime for a tunnel")
}
