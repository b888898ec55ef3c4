//! Versions: when a leader changes the cluster version, and which versions run on what the members have agreed on.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_etcd::version::{Minor, Version};

use super::applied::Applied;
use super::boot::Failure;
use super::disk::Wal;
use super::log::Change;
use super::process::ProcessId;
use super::world::{Event, World};

/// How often a leader compares the versions of the members.
const MONITOR_INTERVAL: Duration = Duration::from_secs(4);

/// After how many entries of its log a member takes a snapshot of it.
const SNAPSHOT_COUNT: u64 = 10_000;

/// The cluster version until the leader has heard from all members.
pub(super) fn oldest() -> Version {
    Version {
        major: 3,
        minor: 0,
        patch: 0,
        pre: String::new(),
    }
}

/// The cluster version of members that all run this version.
pub(super) fn cluster_version(version: &Version) -> Version {
    Version {
        patch: 0,
        pre: String::new(),
        ..version.clone()
    }
}

/// The version of a member's files, which follows the cluster version. etcd 3.6 and later start with that of 3.5.
pub(super) fn storage_version(applied: &Applied) -> Version {
    let agreed = applied.cluster_version.clone().unwrap_or_else(oldest);
    agreed.max(Version::of(Minor::V3_5, 0))
}

/// Whether a version runs on a log whose members have agreed on this cluster version.
pub(super) fn check_runs_on(version: &Version, agreed: &Version) -> Result<(), Failure> {
    let own = cluster_version(version);
    if own < *agreed {
        let why = if own >= Version::of(Minor::V3_6, 0) {
            format!("version \"{agreed}\" is not supported")
        } else {
            format!("invalid downgrade; server version {version} is lower than cluster version {agreed}")
        };
        return Err((1, why));
    }
    // It panics at the first entry whose format it no longer reads.
    let is_decided = *agreed > oldest();
    let is_unreadable = match Minor::of(version).filter(|_| is_decided) {
        Some(Minor::V3_6) => *agreed < Version::of(Minor::V3_5, 0),
        Some(Minor::V3_7) => *agreed < Version::of(Minor::V3_6, 0),
        _ => false,
    };
    if is_unreadable {
        return Err((2, "panic: execute job failed".to_owned()));
    }
    Ok(())
}

/// Whether a version reads every entry that a member has had since the last snapshot of its log. 3.7 does not read what 3.5 and
/// older wrote.
pub(super) fn check_replays(version: &Version, wal: &Wal) -> Result<(), Failure> {
    let entries = wal.log.after(wal.snapshot, wal.commit);
    let is_old = |version: &Version| *version < Version::of(Minor::V3_6, 0);
    let mut old = entries
        .iter()
        .filter(|entry| matches!(&entry.change, Change::Attributes { version, .. } if is_old(version)));
    if Minor::of(version) == Some(Minor::V3_7) && old.next().is_some() {
        return Err((2, "panic: unmarshal should never fail".to_owned()));
    }
    Ok(())
}

/// Whether a version reads files of this one. Those of 3.5 and older have none.
pub(super) fn check_reads(version: &Version, stored: Option<&Version>) -> Result<(), Failure> {
    match stored {
        Some(stored) if *stored > Version::of(Minor::V3_5, 0) && cluster_version(version) < *stored => {
            Err((1, format!("version \"{stored}\" is not supported")))
        }
        _ => Ok(()),
    }
}

/// Whether a version joins members that have agreed on this. None does once a downgrade has lowered the cluster version.
pub(super) fn check_joins(version: &Version, applied: &Applied) -> Result<(), Failure> {
    match &applied.cluster_version {
        Some(agreed) if cluster_version(version) >= *agreed && applied.downgrade.as_ref() != Some(agreed) => {
            Ok(())
        }
        _ => Err((1, "incompatible with current running cluster".to_owned())),
    }
}

impl World {
    /// Ends a process that cannot read what it has applied: it joined, or its program was replaced.
    pub(super) fn check_applied(&mut self, process: ProcessId) {
        let Some(agreed) = self
            .running(process)
            .and_then(|running| running.applied.cluster_version.clone())
        else {
            return;
        };
        let version = self.processes[&process].start.version.clone();
        if let Err((code, why)) = check_runs_on(&version, &agreed) {
            self.exit(process, code, &why);
        }
    }

