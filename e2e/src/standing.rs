//! A bed that stays when the command that started it has ended: a process of its own keeps it, and a note says where
//! it is. A note whose keeper is gone, by a crash or a reboot, counts for nothing; neither does one from before a reboot.
//!
//! A keeper is noted down as soon as it runs, and a bed when it stands. A keeper whose starter ends before the bed stands
//! ends as well. Commands that start or forget a bed do so one at a time.

mod patience;

use std::fs::{self, File, TryLockError};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use patience::Interrupted;
pub use patience::{unless_gone, unless_interrupted};

use crate::bed_dir::{self, Cleaned};
use crate::cluster::Cluster;
use crate::components::{self, Component};
use crate::deadline::until;
use crate::host::Host;
use crate::launch::tail;
use crate::namespaces::Entry;
use crate::process::{self, ProcessId, Sent};

/// From nothing until pods can be made, on a machine that also compiles.
const START_LIMIT: Duration = Duration::from_mins(10);
/// A bed ends within seconds.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// Another command at work may be building all that a bed is made of.
const TURN_LIMIT: Duration = Duration::from_hours(1);

/// A process, as a note has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    pid: u32,
    started: u64,
}

impl Noted {
    fn of(process: ProcessId) -> Self {
        Self {
            pid: process.pid(),
            started: process.started(),
        }
    }

    fn process(self) -> ProcessId {
        ProcessId::recorded(self.pid, self.started)
    }
}

/// Where the bed that stays is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Which run of this machine all of it is about.
    boot: String,
    keeper: Noted,
    nodes: Vec<Noted>,
    /// Leads to it with all rights.
    pub kubeconfig: PathBuf,
    /// The archive of the operator that its nodes have.
    #[serde(default)]
    pub operator: Option<PathBuf>,
}

impl Standing {
    /// The bed that stays, if one does.
    pub fn find() -> Result<Option<Self>> {
        let path = note()?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let found: Option<Self> = serde_json::from_slice(&text).ok();
        let boot = process::boot()?;
        // After a reboot whoever has the keeper's pid is somebody else.
        Ok(found.filter(|standing| standing.boot == boot && standing.keeper.process().is_running()))
    }

    /// Starts a bed that stays and waits until pods can be made in it.
    pub async fn start(nodes: u8) -> Result<Self> {
        Before::look().await?;
        let log = directory()?.join("bed.log");
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let this = std::env::current_exe().context("cannot find this program's own file")?;
        let mut keeper = Command::new(this)
            .args(["keep", "--nodes", &nodes.to_string()])
            .current_dir("/")
            // It ends when this process does, unless the bed stands by then.
            .stdin(Stdio::piped())
            .stdout(output.try_clone().context("cannot share the log")?)
            .stderr(output)
            // A Ctrl-C at this terminal is not for it.
            .process_group(0)
            .spawn()
            .context("cannot start the bed's keeper")?;
        let id = ProcessId::of(keeper.id());
        if let Some(id) = id {
            Keeper::note(id)?;
        }
        let started = until("the bed stands", START_LIMIT, || {
            let ended = keeper.try_wait();
            async {
                if let Some(status) = ended.context("cannot ask for the keeper's state")? {
                    bail!("its keeper ended: {status}");
                }
                Self::find()
            }
        });
        let outcome = unless_interrupted(started, "what has begun of the bed is taken away").await;
        if outcome.is_err()
            && let Some(id) = id
        {
            // Half a bed is no bed: what has begun is taken away in order.
            end(id).await?;
            let _ = keeper.wait();
        }
        match outcome {
            Err(error) if error.is::<Interrupted>() => Err(error),
            other => other.with_context(|| format!("{} ends with\n{}", log.display(), tail(&log))),
        }
    }

    /// How many nodes it has.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Makes an image known to every node.
    pub async fn import(&self, image: &Path) -> Result<()> {
        let ctr = components::find(Component::Ctr).await?;
        for node in &self.nodes {
            crate::cluster::import(Entry::machine(node.process()), &ctr, image).await?;
        }
        Ok(())
    }

    /// Writes down which operator its nodes have.
    pub fn has_operator(&mut self, archive: &Path) -> Result<()> {
        self.operator = Some(archive.to_owned());
        self.write()
    }

    fn write(&self) -> Result<()> {
        write(&note()?, self)
    }
}

/// Who keeps a bed that stands or is about to.
#[derive(Debug, Serialize, Deserialize)]
struct Keeper {
    boot: String,
    process: Noted,
}

impl Keeper {
    fn note(process: ProcessId) -> Result<()> {
        let keeper = Self {
            boot: process::boot()?,
            process: Noted::of(process),
        };
        write(&keeper_note()?, &keeper)
    }

    /// The one that runs.
    fn find() -> Result<Option<ProcessId>> {
        let boot = process::boot()?;
        let text = fs::read(keeper_note()?).unwrap_or_default();
        let noted = serde_json::from_slice(&text).ok();
        let starting = noted
            .filter(|keeper: &Self| keeper.boot == boot)
            .map(|keeper| keeper.process.process());
        let standing = Standing::find()?.map(|standing| standing.keeper.process());
        Ok(standing.or(starting).filter(|keeper| keeper.is_running()))
    }
}

