//! The snapshot of its raft log that every member takes before etcd 3.6 and 3.7.
//!
//! A member starts from the last snapshot of its log and the entries after it. etcd 3.7 panics on entries that 3.5 and older wrote,
//! and 3.6 on those of API v2, which 3.4 and older wrote. A member takes a snapshot only after a number of entries, which a quiet
//! cluster reaches late. So entries that change nothing are written until every member must have taken one, counted from where the
//! log was when no member of the old version was left. Nobody restarts for that. Pure.

use etcd_operator_etcd::id::RaftIndex;
use etcd_operator_etcd::version::Minor;

use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;

/// After how many entries 3.6 takes a snapshot where no flag says so. It keeps fewer than these in memory for members that lag behind
/// or join.
const DEFAULT_SNAPSHOT_COUNT: u64 = 10_000;

/// A snapshot of the log that some member may not have taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSnapshot {
    /// A member that has applied the log up to here has taken it.
    pub until: RaftIndex,
    /// How many entries the log lacks until there.
    pub missing: u64,
}

/// The snapshot that the wanted minor version waits for, asked where all members are healthy on the one before it.
pub fn pending(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<LogSnapshot> {
    let observed = view.observed;
    let count = entries_between_snapshots(view)?;
    let statuses = || observed.members.values().filter_map(|member| member.status());
    let last = statuses()
        .map(|status| status.raft_index.0)
        .max()
        .unwrap_or_default();
    let applied = statuses()
        .map(|status| status.applied.map_or(0, |index| index.0))
        .min();
    let recorded = persisted.rollout.as_ref().and_then(|rollout| rollout.log_index);
    let until = recorded.unwrap_or(RaftIndex(last.saturating_add(count).saturating_add(1)));
    (applied < Some(until.0)).then(|| LogSnapshot {
        until,
        missing: until.0.saturating_sub(last),
    })
}

/// After how many entries each member has surely taken a snapshot; none if the wanted minor version needs none.
fn entries_between_snapshots(view: &ClusterView<'_>) -> Option<u64> {
    let set = view.observed.set.as_ref();
    let snapshot_count = set.and_then(|set| set.snapshot_count);
    match Minor::of(&view.observed.wanted.version)? {
        Minor::V3_7 => Some(snapshot_count.unwrap_or_default().max(DEFAULT_SNAPSHOT_COUNT)),
        // Where no flag says so, 3.5 takes one after 100,000. Members that come from 3.4 have the flag.
        Minor::V3_6 => snapshot_count,
        _ => None,
    }
}
