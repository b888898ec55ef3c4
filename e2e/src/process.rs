//! Which process is meant, exactly: a pid together with its start time, so that a pid used again by something else
//! is never signalled. No process is looked up by name here.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// By what Linux counts the time of processors.
const TICK: Duration = Duration::from_millis(10);

/// One process, told apart from any later process that gets the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pid: u32,
    /// Clock ticks after boot, field 22 of `/proc/PID/stat`.
    started: u64,
}

/// Which run of this machine it is: pids and start times mean nothing in another.
pub fn boot() -> Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .context("the kernel does not say which run of this machine it is")?;
    Ok(id.trim().replace('-', ""))
}

/// What can be sent to a process of a bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// End at once (SIGKILL).
    Kill,
    /// End in order (SIGTERM).
    Terminate,
    /// End in order, as Ctrl-C asks for it (SIGINT).
    Interrupt,
    /// Stand still (SIGSTOP).
    Pause,
    /// Go on (SIGCONT).
    Resume,
}

impl ProcessId {
    /// The process that has this pid now, if there is one.
    pub fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| Self {
            pid,
            started: stat.started,
        })
    }

    /// A process read back from a record; it may have ended long ago.
    pub fn recorded(pid: u32, started: u64) -> Self {
        Self { pid, started }
    }

    /// The process this code runs in.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id()).context("/proc has no entry for this very process: is /proc mounted?")
    }

    /// The bare pid, for messages.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Clock ticks after boot at which it started.
    pub fn started(self) -> u64 {
        self.started
    }

    /// The process it has started, if there is just one.
    pub fn only_child(self) -> Option<Self> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).ok()?;
        let mut pids = children.split_ascii_whitespace();
        let child = Self::of(pids.next()?.parse().ok()?)?;
        (pids.next().is_none() && self.is_running()).then_some(child)
    }

    /// Whether it still runs. One that has ended and only waits for its parent to notice counts as ended.
    pub fn is_running(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.ended)
    }

    /// Whether none of its threads goes on: each has stopped or ended. A signal to stop is taken by one thread first, and one
    /// that waits for a disk takes it only when the disk has answered; until then the others write on.
    pub fn stands_still(self) -> bool {
        if !self.is_running() {
            return true;
        }
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid));
        let mut threads = threads.into_iter().flatten().flatten();
        threads.all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok();
            stat.and_then(|stat| parse_stat(&stat))
                .is_none_or(|stat| stat.ended || stat.stopped)
        })
    }

    /// Memory of its own, in bytes. Pages of its program are not: an unoptimised one has many times those of what is shipped.
    pub fn anonymous(self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    /// The most that it ever was.
    pub fn most_resident(self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// How long processors have worked for it since it was started, to a hundredth of a second.
    pub fn processor_time(self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let stat = parse_stat(&text).with_context(|| format!("{path} is malformed"))?;
        Ok(TICK * stat.ticks)
    }

    fn memory(self, which: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix(which))
            .and_then(|rest| rest.trim().strip_suffix("kB"))
            .with_context(|| format!("no {which} in {path}"))?
            .trim()
            .parse()?;
        Ok(kib * 1024)
    }

    /// Sends a signal, to this process or to nobody; says whether it was there to receive it.
    pub fn send(self, what: Sent) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        // The descriptor pins whoever has the pid now; comparing the start time after that leaves no gap in which
        // the pid could change hands.
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if !self.is_running() {
            return Ok(false);
        }
        let signal = match what {
            Sent::Kill => Signal::KILL,
            Sent::Terminate => Signal::TERM,
            Sent::Interrupt => Signal::INT,
            Sent::Pause => Signal::STOP,
            Sent::Resume => Signal::CONT,
        };
        match pidfd_send_signal(descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// `PID START`, the form a bed records.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

impl FromStr for ProcessId {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (pid, started) = line
            .trim()
            .split_once(' ')
            .context("a process is recorded as `PID START`")?;
        Ok(Self::recorded(pid.parse()?, started.parse()?))
    }
}

struct Stat {
    ended: bool,
    stopped: bool,
    started: u64,
    /// Of work, its own and the kernel's for it.
    ticks: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command name stands in parentheses and may itself hold spaces and parentheses: fields count from the last.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let own: u32 = fields.nth(10)?.parse().ok()?;
    let kernel: u32 = fields.next()?.parse().ok()?;
    let started = fields.nth(6)?.parse().ok()?;
    Some(Stat {
        ended: matches!(state, "Z" | "X"),
        stopped: state == "T",
        started,
        ticks: own.checked_add(kernel)?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::deadline::until;

    #[test]
    fn the_start_time_is_found_behind_an_awkward_command_name() {
        let text = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 4711 100 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.started, stat.ticks), (4711, 42));
        assert!(!stat.ended);
    }

    #[test]
    fn a_pid_that_changed_hands_is_not_signalled() {
        let mut child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let now = ProcessId::of(child.id()).unwrap();
        let earlier = ProcessId::recorded(now.pid(), now.started() - 1);
        let sent = earlier.send(Sent::Kill).unwrap();
        let survived = now.is_running();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!sent);
        assert!(survived);
        assert!(!now.is_running());
    }

    #[tokio::test]
    async fn one_that_is_told_to_stop_stands_still_until_it_may_go_on() {
        let mut child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        let before = process.stands_still();
        let patience = Duration::from_mins(1);
        process.send(Sent::Pause).unwrap();
        let stopped = until("it stands", patience, || async {
            Ok(process.stands_still().then_some(()))
        })
        .await;
        process.send(Sent::Resume).unwrap();
        let gone_on = until("it goes", patience, || async {
            Ok((!process.stands_still()).then_some(()))
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!before);
        stopped.unwrap();
        gone_on.unwrap();
        assert!(process.stands_still());
    }

    #[test]
    fn a_record_reads_back_as_the_same_process() {
        let own = ProcessId::own().unwrap();
        assert_eq!(own.to_string().parse::<ProcessId>().unwrap(), own);
        assert!(own.is_running());
    }
}
