//! A bed that stays when the command that started it has ended: a process of its own keeps it, and a note says where
//! it is. A note whose keeper is gone, by a crash or a reboot, counts for nothing; neither does one from before a reboot.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::bed_dir;
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
        bed_dir::clean().await?;
        Before::look().await?;
        let log = directory()?.join("bed.log");
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let this = std::env::current_exe().context("cannot find this program's own file")?;
        let mut keeper = Command::new(this)
            .args(["keep", "--nodes", &nodes.to_string()])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share the log")?)
            .stderr(output)
            // A Ctrl-C at this terminal is not for it.
            .process_group(0)
            .spawn()
            .context("cannot start the bed's keeper")?;
        let id = ProcessId::of(keeper.id());
        let started = until("the bed stands", START_LIMIT, || {
            let ended = keeper.try_wait();
            async {
                if let Some(status) = ended.context("cannot ask for the keeper's state")? {
                    bail!("its keeper ended: {status}");
                }
                Self::find()
            }
        });
        let outcome = unless_interrupted(started).await;
        if outcome.is_err()
            && let Some(id) = id
        {
            // Half a bed is no bed: what has begun is taken away in order.
            id.send(Sent::Terminate)?;
            let _ = keeper.wait();
        }
        outcome.with_context(|| format!("{} ends with\n{}", log.display(), tail(&log)))
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

    /// Ends it and waits until it is gone.
    pub async fn stop(self) -> Result<()> {
        let keeper = self.keeper.process();
        keeper.send(Sent::Terminate)?;
        until("the end of the bed", STOP_LIMIT, || async {
            Ok((!keeper.is_running()).then_some(()))
        })
        .await?;
        forget()
    }

    fn write(&self) -> Result<()> {
        write(&note()?, self)
    }
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

async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
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

fn before() -> Result<PathBuf> {
    Ok(directory()?.join("before.json"))
}

/// `${XDG_STATE_HOME:-~/.local/state}/etcd-operator`.
fn directory() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))
        .context("neither XDG_STATE_HOME nor a home directory is known")?;
    let directory = base.join("etcd-operator");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}
