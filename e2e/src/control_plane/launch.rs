//! The processes of a control plane: their command lines and ports.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

use crate::launch::Launch;
use crate::network;

/// A loopback port nobody listens on. It lies below the range that the kernel hands to outgoing connections, so
/// that it stays free while a process that owns it is restarted. Starting points differ between processes.
pub(crate) fn free_port() -> Result<u16> {
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

/// etcd with one member that forgets on power loss, which a bed does not outlive.
pub(super) fn etcd(program: PathBuf, data: &Path, client_url: &str) -> Launch {
    // The only member never talks to itself by its peer address: any free port will do, chosen by the kernel.
    let peer_url = "http://127.0.0.1:0";
    Launch::new(
        "etcd",
        program,
        vec![
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
    )
}

/// Files the API server is given, all in the bed's directory.
#[derive(Clone, Debug)]
pub(super) struct ApiServerFiles {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) token_public: PathBuf,
    pub(super) token_private: PathBuf,
    pub(super) audit_policy: PathBuf,
    pub(super) audit_log: PathBuf,
}

/// What differs between a control plane by itself and one that has nodes.
pub(super) enum Around {
    /// Nothing: loopback only, no controllers.
    Alone,
    /// Nodes and controllers.
    Nodes {
        kubelet_client_certificate: PathBuf,
        kubelet_client_key: PathBuf,
    },
}

pub(super) fn api_server(
    program: PathBuf,
    port: u16,
    etcd_url: &str,
    files: &ApiServerFiles,
    around: &Around,
    extra: &[String],
) -> Launch {
    let mut arguments = vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        format!("--service-cluster-ip-range={}", network::SERVICES),
        "--anonymous-auth=false".into(),
        "--allow-privileged=true".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--audit-log-mode=blocking".into(),
        // In this tier nothing runs for days: one file, never rotated, so that marks stay valid.
        "--audit-log-maxsize=10000".into(),
    ];
    let mut paths = vec![
        ("client-ca-file", &files.authority),
        ("tls-cert-file", &files.certificate),
        ("tls-private-key-file", &files.key),
        ("service-account-key-file", &files.token_public),
        ("service-account-signing-key-file", &files.token_private),
        ("audit-policy-file", &files.audit_policy),
        ("audit-log-path", &files.audit_log),
    ];
    match around {
        Around::Alone => arguments.extend([
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            // Nobody in this tier reaches the API server by the service `kubernetes`, and loopback is no valid
            // endpoint.
            "--endpoint-reconciler-type=none".into(),
            "--authorization-mode=RBAC".into(),
            // Without controllers no namespace gets its default service account, and every pod would be refused.
            "--disable-admission-plugins=ServiceAccount".into(),
        ]),
        Around::Nodes {
            kubelet_client_certificate,
            kubelet_client_key,
        } => {
            arguments.extend([
                "--bind-address=0.0.0.0".into(),
                format!("--advertise-address={}", network::CONTROL_PLANE),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                // The names of nodes are in no DNS.
                "--kubelet-preferred-address-types=InternalIP".into(),
                // The control plane is no node: services end at their endpoints here.
                "--enable-aggregator-routing=true".into(),
            ]);
            paths.extend([
                ("kubelet-certificate-authority", &files.authority),
                ("kubelet-client-certificate", kubelet_client_certificate),
                ("kubelet-client-key", kubelet_client_key),
            ]);
        }
    }
    arguments.extend(
        paths
            .iter()
            .map(|(flag, path)| format!("--{flag}={}", path.display())),
    );
    arguments.extend_from_slice(extra);
    Launch::new("kube-apiserver", program, arguments)
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
