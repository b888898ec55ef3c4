//! Running a program of etcd to its end. What it says is kept only as far as a message may show it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::{Invocation, Program, Tools};
use crate::version::Version;

/// How much is kept of what a program says: its last words.
const KEPT: usize = 2048;

/// Why a program of etcd failed: it could not be run, ended with an error, or told no version.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It cannot be run at all.
    #[error("{program} cannot be run: {}", why(.source))]
    NotRun {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ended without having done it.
    #[error("{program} ended with {status}: {said}")]
    Failed {
        /// The program.
        program: PathBuf,
        /// How.
        status: ExitStatus,
        /// Its last words.
        said: Tail,
    },
    /// It does not tell its version.
    #[error("{program} does not say which version it is: {said}")]
    NoVersion {
        /// The program.
        program: PathBuf,
        /// What it says instead.
        said: Tail,
    },
}

/// The system's error, in plain words where the program is missing or is built for another processor.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is not there".to_owned(),
        _ if error.to_string().contains("Exec format") => {
            "it is not made for the processor of this machine".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The last 2 KiB of a program's output, shown on one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Adds what was said.
    pub(super) fn push(&mut self, said: &[u8]) {
        self.0.extend_from_slice(said);
        let over = self.0.len().saturating_sub(KEPT);
        self.0.drain(..over);
    }

    /// Reads output to its end. A read error ends it, too.
    pub(super) async fn follow(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 4096];
        // What can no longer be read is not said.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        if lines.is_empty() {
            return f.write_str("it said nothing");
        }
        f.write_str(&lines.join(" | "))
    }
}

/// The command to start: with only its own variables, its output captured, and killed when its `Child` is dropped.
pub(super) fn command(told: &Invocation) -> Command {
    let mut command = Command::new(&told.program);
    command
        .args(&told.arguments)
        .env_clear()
        .envs(told.variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a program to its end, and returns the last part of its output. Every exit status but 0 is an error. There is no
/// time limit; dropping the future kills it.
pub async fn run(told: &Invocation) -> Result<Tail, ToolError> {
    let failed = |source| ToolError::NotRun {
        program: told.program.clone(),
        source,
    };
    let mut child = command(told).spawn().map_err(failed)?;
    let (mut out, mut err) = (Tail::default(), Tail::default());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let listen = async {
        if let Some(stdout) = stdout {
            out.follow(stdout).await;
        }
    };
    let listen_too = async {
        if let Some(stderr) = stderr {
            err.follow(stderr).await;
        }
    };
    let ((), (), status) = tokio::join!(listen, listen_too, child.wait());
    let status = status.map_err(failed)?;
    if status.success() {
        // Versions differ in where they say what.
        out.push(&err.0);
        return Ok(out);
    }
    let said = if err.0.is_empty() { out } else { err };
    Err(ToolError::Failed {
        program: told.program.clone(),
        status,
        said,
    })
}

/// The version of these programs, as `etcd --version` says it.
pub async fn version(tools: &Tools) -> Result<Version, ToolError> {
    server_version(tools.path(Program::Etcd)).await
}

/// The version of a server, as `--version` says it. An error if the program cannot be run or says no version. There is
/// no time limit.
pub async fn server_version(program: PathBuf) -> Result<Version, ToolError> {
    let mut invocation = Invocation::new(program.clone(), vec!["--version".to_owned()]);
    // Else etcd before 3.5 does not tell it there.
    if std::env::consts::ARCH == "aarch64" {
        invocation.variables.push(("ETCD_UNSUPPORTED_ARCH", "arm64"));
    }
    let said = run(&invocation).await?;
    let text = String::from_utf8_lossy(&said.0).into_owned();
    let word = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("etcd Version:"))
        .and_then(|number| number.trim().parse().ok());
    word.ok_or(ToolError::NoVersion { program, said })
}
