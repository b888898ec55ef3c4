//! Snapshots, and what etcd's own tool makes of one: the first data of a new cluster, on the disk of each of its members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::id::{ClusterId, Revision};
use etcd_operator_etcd::status::Alarm;

use super::Etcds;
use super::applied::Written;
use super::boot::founded;
use super::disk::DataDir;
use super::log::{Change, Entry};
use super::process::ProcessId;
use crate::chance::mixed;

/// What a member had applied at one moment: keys and alarms, but for who the members were. Clones share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(Arc<Held>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    writes: Vec<Written>,
    alarms: BTreeSet<Alarm>,
    /// By how much its revisions had been raised before.
    raised: i64,
}

impl Snapshot {
    pub(crate) fn writes(&self) -> &[Written] {
        &self.0.writes
    }

    pub(crate) fn alarms(&self) -> impl Iterator<Item = Alarm> + '_ {
        self.0.alarms.iter().copied()
    }

    pub(crate) fn raised(&self) -> i64 {
        self.0.raised
    }

    /// The revision it is of.
    pub fn revision(&self) -> Revision {
        Revision(i64::try_from(self.0.writes.len()).unwrap_or(i64::MAX / 2) + 1 + self.0.raised)
    }

    /// The newest value of each key.
    pub fn keys(&self) -> BTreeMap<String, String> {
        let written = self.0.writes.iter();
        written
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    /// What tells it from others, however it is raised.
    fn mark(&self, raised: u64) -> u64 {
        let texts = self
            .0
            .writes
            .iter()
            .flat_map(|(key, value)| key.bytes().chain(value.bytes()));
        mixed(texts.fold(raised, |sum, byte| mixed(sum ^ u64::from(byte))))
    }
}

impl Etcds {
    /// A snapshot of what a process serves; none if it is not up.
    pub fn backup(&self, process: ProcessId) -> Option<Snapshot> {
        self.with(|world| {
            let applied = &world.running(process)?.applied;
            Some(Snapshot(Arc::new(Held {
                writes: applied.writes.clone(),
                alarms: applied.alarms.clone(),
                raised: applied.raised,
            })))
        })
    }

    /// The cluster of which a process is a member, once it is one.
    pub fn cluster_of(&self, process: ProcessId) -> Option<ClusterId> {
        self.with(|world| world.running(process).map(|running| running.cluster))
    }
}

/// What etcd's tool makes of a snapshot for one of the first members.
pub(crate) fn restored(
    snapshot: &Snapshot,
    name: &str,
    first: &First,
    raised: u64,
) -> Result<DataDir, String> {
    let url = first.members.iter().find(|(known, _)| known == name);
    let (_, url) = url.ok_or_else(|| format!("{name} is not in the initial cluster"))?;
    let entry = Entry {
        id: snapshot.mark(raised),
        term: 1,
        change: Change::Restored(snapshot.clone(), raised),
    };
    let wal = founded(name, url, first, Some(entry)).map_err(|(_, why)| why)?;
    Ok(DataDir {
        wal: Some(wal),
        ..DataDir::default()
    })
}