/// Ends and removes what beds have left whose owner no longer runs, also where the bed that stood last was.
pub async fn clean() -> Result<Cleaned> {
    let mut cleaned = bed_dir::clean().await?;
    let noted: Option<Standing> = serde_json::from_slice(&fs::read(note()?).unwrap_or_default()).ok();
    let place = noted.and_then(|standing| Some(standing.kubeconfig.parent()?.parent()?.to_owned()));
    if let Some(place) = place
        && place != bed_dir::parent()
        && place.is_dir()
    {
        let there = bed_dir::clean_in(&place).await?;
        cleaned.beds += there.beds;
        cleaned.processes += there.processes;
    }
    Ok(cleaned)
}

/// Ends the bed that stands, or that has begun to, and waits until it is gone; says whether there was one.
pub async fn stop() -> Result<bool> {
    let Some(keeper) = Keeper::find()? else {
        return Ok(false);
    };
    end(keeper).await?;
    Ok(true)
}

async fn end(keeper: ProcessId) -> Result<()> {
    keeper.send(Sent::Terminate)?;
    let gone = |what| {
        until(what, STOP_LIMIT, || async {
            Ok((!keeper.is_running()).then_some(()))
        })
    };
    if gone("the end of the bed").await.is_err() {
        // It may stand still. Its watchdog does the rest, or else whoever cleans up next.
        keeper.send(Sent::Kill)?;
        gone("the end of the bed's keeper").await?;
    }
    Ok(())
}

/// The right to start or forget a bed, which one command at a time has. It ends with the process that has it.
#[derive(Debug)]
pub struct Turn {
    _place: File,
}

impl Turn {
    /// Waits until no other command has it.
    pub async fn wait(say: impl Fn(&str)) -> Result<Self> {
        // The directory itself: a file in it would be removed with all notes, and another one made in its place.
        let base = base()?;
        let place = File::open(&base).with_context(|| format!("cannot open {}", base.display()))?;
        let mut told = false;
        until("the end of another `up` or `down`", TURN_LIMIT, || {
            let outcome = match place.try_lock() {
                Ok(()) => Ok(Some(())),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        say("another `up` or `down` is at work: waiting for it");
                    }
                    Ok(None)
                }
                Err(TryLockError::Error(error)) => Err(error.into()),
            };
            std::future::ready(outcome)
        })
        .await?;
        Ok(Self { _place: place })
    }
}

/// Returns when whoever has started this process has ended, if that can be told: by the end of standard input.
pub async fn starter_ended() {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let Some(mut input) = input
        .ok()
        .and_then(|input| pipe::Receiver::from_owned_fd(input).ok())
    else {
        return std::future::pending().await;
    };
    while input.read(&mut [0]).await.is_ok_and(|count| count > 0) {}
}

/// This host before the bed was started, for a comparison when it has ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Before {
    boot: String,
    host: Host,
}

impl Before {
    async fn look() -> Result<()> {
        let now = Self {
            boot: process::boot()?,
            host: Host::look().await?,
        };
        write(&before()?, &now)
    }

    /// What was seen before the bed was started, unless this machine has been started anew since.
    pub fn read() -> Result<Option<Host>> {
        let Ok(text) = fs::read(before()?) else {
            return Ok(None);
        };
        let boot = process::boot()?;
        let seen: Option<Self> = serde_json::from_slice(&text).ok();
        Ok(seen.filter(|seen| seen.boot == boot).map(|seen| seen.host))
    }
}

fn write(path: &Path, what: &impl Serialize) -> Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec_pretty(what)?)
        .and_then(|()| fs::rename(&fresh, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Notes down a bed that this process keeps.
pub fn announce(cluster: &Cluster) -> Result<()> {
    let nodes = cluster.nodes().iter();
    Standing {
        boot: process::boot()?,
        keeper: Noted::of(ProcessId::own()?),
        nodes: nodes.map(|node| Noted::of(node.entry().keeper())).collect(),
        kubeconfig: cluster.control_plane().kubeconfig().to_owned(),
        operator: None,
    }
    .write()
}

/// Where the report of a bed goes that was to stay and did not start. The one of an earlier bed is gone.
pub fn fresh_report() -> Result<PathBuf> {
    let folder = directory()?.join("report");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(folder),
    }
}

/// Removes every note of a bed that stays.
pub fn forget() -> Result<()> {
    let directory = directory()?;
    fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))
}

/// Refuses to start a second one, or one that differs from what stands.
pub fn same_size(standing: &Standing, nodes: u8) -> Result<()> {
    ensure!(
        standing.size() == usize::from(nodes),
        "a bed with {} nodes stands already; end it first: cargo xtask down",
        standing.size()
    );
    Ok(())
}

fn note() -> Result<PathBuf> {
    Ok(directory()?.join("bed.json"))
}

fn keeper_note() -> Result<PathBuf> {
    Ok(directory()?.join("keeper.json"))
}

fn before() -> Result<PathBuf> {
    Ok(directory()?.join("before.json"))
}

/// `${XDG_STATE_HOME:-~/.local/state}/etcd-operator`.
fn directory() -> Result<PathBuf> {
    let directory = base()?.join("etcd-operator");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

fn base() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))
        .context("neither XDG_STATE_HOME nor a home directory is known")?;
    fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
    Ok(base)
}
