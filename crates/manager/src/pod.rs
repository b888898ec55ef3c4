//! Flags of the commands that run in a pod of etcd, and their meaning. What they do is in the member crate.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use etcd_operator_api::contract;
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_member::arrival::arrival;
use etcd_operator_member::certificates::Certificates;
use etcd_operator_member::run::{self, Options};
use etcd_operator_member::verdict::Expected;
use etcd_operator_member::volume::Volume;
use etcd_operator_member::{install, ready, tidy};

/// What Kubernetes takes from a container into the status of its pod.
const LAST_WORDS: &str = "/dev/termination-log";

/// A probe that takes longer than both is a failed one.
const READY: Limits = Limits {
    connect: Duration::from_secs(1),
    call: Duration::from_secs(2),
};

/// Flags of `etcd-operator install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// The directory into which this program copies itself as etcd-operator.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Where the member's volume is mounted, to tell in the pod's status how far the log on it goes.
    #[arg(long, value_name = "DIR")]
    pub volume: Option<PathBuf>,
}

/// Flags of `etcd-operator member`.
#[derive(Clone, Debug, Args)]
pub struct MemberArgs {
    /// The UID of the EtcdCluster.
    #[arg(long, value_name = "UID")]
    pub cluster_uid: String,

    /// Which life of the cluster's data the pod was made for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub incarnation: i64,

    /// Where the member's volume is mounted. etcd's data is in its directory data.
    #[arg(long, value_name = "DIR")]
    pub volume: PathBuf,

    /// The file in which a permit to start appears.
    #[arg(long, value_name = "FILE")]
    pub permit: PathBuf,

    /// The member's name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub name: String,

    /// The UID of the pod.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: String,

    /// The address of the pod: a first start waits until the member's name leads there.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub pod_ip: Option<IpAddr>,

    /// Where the report is served while it waits for a permit.
    #[arg(long, value_name = "PORT", default_value_t = 2381)]
    pub report_port: u16,

    /// Where members are turned away while it waits for a permit.
    #[arg(long, value_name = "PORT", default_value_t = 2380)]
    pub peer_port: u16,

    #[command(flatten)]
    certificates: CertificateArgs,

    /// The command of etcd, without what a first start needs: a permit says that.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Flags of `etcd-operator tidy`.
#[derive(Clone, Debug, Args)]
pub struct TidyArgs {
    /// Where the member's volume is mounted.
    #[arg(value_name = "DIR")]
    pub volume: PathBuf,
}

/// Flags of `etcd-operator ready`.
#[derive(Clone, Debug, Args)]
pub struct ReadyArgs {
    /// The member that is asked.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379")]
    pub endpoint: ClientUrl,

    #[command(flatten)]
    certificates: CertificateArgs,
}

#[derive(Clone, Debug, Args)]
struct CertificateArgs {
    /// Who signs the certificates of members, as PEM.
    #[arg(long = "client-ca", value_name = "FILE")]
    authority: Option<PathBuf>,

    /// The certificate shown to a member that asks for one, as PEM.
    #[arg(long = "client-cert", value_name = "FILE", requires_all = ["key", "authority"])]
    certificate: Option<PathBuf>,

    /// The key of the certificate, as PEM.
    #[arg(long = "client-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,

    /// The name that members' certificates bear, where that is not the host that is asked.
    #[arg(long = "client-server-name", value_name = "NAME", requires = "authority")]
    server_name: Option<String>,
}

impl CertificateArgs {
    fn files(self) -> Certificates {
        let Self {
            authority,
            certificate,
            key,
            server_name,
        } = self;
        Certificates {
            authority,
            certificate,
            key,
            server_name,
        }
    }
}

/// `etcd-operator install`
pub fn install(args: &InstallArgs) -> Result<()> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let directory = &args.directory;
    install::install(&own, directory)
        .with_context(|| format!("cannot copy {} into {}", own.display(), directory.display()))?;
    if let Some(volume) = &args.volume {
        // It is told to find out what should not be; no member stays down because it could not.
        match arrival(&Volume::at(volume)) {
            Ok(Some(arrival)) => {
                if let Err(error) = fs::write(LAST_WORDS, contract::write(&arrival)) {
                    tracing::warn!("how far the log goes is not told: {LAST_WORDS}: {error}");
                }
            }
            Ok(None) => {}
            Err(why) => tracing::warn!("how far the log goes is not told: {why}"),
        }
    }
    Ok(())
}

/// `etcd-operator member`. Comes back only if it did not become etcd.
pub fn member(args: MemberArgs) -> Result<()> {
    run::run(Options {
        expected: Expected {
            cluster_uid: args.cluster_uid,
            member: args.name,
            incarnation: args.incarnation,
        },
        pod_uid: args.pod_uid,
        pod_ip: args.pod_ip,
        volume: args.volume,
        permit: args.permit,
        report_port: args.report_port,
        peer_port: args.peer_port,
        certificates: args.certificates.files(),
        command: args.command,
    })?;
    Ok(())
}

/// `etcd-operator tidy`
pub fn tidy(args: &TidyArgs) -> Result<()> {
    tidy::run(&Volume::at(&args.volume))?;
    Ok(())
}

/// `etcd-operator ready`
pub fn ready(args: ReadyArgs) -> Result<()> {
    let tls = args.certificates.files().read().map_err(|why| anyhow!(why))?;
    ready::check(&Endpoint {
        url: args.endpoint,
        tls,
        limits: READY,
    })?;
    Ok(())
}
