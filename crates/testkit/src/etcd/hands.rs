//! The hands that reach into the model from outside: starting and killing processes, taking disks and wires away.
//! Nothing here decides what follows.

use std::time::Duration;

use etcd_operator_etcd::id::MemberId;

use super::Etcds;
use super::disk::{Content, Disk, DiskId};
use super::faults::{CallFault, Calls};
use super::line::{Caller, Dialer};
use super::process::{At, Exit, ProcessId, Start};
use super::truth::{Judge, Truth};
use super::world::{Event, Finding, World};
use crate::signal::Listener;
use crate::timeline::Timeline;

/// How long a process takes to end that was told to.
const STOPPING: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

impl World {
    /// A leader gives way to a voter that has all of its log.
    pub(crate) fn hand_over(&mut self, process: ProcessId, to: MemberId) {
        let last = self.wal(process).map_or(0, |wal| wal.log.last());
        let Some(lead) = self.running(process).and_then(|running| running.lead()) else {
            return;
        };
        let is_ready = lead.matched.get(&to).copied().unwrap_or(0) >= last;
        let term = lead.term + 1;
        let Some(target) = self.peer(process, to) else {
            return;
        };
        if !is_ready || !self.connects(process, target) || !self.has_quorum(process) {
            return;
        }
        for voter in [process, target] {
            if let Some(wal) = self.wal_mut(voter) {
                wal.term = term;
                wal.vote = Some(to);
            }
        }
        self.follow(process, to, term);
        self.lead(target, term);
    }
}

impl Etcds {
    /// An empty disk.
    pub fn disk(&self) -> DiskId {
        self.disk_with(Content::default())
    }

    /// A disk with a copy of what lay on another one.
    pub fn disk_with(&self, content: Content) -> DiskId {
        self.with(|world| {
            let id = DiskId(world.fresh());
            world.disks.insert(
                id,
                Disk {
                    content,
                    ..Disk::default()
                },
            );
            id
        })
    }

    /// What lies on a disk now; none if there is no such disk.
    pub fn content(&self, disk: DiskId) -> Option<Content> {
        self.with(|world| world.disks.get(&disk).map(|disk| disk.content.clone()))
    }

    /// Changes what lies on a disk, as the process that guards a member does.
    pub fn edit(&self, disk: DiskId, change: impl FnOnce(&mut Content)) {
        self.with(|world| {
            if let Some(disk) = world.disks.get_mut(&disk) {
                change(&mut disk.content);
            }
        });
    }

    /// Empties a disk. Whoever writes to it dies.
    pub fn wipe(&self, disk: DiskId) {
        self.replace(disk, Content::default());
    }

    /// Puts an older state of a disk back, in place. Whoever writes to it dies.
    pub fn revert(&self, disk: DiskId, content: Content) {
        self.replace(disk, content);
        self.with(|world| world.reverted.insert(disk));
    }

    fn replace(&self, disk: DiskId, content: Content) {
        self.with(|world| {
            world.kill_users(disk, "the disk is gone");
            if let Some(disk) = world.disks.get_mut(&disk) {
                disk.content = content;
            }
            world.changed();
        });
    }

    /// Takes a disk away for good. Whoever writes to it dies.
    pub fn destroy(&self, disk: DiskId) {
        self.with(|world| {
            world.kill_users(disk, "the disk is gone");
            world.disks.remove(&disk);
            world.changed();
        });
    }

    /// Damages what lies on a disk, so that no process starts from it. Whoever writes to it dies.
    pub fn damage(&self, disk: DiskId) {
        self.with(|world| {
            world.kill_users(disk, "the disk is damaged");
            if let Some(data) = world
                .disks
                .get_mut(&disk)
                .and_then(|disk| disk.content.data.as_mut())
            {
                data.is_damaged = true;
            }
            world.changed();
        });
    }

    /// Fills a disk up, or makes room on it.
    pub fn fill(&self, disk: DiskId, is_full: bool) {
        self.with(|world| {
            if let Some(disk) = world.disks.get_mut(&disk) {
                disk.is_full = is_full;
            }
        });
    }

    /// Whether a disk is no more.
    pub fn is_gone(&self, disk: DiskId) -> bool {
        self.with(|world| !world.disks.contains_key(&disk))
    }

    /// Whether nothing more can be written to a disk.
    pub fn is_full(&self, disk: DiskId) -> bool {
        self.with(|world| world.disks.get(&disk).is_none_or(|disk| disk.is_full))
    }

    /// Makes a disk unreadable, or readable again.
    pub fn block(&self, disk: DiskId, is_unreadable: bool) {
        self.with(|world| {
            if let Some(disk) = world.disks.get_mut(&disk) {
                disk.is_unreadable = is_unreadable;
            }
        });
    }

    /// Whether nothing can be read from a disk.
    pub fn is_unreadable(&self, disk: DiskId) -> bool {
        self.with(|world| world.disks.get(&disk).is_none_or(|disk| disk.is_unreadable))
    }

    /// Starts a process.
    pub fn start(&self, start: Start) -> ProcessId {
        self.with(|world| world.start(start))
    }

    /// Kills a process.
    pub fn kill(&self, process: ProcessId) {
        self.with(|world| world.exit(process, 137, "killed"));
    }

    /// Tells a process to end: it gives leadership away if it can, and ends soon.
    pub fn terminate(&self, process: ProcessId) {
        self.with(|world| world.terminate(process));
    }

    /// Whether a process is stopped.
    pub fn is_stopped(&self, process: ProcessId) -> bool {
        self.with(|world| {
            world
                .processes
                .get(&process)
                .is_some_and(|process| process.is_stopped)
        })
    }

