//! A process of the bed that stays until it is ended: how it is started (again), where its output goes, how it ends.
//!
//! Command lines of single programs do not stand here, and no process is ever looked up by its name.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::bed_dir::BedDir;
use crate::chronicle::Chronicle;
use crate::namespaces::Entry;
use crate::process::{ProcessId, Sent};

/// A command that can be started again and again with the same arguments, its output appended to one file.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// What people call it, and the name of its log.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// The namespaces it runs in; without, those of this process.
    pub(crate) within: Option<Entry>,
    /// Directories searched for programs before those of this process.
    pub(crate) path: Vec<PathBuf>,
}

/// A process that ends when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    id: ProcessId,
    name: String,
    log: PathBuf,
    chronicle: Chronicle,
    /// The program is a child of what was started, because that entered a PID namespace.
    behind: bool,
}

impl Launch {
    /// A launch in this process's own namespaces.
    pub(crate) fn new(name: &str, program: PathBuf, arguments: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments,
            within: None,
            path: Vec::new(),
        }
    }

    /// The same in these namespaces.
    pub(crate) fn within(mut self, entry: Entry) -> Self {
        self.within = Some(entry);
        self
    }

    /// The same with programs in these directories found first.
    pub(crate) fn with_path(mut self, directories: Vec<PathBuf>) -> Self {
        self.path = directories;
        self
    }

    pub(crate) fn log(&self, bed: &BedDir) -> PathBuf {
        bed.path().join(format!("{}.log", self.name))
    }

    pub(crate) fn start(&self, bed: &BedDir) -> Result<Running> {
        let log = self.log(bed);
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let mut command = match &self.within {
            None => Command::new(&self.program),
            Some(entry) => entry.command(&self.program)?,
        };
        let mut child = command
            .args(&self.arguments)
            .current_dir(bed.path())
            .env_clear()
            .env("PATH", search_path(&self.path)?)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share the log file")?)
            .stderr(output)
            // A Ctrl-C at the terminal is for the owner, who then ends its processes in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        match bed.record(child.id()) {
            Ok(id) => {
                let chronicle = bed.chronicle();
                chronicle.note(format_args!("{} starts as process {}", self.name, id.pid()));
                tell_end(&child, &self.name, &chronicle);
                Ok(Running {
                    child,
                    id,
                    name: self.name.clone(),
                    log,
                    chronicle,
                    behind: self.within.is_some_and(Entry::forks),
                })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(format!("{} did not start:\n{}", self.name, tail(&log))))
            }
        }
    }
}

impl Running {
    /// What was started, as the bed has recorded it.
    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// The program itself, even behind a helper that waits for it.
    pub(crate) fn program(&self) -> Option<ProcessId> {
        if self.behind {
            self.id.only_child()
        } else {
            Some(self.id)
        }
    }

    /// An error with the end of its log if it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot ask for a child's state")? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, tail(&self.log)),
        }
    }

    /// Returns when it has ended.
    pub(crate) fn wait(&mut self) {
        let _ = self.child.wait();
    }

    pub(crate) fn send(&self, what: Sent) -> Result<()> {
        let name = &self.name;
        self.chronicle
            .note(format_args!("{name} gets the signal to {what:?}"));
        let sent = match self.program() {
            None => false,
            Some(program) => program
                .send(what)
                .with_context(|| format!("cannot signal {name}"))?,
        };
        if sent {
            if self.behind && what == Sent::Resume {
                self.wake_helper();
            }
            return Ok(());
        }
        bail!("{name} no longer runs:\n{}", tail(&self.log))
    }
}

impl Running {
    /// The helper stands still as soon as its program does, and does not notice by itself that it goes on.
    fn wake_helper(&self) {
        let _ = self.id.send(Sent::Resume);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.chronicle.note(format_args!("{} is killed", self.name));
        // The helper in front of a program ends with it; killed first, it would leave the program alone.
        let ends_by_itself = self.behind
            && self
                .program()
                .is_some_and(|program| program.send(Sent::Kill).unwrap_or(false));
        if ends_by_itself {
            self.wake_helper();
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Has the end of a process written down, whether anybody expects it or not. It is only looked at: whoever owns the
/// process still gets its status.
fn tell_end(child: &Child, name: &str, chronicle: &Chronicle) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return;
    };
    let (name, chronicle) = (name.to_owned(), chronicle.clone());
    let wait = move || {
        let looked = waitid(
            WaitId::PidFd(process.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        let how = match looked {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!(" with status {code}"),
                (None, Some(signal)) => format!(" by signal {signal}"),
                (None, None) => String::new(),
            },
            // Its owner was quicker.
            _ => String::new(),
        };
        chronicle.note(format_args!("{name} has ended{how}"));
    };
    // Without the thread a line is missing from reports, nothing else.
    let _ = std::thread::Builder::new()
        .name("end-of-process".to_owned())
        .spawn(wait);
}

/// The end of a log, for errors.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn search_path(first: &[PathBuf]) -> Result<std::ffi::OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let all = first.iter().cloned().chain(std::env::split_paths(&usual));
    std::env::join_paths(all).context("a directory's name cannot stand in PATH")
}
