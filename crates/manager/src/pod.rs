//! Flags of the commands that run in a member's pod. The member crate does the work.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use etcd_operator_api::contract;
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_etcd::version::Minor;
use etcd_operator_member::arrival::arrival;
use etcd_operator_member::certificates::Certificates;
use etcd_operator_member::run::{self, Options};
use etcd_operator_member::verdict::Expected;
use etcd_operator_member::volume::Volume;
use etcd_operator_member::{image, install, ready, tidy};
use tokio::runtime::Builder;

/// The file whose content the kubelet copies into the pod's status.
const TERMINATION_MESSAGE: &str = "/dev/termination-log";

/// Timeouts of the readiness probe.
const PROBE_LIMITS: Limits = Limits {
    connect: Duration::from_secs(1),
    call: Duration::from_secs(2),
};

/// Flags of `etcd-operator install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// The directory to which this program copies itself as etcd-operator.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// The mount path of the member's volume. The position of its WAL is reported in the pod's status.
    #[arg(long, value_name = "DIR")]
    pub volume: Option<PathBuf>,
}

/// Flags of `etcd-operator member`.
#[derive(Clone, Debug, Args)]
pub struct MemberArgs {
    /// The UID of the EtcdCluster.
    #[arg(long, value_name = "UID")]
    pub cluster_uid: String,

    /// The incarnation of the cluster's data that the pod was created for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub incarnation: i64,

    /// The mount path of the member's volume. etcd's data is in its directory data.
    #[arg(long, value_name = "DIR")]
    pub volume: PathBuf,

    /// The file with the start permit.
    #[arg(long, value_name = "FILE")]
    pub permit: PathBuf,

    /// The member's name.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub name: String,

    /// The UID of the pod.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: String,

    /// The IP address of the pod. A first start waits until the member's name resolves to it.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub pod_ip: Option<IpAddr>,

    /// The port that serves the report while the member waits for a permit.
    #[arg(long, value_name = "PORT", default_value_t = 2381)]
    pub report_port: u16,

    /// The peer port, which rejects other members while the member waits for a permit.
    #[arg(long, value_name = "PORT", default_value_t = 2380)]
    pub peer_port: u16,

    #[command(flatten)]
    certificates: CertificateArgs,

    /// The minor version of etcd that the pod template names. etcd of another minor version is not started: the member reports
    /// it and waits.
    #[arg(long, value_name = "MINOR")]
    pub etcd_minor: Option<Minor>,

    /// The etcd command line, without the flags of a first start, which the permit contains.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Flags of `etcd-operator tidy`.
#[derive(Clone, Debug, Args)]
pub struct TidyArgs {
    /// The mount path of the member's volume.
    #[arg(value_name = "DIR")]
    pub volume: PathBuf,
}

/// Flags of `etcd-operator check-image`.
#[derive(Clone, Debug, Args)]
pub struct CheckImageArgs {
    /// The minor version of etcd that the pod template names.
    #[arg(long, value_name = "MINOR")]
    pub etcd_minor: Minor,

    /// etcd in this image.
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
}

/// Flags of `etcd-operator ready`.
#[derive(Clone, Debug, Args)]
pub struct ReadyArgs {
    /// The client URL of the member.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379")]
    pub endpoint: ClientUrl,

    #[command(flatten)]
    certificates: CertificateArgs,
}

#[derive(Clone, Debug, Args)]
struct CertificateArgs {
    /// The CA certificate of the members, as PEM.
    #[arg(long = "client-ca", value_name = "FILE")]
    authority: Option<PathBuf>,

    /// The client certificate, as PEM.
    #[arg(long = "client-cert", value_name = "FILE", requires_all = ["key", "authority"])]
    certificate: Option<PathBuf>,

    /// The key of the client certificate, as PEM.
    #[arg(long = "client-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,

    /// The server name in the members' certificates, if it differs from the host.
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

/// `etcd-operator install`: copies this program, and reports the WAL position of a volume if one is given. A failed
/// report is only logged.
pub fn install(args: &InstallArgs) -> Result<()> {
    let own = std::env::current_exe().context("cannot determine the path of this program")?;
    let directory = &args.directory;
    install::install(&own, directory)
        .with_context(|| format!("cannot copy {} into {}", own.display(), directory.display()))?;
    if let Some(volume) = &args.volume {
        // The report is diagnostic; a failure must not prevent the start of the member.
        match arrival(&Volume::at(volume)) {
            Ok(Some(arrival)) => {
                if let Err(error) = fs::write(TERMINATION_MESSAGE, contract::write(&arrival)) {
                    tracing::warn!("cannot report the WAL position to {TERMINATION_MESSAGE}: {error}");
                }
            }
            Ok(None) => {}
            Err(why) => tracing::warn!("cannot report the WAL position: {why}"),
        }
    }
    Ok(())
}

/// `etcd-operator member`: checks the volume, waits for a permit if one is required, and execs etcd. Returns only if it
/// did not.
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
        etcd_minor: args.etcd_minor,
        command: args.command,
    })?;
    Ok(())
}

/// `etcd-operator tidy`: deletes the data directories that a restore kept once they expire, and then ends.
pub fn tidy(args: &TidyArgs) -> Result<()> {
    tidy::run(&Volume::at(&args.volume))?;
    Ok(())
}

/// `etcd-operator check-image`. A failure is also written to the termination message.
pub fn check_image(args: &CheckImageArgs) -> Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let check = image::find_fault(&args.program, args.etcd_minor, image::JOB_LIMIT);
    let Some(fault) = runtime.block_on(check) else {
        return Ok(());
    };
    if let Err(error) = fs::write(TERMINATION_MESSAGE, contract::write(&image::job_result(&fault))) {
        tracing::warn!("cannot report the fault to {TERMINATION_MESSAGE}: {error}");
    }
    Err(fault.into())
}

/// `etcd-operator ready`: the readiness probe. Fails unless the member is a voter and answers a linearizable read.
pub fn ready(args: ReadyArgs) -> Result<()> {
    let tls = args.certificates.files().read().map_err(|why| anyhow!(why))?;
    ready::check(&Endpoint {
        url: args.endpoint,
        tls,
        limits: PROBE_LIMITS,
    })?;
    Ok(())
}
