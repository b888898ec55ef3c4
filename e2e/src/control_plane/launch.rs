//! The processes of a control plane: their command lines, ports and log files.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

use crate::bed_dir::BedDir;
use crate::process::{ProcessId, Sent};

/// A command that can be started again and again with the same arguments, its output appended to one file.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// A process that ends when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    id: ProcessId,
    name: &'static str,
    log: PathBuf,
}

impl Launch {
    pub(super) fn start(&self, bed: &BedDir) -> Result<Running> {
        let log = bed.path().join(format!("{}.log", self.name));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(bed.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share the log file")?)
            .stderr(output)
            // A Ctrl-C at the terminal is for the owner, who then ends its processes in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        match bed.record(child.id()) {
            Ok(id) => Ok(Running {
                child,
                id,
                name: self.name,
                log,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(format!("{} did not start:\n{}", self.name, tail(&log))))
            }
        }
    }
}

impl Running {
    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// An error with the end of its log if it has ended by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot ask for a child's state")? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, tail(&self.log)),
        }
    }

    pub(super) fn send(&self, what: Sent) -> Result<()> {
        let name = self.name;
        if self
            .id
            .send(what)
            .with_context(|| format!("cannot signal {name}"))?
        {
            return Ok(());
        }
        bail!("{name} no longer runs:\n{}", tail(&self.log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a log, for errors.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// A loopback port nobody listens on. It lies below the range that the kernel hands to outgoing connections, so
/// that it stays free while a process that owns it is restarted. Starting points differ between processes.
pub(super) fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(COUNT))
        .context("a remainder exceeds its divisor")?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (spread + step) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free loopback port from {FIRST} to {}", FIRST + COUNT - 1)
}

pub(super) fn etcd(program: PathBuf, data: &Path, client_url: &str) -> Launch {
    // The only member never talks to itself by its peer address: any free port will do, chosen by the kernel.
    let peer_url = "http://127.0.0.1:0";
    Launch {
        name: "etcd",
        program,
        arguments: vec![
            "--name=bed".into(),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=bed={peer_url}"),
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ],
    }
}

/// Files the API server is given, all in the bed's directory.
pub(super) struct ApiServerFiles {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) token_public: PathBuf,
    pub(super) token_private: PathBuf,
    pub(super) audit_policy: PathBuf,
    pub(super) audit_log: PathBuf,
}

pub(super) fn api_server(
    program: PathBuf,
    port: u16,
    etcd_url: &str,
    files: &ApiServerFiles,
    extra: &[String],
) -> Launch {
    let mut arguments = vec![
        format!("--etcd-servers={etcd_url}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        "--advertise-address=127.0.0.1".into(),
        // Nobody in this tier reaches the API server by the service `kubernetes`, and loopback is no valid endpoint.
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=RBAC".into(),
        "--anonymous-auth=false".into(),
        // Without controllers no namespace gets its default service account, and every pod would be refused.
        "--disable-admission-plugins=ServiceAccount".into(),
        "--allow-privileged=true".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--audit-log-mode=blocking".into(),
        // In this tier nothing runs for days: one file, never rotated, so that marks stay valid.
        "--audit-log-maxsize=10000".into(),
    ];
    let paths = [
        ("client-ca-file", &files.authority),
        ("tls-cert-file", &files.certificate),
        ("tls-private-key-file", &files.key),
        ("service-account-key-file", &files.token_public),
        ("service-account-signing-key-file", &files.token_private),
        ("audit-policy-file", &files.audit_policy),
        ("audit-log-path", &files.audit_log),
    ];
    arguments.extend(
        paths
            .iter()
            .map(|(flag, path)| format!("--{flag}={}", path.display())),
    );
    arguments.extend_from_slice(extra);
    Launch {
        name: "kube-apiserver",
        program,
        arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_below_those_of_outgoing_connections_and_do_not_repeat() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| (20_000..32_000).contains(port)));
        let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
