//! From the start of the process to etcd: judge, wait where it must be, become etcd. A whole disk touches no network.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_operator_api::reserved;
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_etcd::version::Minor;

use crate::certificates::Certificates;
use crate::command::{CommandError, EtcdCommand, Start};
use crate::disk::{self, Depth};
use crate::fingerprint::Surroundings;
use crate::peers::Door;
use crate::restart::{self, Attempt};
use crate::state::{Source, State};
use crate::verdict::Expected;
use crate::volume::Volume;
use crate::wait::{self, Outcome, Waiting};
use crate::{chance, clock, image, tidy};

/// The port at which members answer clients unless the command says another.
const CLIENT_PORT: u16 = 2379;

/// What a member gets from its command line and its environment.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its pod expects of its disk.
    pub expected: Expected,
    /// The UID of its pod.
    pub pod_uid: String,
    /// The address of its pod.
    pub pod_ip: Option<IpAddr>,
    /// Where its volume is mounted.
    pub volume: PathBuf,
    /// Where a permit appears.
    pub permit: PathBuf,
    /// Where its report is served while it waits.
    pub report_port: u16,
    /// Where members are turned away while it waits.
    pub peer_port: u16,
    /// Certificates to ask the other members with.
    pub certificates: Certificates,
    /// The minor version of etcd that the pod template names, if it names one.
    pub etcd_minor: Option<Minor>,
    /// The command it becomes.
    pub command: Vec<String>,
}

/// Why a member ended without becoming etcd.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command is not one that may be guarded.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Waiting could not begin.
    #[error("cannot wait for a permit: {0}")]
    Waiting(std::io::Error),
    /// The command could not be run.
    #[error("cannot run {program}: {source}")]
    Exec {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Judges the disk, waits for a permit unless it is whole, and replaces this process by etcd. So it returns `Ok` only
/// if the pod is terminated while it waits.
pub fn run(options: Options) -> Result<(), Error> {
    let volume = Volume::at(&options.volume);
    let command = EtcdCommand::read(&options.command, &volume.data())?;
    // Found out before a permit is used up by it.
    check_program(command.program())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Waiting)?;
    // Before anything is written: etcd of another minor version has no business with the volume.
    let refused_image = options
        .etcd_minor
        .and_then(|expected| runtime.block_on(image::check(command.program(), expected, image::LIMIT)));
    let surroundings = Surroundings::default();
    let disk = if refused_image.is_some() {
        disk::read(&volume, &surroundings, Depth::Report)
    } else {
        match restart::attempt(&volume, &surroundings, &options.expected) {
            Attempt::Starts => return Err(become_etcd(&command, &Start::Again, &volume)),
            Attempt::Waits(disk) => *disk,
        }
    };
    let source = Source {
        now: clock::since_boot,
        draw: chance::draw,
    };
    let state = State::new(options.expected, options.pod_uid, disk, source).with_refused_image(refused_image);
    let waiting = Waiting {
        permit: options.permit,
        pod_ip: options.pod_ip,
        report_port: options.report_port,
        peer_port: options.peer_port,
        door: door(&command, options.certificates),
        source,
        volume,
        surroundings,
        program: command.program().to_owned(),
    };
    let outcome = runtime
        .block_on(wait::wait(&waiting, state))
        .map_err(Error::Waiting)?;
    match outcome {
        // Its sockets end with this process's image, so nothing is between the last look and etcd.
        Outcome::Starts(start) => Err(become_etcd(&command, &start, &waiting.volume)),
        Outcome::Told => {
            // A name that is still being looked up must not hold the pod up.
            runtime.shutdown_background();
            Ok(())
        }
    }
}

/// Whether the program can be run. One without a directory is looked up by `exec` and is not checked.
fn check_program(program: &Path) -> Result<(), CommandError> {
    let is_name = program.components().count() == 1;
    let can_run = || {
        std::fs::metadata(program)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if is_name || can_run() {
        return Ok(());
    }
    Err(CommandError::NoProgram(program.to_owned()))
}

/// How the other members serve clients: as this one does, by the first of its client URLs.
fn door(command: &EtcdCommand, certificates: Certificates) -> Door {
    let advertised = command.flag("advertise-client-urls");
    let own: Option<ClientUrl> = advertised
        .as_deref()
        .and_then(|urls| urls.split(',').next())
        .and_then(|url| url.parse().ok());
    Door {
        is_secure: own.as_ref().is_some_and(ClientUrl::is_secure),
        port: own.as_ref().map_or(CLIENT_PORT, ClientUrl::port),
        certificates,
    }
}

/// Replaces this process by etcd. It returns only if that fails.
fn become_etcd(command: &EtcdCommand, start: &Start, volume: &Volume) -> Error {
    tidy::start(volume);
    let mut etcd = Command::new(command.program());
    etcd.args(command.arguments(start));
    // etcd reads every flag from a variable, too. Those that decide where and as what it starts are refused when they
    // are asked for; one that comes another way has no effect.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| reserved::variable(name).is_some())
        {
            tracing::warn!("{} is not passed on: it belongs to the operator", name.display());
            etcd.env_remove(name);
        }
    }
    tracing::info!(program = %command.program().display(), "starting");
    Error::Exec {
        program: command.program().to_owned(),
        source: etcd.exec(),
    }
}
