//! Everything there is in the model and what will happen next: disks, processes, the network, and a queue of events in
//! the order of time. What an event does is in the modules beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_etcd::id::{ClusterId, MemberId};

use super::chronicle::Chronicle;
use super::disk::{Disk, DiskId, Wal};
use super::faults::Faults;
use super::log::{Change, EntryId};
use super::network::Network;
use super::process::{At, Exit, Process, ProcessId, Running};
use super::truth::Judge;
use crate::chance::Chance;
use crate::timeline::Timeline;

/// The whole model.
pub(crate) struct World {
    pub(crate) now: At,
    queue: BTreeMap<(At, u64), Event>,
    sequence: u64,
    pub(crate) chance: Chance,
    pub(crate) timeline: Timeline,
    pub(crate) disks: BTreeMap<DiskId, Disk>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) exits: BTreeMap<ProcessId, Exit>,
    /// Who answers under a name; the latest to start does.
    pub(crate) hosts: BTreeMap<String, ProcessId>,
    pub(crate) network: Network,
    pub(crate) faults: Faults,
    pub(crate) chronicles: BTreeMap<ClusterId, Chronicle>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) judges: Vec<Judge>,
    /// Disks that were turned back where they are, which nobody can tell at a start.
    pub(crate) reverted: BTreeSet<DiskId>,
    /// Counts what anybody outside may want to know of.
    pub(crate) version: u64,
    /// Counts what can make a member ready or not.
    pub(crate) shape: u64,
}

/// What the model itself saw go wrong, whoever is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When.
    pub at: At,
    /// What kind of thing.
    pub kind: FindingKind,
    /// In words.
    pub what: String,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A member agreed to another entry where one had been agreed before: data is lost or split.
    Forked,
    /// A voter started without entries that it had acknowledged.
    Amnesia,
    /// The same, from a disk that was turned back where it is: no start can tell that.
    Reverted,
}

/// What will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A process has opened its files.
    Boot(ProcessId),
    /// A leader's message arrives at a member.
    Append {
        from: ProcessId,
        term: u64,
        to: MemberId,
        upto: u64,
    },
    /// The answer to that arrives.
    Ack {
        to: ProcessId,
        term: u64,
        member: MemberId,
        upto: u64,
    },
    /// A proposal arrives at the leader.
    Forward {
        from: ProcessId,
        id: EntryId,
        change: Change,
    },
    /// A member has waited for a leader, or a leader for its followers, for long enough.
    Timer(ProcessId, u64),
    /// A leader compares the versions of the members.
    Monitor(ProcessId, u64),
    /// A member lowers the version of its files to the cluster version.
    LowerStorage(ProcessId),
    /// What a member has lowered is on its disk.
    WriteStorage(ProcessId),
    /// A member tells the others its name.
    Publish(ProcessId),
    /// A member hears from another that it was removed.
    Dismissed(ProcessId),
    /// A process that was told to end has ended.
    Terminated(ProcessId),
    /// A member notices connections that broke silently.
    Notice(ProcessId),
}

/// The usual time of a message.
const HOP: [Duration; 3] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(1500),
];

impl World {
    pub(crate) fn new(seed: u64, timeline: Timeline) -> Self {
        Self {
            now: At::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            chance: Chance::new(seed),
            timeline,
            disks: BTreeMap::new(),
            processes: BTreeMap::new(),
            exits: BTreeMap::new(),
            hosts: BTreeMap::new(),
            network: Network::default(),
            faults: Faults::default(),
            chronicles: BTreeMap::new(),
            findings: Vec::new(),
            judges: Vec::new(),
            reverted: BTreeSet::new(),
            version: 0,
            shape: 0,
        }
    }

