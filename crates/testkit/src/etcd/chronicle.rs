//! What a cluster has agreed on, as nobody inside it can know: the truth by which members, the operator and a client
//! are judged. It is only ever written here, never read by a member.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd_operator_etcd::id::{ClusterId, MemberId};

use super::applied::Applied;
use super::log::{Entry, EntryId};
use super::process::{At, ProcessId};
use super::world::{FindingKind, World};

/// The truth about one cluster.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    /// Term and identity of each agreed entry, in order.
    entries: Vec<(u64, EntryId)>,
    /// What the agreed entries amount to.
    pub(crate) applied: Applied,
    /// Up to where each member has acknowledged what was agreed.
    holds: BTreeMap<MemberId, u64>,
    /// Members that do not do their part, and since when.
    pub(crate) ill: BTreeMap<MemberId, At>,
    /// Two members have agreed to different things.
    is_forked: bool,
}

/// What an entry is in comparison with the truth.
enum Agreement {
    Old,
    New,
    Other,
}

impl Chronicle {
    fn agree(&mut self, index: u64, entry: &Entry) -> Agreement {
        let place = usize::try_from(index - 1).expect("a log fits into memory");
        match self.entries.get(place) {
            Some(known) if known.1 == entry.id => Agreement::Old,
            Some(_) => Agreement::Other,
            None => {
                self.entries.push((entry.term, entry.id));
                // What it came to is told to whoever asked by the member it asked.
                let _ = self.applied.apply(entry);
                Agreement::New
            }
        }
    }

    /// Whether a majority ever agreed on anything. The entries that all begin with are of the first term.
    pub(crate) fn has_decided(&self) -> bool {
        self.entries.last().is_some_and(|(term, _)| *term > 1)
    }

    /// Whether a member has acknowledged all that was agreed on.
    pub(crate) fn has_all(&self, member: MemberId) -> bool {
        let held = self.holds.get(&member).copied().unwrap_or(0);
        usize::try_from(held).is_ok_and(|held| held >= self.entries.len())
    }

    /// Whether a member has acknowledged anything.
    pub(crate) fn has_run(&self, member: MemberId) -> bool {
        self.holds.contains_key(&member)
    }

    fn entry(&self, index: u64) -> Option<(u64, EntryId)> {
        let place = usize::try_from(index.checked_sub(1)?).ok()?;
        self.entries.get(place).copied()
    }
}

impl World {
    /// A member takes an entry for agreed.
    pub(crate) fn witness(&mut self, process: ProcessId, cluster: ClusterId, index: u64, entry: &Entry) {
        let chronicle = self.chronicles.entry(cluster).or_default();
        if !matches!(chronicle.agree(index, entry), Agreement::Other) || chronicle.is_forked {
            return;
        }
        chronicle.is_forked = true;
        let name = self
            .processes
            .get(&process)
            .map_or("", |process| process.start.name.as_str());
        let what =
            format!("{name} takes another entry for agreed at {index} of {cluster} than was agreed there");
        self.find(FindingKind::Forked, what);
    }

    /// Everything a member has written down as agreed.
    pub(crate) fn witness_all(&mut self, process: ProcessId) {
        let Some(wal) = self.wal(process) else { return };
        let cluster = wal.cluster;
        let entries: Vec<Arc<Entry>> = wal.log.after(0, wal.commit).to_vec();
        self.chronicles.entry(cluster).or_default();
        for (index, entry) in (1..).zip(entries) {
            self.witness(process, cluster, index, &entry);
        }
    }

    /// A member has acknowledged the log up to an index that is agreed.
    pub(crate) fn acknowledged(&mut self, cluster: ClusterId, member: MemberId, index: u64) {
        let held = self
            .chronicles
            .entry(cluster)
            .or_default()
            .holds
            .entry(member)
            .or_default();
        *held = (*held).max(index);
    }

    /// How many entries a member has acknowledged and no longer has; none if it has all of them.
    pub(crate) fn forgotten(&self, process: ProcessId) -> Option<u64> {
        let wal = self.wal(process)?;
        let chronicle = self.chronicles.get(&wal.cluster)?;
        let held = *chronicle.holds.get(&wal.member)?;
        let has = |index: u64| {
            let known = chronicle.entry(index).map(|(_, id)| id);
            index == 0 || (known.is_some() && wal.log.get(index).map(|entry| entry.id) == known)
        };
        if has(held) {
            return None;
        }
        let kept = (0..held).rev().find(|index| has(*index)).unwrap_or(0);
        Some(held - kept)
    }
}
