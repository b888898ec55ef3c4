//! A server of etcd that is run for a while and then killed: one whose data nobody needs afterwards.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::run::{Tail, ToolError, command};
use super::{Invocation, Program, Tools};
use crate::flags::{Config, render};
use crate::version::Version;

/// A server of etcd as a child process, killed when this is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    said: Arc<Mutex<Tail>>,
    listeners: Vec<JoinHandle<()>>,
}

/// How a server ended that was to run on, with its last output.
#[derive(Debug, thiserror::Error)]
#[error("etcd ended with {status}: {said}")]
pub struct ServerEnded {
    /// How.
    pub status: ExitStatus,
    /// Its last words.
    pub said: Tail,
}

impl Server {
    /// Starts etcd of this version with this configuration, and does not wait until it serves. An error if the version
    /// cannot have the configuration, or if the program cannot be run.
    pub fn start(tools: &Tools, version: &Version, config: &Config) -> Result<Self, ToolError> {
        let program = tools.path(Program::Etcd);
        let arguments = render(config, version).map_err(|error| ToolError::NotRun {
            program: program.clone(),
            source: std::io::Error::other(error),
        })?;
        let told = Invocation::new(program, arguments);
        let mut child = command(&told).spawn().map_err(|source| ToolError::NotRun {
            program: told.program.clone(),
            source,
        })?;
        let said = Arc::new(Mutex::new(Tail::default()));
        let mut listeners = Vec::new();
        if let Some(from) = child.stdout.take() {
            listeners.push(tokio::spawn(listen(from, Arc::clone(&said))));
        }
        if let Some(from) = child.stderr.take() {
            listeners.push(tokio::spawn(listen(from, Arc::clone(&said))));
        }
        Ok(Self {
            child,
            said,
            listeners,
        })
    }

    /// Waits until it ends by itself, and returns its exit status and its last output. Never returns while it runs.
    pub async fn ended(&mut self) -> std::io::Result<ServerEnded> {
        let status = self.child.wait().await?;
        for listener in self.listeners.drain(..) {
            // Only the runtime's own end cuts a listener off.
            let _ = listener.await;
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(ServerEnded { status, said })
    }

    /// The last 2 KiB of its output so far.
    pub fn said(&self) -> Tail {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub async fn stop(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }
}

async fn listen(mut from: impl AsyncRead + Unpin, said: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        said.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&buffer[..read]);
    }
}