    /// A number nobody else has.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<At> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Puts an event off.
    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        let sequence = self.fresh();
        self.queue.insert((self.now + delay, sequence), event);
    }

    /// Lets everything happen that is due.
    pub(crate) fn run_until(&mut self, now: At) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = self.now.max(now);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Boot(process) => self.boot(process),
            Event::Append { from, term, to, upto } => self.append_arrives(from, term, to, upto),
            Event::Ack {
                to,
                term,
                member,
                upto,
            } => self.ack_arrives(to, term, member, upto),
            Event::Forward { from, id, change } => self.forward_arrives(from, id, change),
            Event::Timer(process, stamp) => self.timer_fires(process, stamp),
            Event::Monitor(process, term) => self.monitor_fires(process, term),
            Event::LowerStorage(process) => self.lower_storage(process),
            Event::WriteStorage(process) => self.write_storage(process),
            Event::Publish(process) => self.publish(process),
            Event::Dismissed(process) => self.dismiss(process),
            Event::Terminated(process) => self.ends(process),
            Event::Notice(process) => self.notice(process),
        }
    }

    /// How long a message between two takes.
    pub(crate) fn hop(&mut self, one: &[String], other: &[String]) -> Duration {
        let usual = self.chance.pick(&HOP).copied().unwrap_or_default();
        usual + self.network.delay(one, other)
    }

    pub(crate) fn running(&self, process: ProcessId) -> Option<&Running> {
        self.processes.get(&process)?.member.as_ref()
    }

    pub(crate) fn running_mut(&mut self, process: ProcessId) -> Option<&mut Running> {
        self.processes.get_mut(&process)?.member.as_mut()
    }

    pub(crate) fn awake(&self, process: ProcessId) -> Option<&Running> {
        self.processes.get(&process)?.awake()
    }

    pub(crate) fn labels(&self, process: ProcessId) -> &[String] {
        self.processes
            .get(&process)
            .map_or(&[], |process| &process.start.labels)
    }

    /// What a running member has written down.
    pub(crate) fn wal(&self, process: ProcessId) -> Option<&Wal> {
        let disk = self.processes.get(&process)?.start.disk;
        self.disks.get(&disk)?.content.data.as_ref()?.wal.as_ref()
    }

    pub(crate) fn wal_mut(&mut self, process: ProcessId) -> Option<&mut Wal> {
        let disk = self.processes.get(&process)?.start.disk;
        self.disks.get_mut(&disk)?.content.data.as_mut()?.wal.as_mut()
    }

    /// Whether a process can still write. One that cannot ends.
    pub(crate) fn can_write(&mut self, process: ProcessId) -> bool {
        let disk = self.processes.get(&process).map(|process| process.start.disk);
        let is_full = disk
            .and_then(|disk| self.disks.get(&disk))
            .is_none_or(|disk| disk.is_full);
        if is_full {
            self.exit(process, 2, "write-ahead log: no space left on device");
        }
        !is_full
    }

    /// Ends a process, whose clients lose their connections.
    pub(crate) fn exit(&mut self, process: ProcessId, code: i32, why: &str) {
        let Some(ended) = self.processes.remove(&process) else {
            return;
        };
        self.hosts.retain(|_, at| *at != process);
        self.timeline
            .note(&ended.start.name, format_args!("etcd ends with {code}: {why}"));
        let exit = Exit {
            code,
            why: why.to_owned(),
            at: self.now,
        };
        self.exits.insert(process, exit);
        self.reshaped();
        self.refresh();
    }

    pub(crate) fn note(&self, process: ProcessId, what: impl std::fmt::Display) {
        if let Some(process) = self.processes.get(&process) {
            self.timeline.note(&process.start.name, what);
        }
    }

    pub(crate) fn find(&mut self, kind: FindingKind, what: String) {
        self.timeline.note("FOUND", &what);
        self.findings.push(Finding {
            at: self.now,
            kind,
            what,
        });
    }

    pub(crate) fn changed(&mut self) {
        self.version += 1;
    }

    /// Something changed that can make a member ready or not.
    pub(crate) fn reshaped(&mut self) {
        self.version += 1;
        self.shape += 1;
    }

    /// The processes, oldest first. A copy, for what changes them.
    pub(crate) fn ids(&self) -> Arc<[ProcessId]> {
        self.processes.keys().copied().collect()
    }
}