    /// Stops a process as a signal does: it keeps its connections and answers nobody.
    pub fn stop(&self, process: ProcessId) {
        self.pause(process, true);
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self, process: ProcessId) {
        self.pause(process, false);
    }

    fn pause(&self, process: ProcessId, is_stopped: bool) {
        self.with(|world| {
            world.note(process, if is_stopped { "is stopped" } else { "goes on" });
            if let Some(found) = world.processes.get_mut(&process) {
                found.is_stopped = is_stopped;
                if found.is_ending && !is_stopped {
                    world.after(STOPPING.0, Event::Terminated(process));
                }
            }
            world.changed();
            world.refresh();
        });
    }

    /// How a process ended; none while it has not.
    pub fn exit(&self, process: ProcessId) -> Option<Exit> {
        self.with(|world| world.exits.get(&process).cloned())
    }

    /// Whether a process runs, or at least has not ended.
    pub fn is_up(&self, process: ProcessId) -> bool {
        self.with(|world| world.processes.contains_key(&process))
    }

    /// Cuts the wire from one label to another: what the first sends never arrives.
    pub fn cut(&self, from: &str, to: &str) {
        self.rewire(|world| world.network.cut(from, to));
    }

    /// Mends that wire.
    pub fn mend(&self, from: &str, to: &str) {
        self.rewire(|world| world.network.mend(from, to));
    }

    /// Cuts both ways.
    pub fn part(&self, one: &str, other: &str) {
        self.rewire(|world| {
            world.network.cut(one, other);
            world.network.cut(other, one);
        });
    }

    /// Mends both ways.
    pub fn join(&self, one: &str, other: &str) {
        self.rewire(|world| {
            world.network.mend(one, other);
            world.network.mend(other, one);
        });
    }

    /// Mends everything and makes it fast.
    pub fn mend_all(&self) {
        self.rewire(|world| world.network.mend_all());
    }

    /// Makes every message to or from a label take so much longer.
    pub fn slow(&self, label: &str, by: Duration) {
        self.rewire(|world| world.network.slow(label, by));
    }

    /// Whether messages between two sets of labels arrive both ways.
    pub fn connects(&self, one: &[String], other: &[String]) -> bool {
        self.with(|world| world.network.connects(one, other))
    }

    fn rewire(&self, change: impl FnOnce(&mut World)) {
        self.with(|world| {
            change(world);
            world.changed();
            world.refresh();
        });
    }

    /// Lets the next `times` matching calls go wrong.
    pub fn fault(&self, calls: Calls, fault: CallFault, times: u32) {
        self.with(|world| world.faults.add(calls, fault, times));
    }

    /// Forgets all faults not used up.
    pub fn clear_faults(&self) {
        self.with(|world| world.faults.clear());
    }

    /// Lets somebody look at every step of judged callers.
    pub fn judge(&self, judge: Judge) {
        self.with(|world| world.judges.push(judge));
    }

    /// Looks at what is really so.
    pub fn truth<T>(&self, look: impl FnOnce(&Truth<'_>) -> T) -> T {
        self.with(|world| look(&Truth(world)))
    }

    /// What the model itself saw go wrong.
    pub fn findings(&self) -> Vec<Finding> {
        self.with(|world| world.findings.clone())
    }

    /// The record of what happened.
    pub fn timeline(&self) -> Timeline {
        self.with(|world| world.timeline.clone())
    }

    /// The time since the model began.
    pub fn now(&self) -> At {
        self.with(|world| world.now)
    }

    /// Tells of every change.
    pub fn changes(&self) -> Listener {
        self.0.changed.subscribe()
    }

    /// Tells of every change that can make a member ready or not.
    pub fn shapes(&self) -> Listener {
        self.0.shaped.subscribe()
    }

    /// Reaches members for a caller.
    pub fn dialer(&self, caller: Caller) -> Dialer {
        Dialer {
            etcds: self.clone(),
            caller,
        }
    }

    /// Whether the process answers linearizable reads as a voter: what `/readyz` says. It is asked before a member that
    /// joins knows that it is none, so whoever looks only once may be told so by a learner.
    pub fn is_ready(&self, process: ProcessId, looks_once: bool) -> bool {
        self.with(|world| {
            let says_so = looks_once || world.is_no_learner(process).is_ok();
            world.serves(process) && says_so && world.can_read(process)
        })
    }
}

impl World {
    fn terminate(&mut self, process: ProcessId) {
        let Some(found) = self.processes.get_mut(&process).filter(|found| !found.is_ending) else {
            return;
        };
        found.is_ending = true;
        let heir = self.running(process).and_then(|running| {
            let own = running.id;
            let mut voters = running.applied.voters().map(|member| member.id);
            running
                .lead()
                .and_then(|_| voters.find(|id| *id != own && running.active.contains_key(id)))
        });
        if let Some(heir) = heir {
            self.hand_over(process, heir);
        }
        let (least, most) = STOPPING;
        let stopping = self.chance.between(least, most);
        self.after(stopping, Event::Terminated(process));
    }

    /// Ends a process that was told to. One that is stopped hears of it when it goes on.
    pub(crate) fn ends(&mut self, process: ProcessId) {
        let hears = self
            .processes
            .get(&process)
            .is_some_and(|found| !found.is_stopped);
        if hears {
            self.write_storage(process);
            self.exit(process, 0, "told to end");
        }
    }

    fn kill_users(&mut self, disk: DiskId, why: &str) {
        let users: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.start.disk == disk)
            .map(|(id, _)| *id)
            .collect();
        for process in users {
            self.exit(process, 137, why);
        }
    }
}
