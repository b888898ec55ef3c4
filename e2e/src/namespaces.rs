//! Linux namespaces in which parts of a bed run, each kept by one process. A bed keeps one *hub* (mounts and
//! network), and in it one *machine* per node (processes as well): killing a machine's first process ends
//! everything in it at once, and its mounts and interfaces go with it.
//!
//! Nothing is mounted and no address is set here, except what makes a machine a machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bed_dir::BedDir;
use crate::command;
use crate::deadline::until;
use crate::launch::{Launch, Running};
use crate::process::{ProcessId, Sent};

const START_LIMIT: Duration = Duration::from_mins(2);

/// The first process of a machine. A child whose end nobody awaits is taken away by the kernel because the signal
/// about it is ignored.
const FIRST_PROCESS: &str = "trap '' CHLD; exec sleep infinity";

/// A way into namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    keeper: ProcessId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Mounts and network.
    Hub,
    /// Mounts, network and processes.
    Machine,
}

impl Entry {
    /// The way into the machine whose first process this is.
    pub(crate) fn machine(keeper: ProcessId) -> Self {
        Self {
            keeper,
            kind: Kind::Machine,
        }
    }

    /// Whether entering puts a helper in front of the program, which then is the helper's only child.
    pub(crate) fn forks(self) -> bool {
        self.kind == Kind::Machine
    }

    /// The process that keeps them, as seen from outside.
    pub fn keeper(self) -> ProcessId {
        self.keeper
    }

    /// A command that runs `program` in there, to which arguments can be added.
    pub fn command(self, program: impl AsRef<Path>) -> Result<Command> {
        if !self.keeper.is_running() {
            bail!("the namespaces kept by process {} are gone", self.keeper.pid());
        }
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.keeper.pid()))
            .args(["--mount", "--net"]);
        if self.kind == Kind::Machine {
            command.arg("--pid");
        }
        command.arg("--").arg(program.as_ref());
        Ok(command)
    }

    /// The same for a program that goes on: it ends when the command is killed, which what runs behind a fork does not by
    /// itself.
    pub fn companion(self, program: impl AsRef<Path>) -> Result<Command> {
        let mut command = self.command("setpriv")?;
        command.args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref());
        Ok(command)
    }

    /// Runs a program in there to its end; anything but success is an error.
    pub async fn run(self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_with_input(program, arguments, "").await
    }

    /// The same with this on its standard input.
    pub async fn run_with_input(self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = self.command(program)?;
        command.args(arguments);
        command::succeed(command.into(), input).await
    }

    /// A path in there, as a path that can be opened from here.
    pub fn path(self, inside: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.pid()));
        root.join(inside.strip_prefix("/").unwrap_or(inside))
    }
}

/// The namespaces of the control plane, in which those of the nodes are made.
#[derive(Debug)]
pub(crate) struct Hub {
    entry: Entry,
    _keeper: Running,
}

impl Hub {
    pub(crate) async fn start(bed: &BedDir) -> Result<Self> {
        let arguments = ["--mount", "--net", "--propagation=private", "sleep", "infinity"];
        let mut keeper =
            Launch::new("hub", "unshare".into(), arguments.map(str::to_owned).to_vec()).start(bed)?;
        let id = keeper.id();
        until("the hub has namespaces of its own", START_LIMIT, || {
            let alive = keeper.check();
            async move {
                alive?;
                Ok(is_named(id, "sleep").then_some(()))
            }
        })
        .await?;
        Ok(Self {
            entry: Entry {
                keeper: id,
                kind: Kind::Hub,
            },
            _keeper: keeper,
        })
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }
}

/// The namespaces of a node. Dropping it is pulling the plug.
#[derive(Debug)]
pub(crate) struct Machine {
    entry: Entry,
    outer: Running,
}

impl Machine {
    /// A machine whose mounts follow those that the hub shares, and which sees `directories` of its own in the
    /// place of the host's.
    pub(crate) async fn start(
        name: &str,
        hub: Entry,
        bed: &BedDir,
        directories: &[(PathBuf, &str)],
    ) -> Result<Self> {
        let mut arguments = vec![
            format!("--mount=/proc/{}/ns/mnt", hub.keeper.pid()),
            "unshare".into(),
        ];
        arguments.extend(
            [
                "--pid",
                "--fork",
                "--kill-child",
                "--mount",
                "--net",
                "--propagation=slave",
                "--mount-proc",
                "sh",
                "-c",
                FIRST_PROCESS,
            ]
            .map(str::to_owned),
        );
        let mut outer = Launch::new(name, "nsenter".into(), arguments).start(bed)?;
        let id = outer.id();
        let first = until(&format!("{name} has a first process"), START_LIMIT, || {
            let alive = outer.check();
            async move {
                alive?;
                Ok(id.only_child().filter(|first| is_named(*first, "sleep")))
            }
        })
        .await?;
        bed.record(first.pid())?;
        let entry = Entry {
            keeper: first,
            kind: Kind::Machine,
        };
        let machine = Self { entry, outer };
        // Still following the hub, and shared anew with what containers make of it.
        entry.run("mount", &["--make-rshared", "/"]).await?;
        for (own, place) in directories {
            fs::create_dir_all(own).with_context(|| format!("cannot make {}", own.display()))?;
            let own = own.to_str().context("the bed's path is not UTF-8")?;
            entry.run("mount", &["--bind", own, place]).await?;
        }
        Ok(machine)
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The outer process returns only when the kernel has ended all others in there.
        if !self.entry.keeper.send(Sent::Kill).unwrap_or(false) {
            let _ = self.outer.send(Sent::Kill);
        }
        self.outer.wait();
    }
}

/// An identity of the network namespace a process is in.
pub fn network_of(process: ProcessId) -> Option<u64> {
    fs::metadata(format!("/proc/{}/ns/net", process.pid()))
        .ok()
        .map(|metadata| metadata.ino())
}

fn is_named(process: ProcessId, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/comm", process.pid())).is_ok_and(|comm| comm.trim() == name)
}