    /// A member that has applied so many entries since its last snapshot of the log takes another one.
    pub(super) fn take_log_snapshot(&mut self, process: ProcessId, applied: u64) {
        if let Some(wal) = self.wal_mut(process)
            && applied > wal.snapshot + SNAPSHOT_COUNT
        {
            wal.snapshot = applied;
        }
    }

    /// Lets a leader compare the versions of the members when its monitor does so next, if that can change the cluster version.
    pub(super) fn watch_versions(&mut self, process: ProcessId) {
        if self.can_change_version(process) {
            let wait = self.chance.between(Duration::ZERO, MONITOR_INTERVAL);
            self.monitor_after(process, wait);
        }
    }

    /// A leader compares them at once when it has agreed on the first entry of its term.
    pub(super) fn compare_versions_in(&mut self, process: ProcessId, term: u64) {
        let lead = self.running(process).and_then(|running| running.lead());
        if lead.is_some_and(|lead| lead.term == term) {
            self.compare_versions(process);
        }
    }

    fn monitor_after(&mut self, process: ProcessId, wait: Duration) {
        let Some(lead) = self.running_mut(process).and_then(|running| running.lead_mut()) else {
            return;
        };
        if !lead.is_monitoring {
            lead.is_monitoring = true;
            let term = lead.term;
            self.after(wait, Event::Monitor(process, term));
        }
    }

    /// The monitor of a leader has waited for its interval.
    pub(crate) fn monitor_fires(&mut self, process: ProcessId, term: u64) {
        let running = self.running_mut(process);
        let Some(lead) = running.and_then(|running| running.lead_mut().filter(|lead| lead.term == term))
        else {
            return;
        };
        lead.is_monitoring = false;
        self.compare_versions(process);
    }

    fn compare_versions(&mut self, process: ProcessId) {
        if !self.can_change_version(process) {
            return;
        }
        let Some(applied) = self.running(process).map(|running| &running.applied) else {
            return;
        };
        let (agreed, downgrade) = (applied.cluster_version.clone(), applied.downgrade.clone());
        let answering = self.answering_versions(process);
        let lowest = answering.as_ref().and_then(BTreeSet::first).cloned();
        let change = match (agreed, lowest, downgrade) {
            (None, lowest, _) => Some(Change::ClusterVersion(lowest.unwrap_or_else(oldest))),
            (Some(_), None, _) => None,
            (Some(agreed), Some(_), Some(target)) if agreed > target => Some(Change::ClusterVersion(target)),
            (Some(_), Some(_), Some(target)) => {
                let is_done = answering.is_some_and(|versions| versions.iter().all(|own| *own == target));
                is_done.then_some(Change::Downgrade(None))
            }
            (Some(agreed), Some(lowest), None) => (lowest > agreed).then_some(Change::ClusterVersion(lowest)),
        };
        if let Some(change) = change {
            let id = self.fresh();
            self.propose(process, id, change);
        }
        self.monitor_after(process, MONITOR_INTERVAL);
    }

    /// Whether a leader that hears from all members can change the cluster version or end a downgrade, by what they said that
    /// they run. Without that it need not ask.
    fn can_change_version(&self, process: ProcessId) -> bool {
        let Some(running) = self.running(process).filter(|running| running.lead().is_some()) else {
            return false;
        };
        let applied = &running.applied;
        let Some(agreed) = &applied.cluster_version else {
            return true;
        };
        let mut versions = applied.versions.values().map(cluster_version);
        match &applied.downgrade {
            Some(target) => agreed > target || versions.all(|version| version == *target),
            None => versions.all(|version| version > *agreed),
        }
    }

    /// The versions that members run, if all of them answer the leader.
    fn answering_versions(&self, leader: ProcessId) -> Option<BTreeSet<Version>> {
        let running = self.running(leader)?;
        let versions = running.applied.members.keys().map(|member| {
            let process = if *member == running.id {
                leader
            } else {
                self.peer(leader, *member)
                    .filter(|peer| self.connects(leader, *peer))?
            };
            Some(cluster_version(&self.processes.get(&process)?.start.version))
        });
        versions.collect()
    }
}
