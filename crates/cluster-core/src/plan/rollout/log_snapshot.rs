//! The snapshot of its raft log that every member takes before etcd 3.6 and 3.7.
//!
//! A member starts from the last snapshot of its log and the entries after it. etcd 3.7 panics on entries that 3.5 and older wrote,
//! and 3.6 on those of API v2, which 3.4 and older wrote. A member takes a snapshot only after a number of entries, which a quiet
//! cluster reaches late. So entries that change nothing are written until every member must have taken one, counted from where the
//! log was when no member of the old version was left. Nobody restarts for that. Pure.

use etcd_operator_etcd_types::id::RaftIndex;
use etcd_operator_etcd_types::version::Minor;

use super::versions;
use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;

/// After how many entries 3.6 takes a snapshot where no flag says so. It keeps fewer than these in memory for members that lag behind
/// or join.
const DEFAULT_3_6: u64 = 10_000;
/// The same of 3.5.
const DEFAULT_3_5: u64 = 100_000;

/// A snapshot of the log that some member may not have taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSnapshot {
    /// A member that has applied the log up to here has taken it.
    pub until: RaftIndex,
    /// How many entries the log lacks until there.
    pub missing: u64,
}

/// The snapshot that the wanted minor version waits for, asked where all members are healthy on the one before it.
/// `None` if it needs none, or all members have taken it.
pub fn pending(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<LogSnapshot> {
    let observed = view.observed;
    if !versions::is_next_minor(view) {
        return None;
    }
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
    let needed = RaftIndex(last.saturating_add(count).saturating_add(1));
    // After a restore the log begins anew.
    let until = recorded.map_or(needed, |recorded| recorded.min(needed));
    (applied < Some(until.0)).then(|| LogSnapshot {
        until,
        missing: until.0.saturating_sub(last),
    })
}

/// After how many entries each member has surely taken a snapshot; none if the wanted minor version needs none. What the pods run with
/// counts, and not the template alone.
fn entries_between_snapshots(view: &ClusterView<'_>) -> Option<u64> {
    let of_template = view.observed.set.as_ref().and_then(|set| set.snapshot_count);
    let pods = view
        .observed
        .members
        .values()
        .filter_map(|member| member.pod.as_ref());
    let counts = pods.map(|pod| pod.snapshot_count).chain([of_template]);
    let largest = |default: u64| counts.map(|count| count.unwrap_or(default)).max();
    match Minor::of(&view.observed.wanted.version)? {
        Minor::V3_7 => largest(DEFAULT_3_6).max(Some(DEFAULT_3_6)),
        // Members that come from 3.4 have the flag, and those of a user who follows the page about upgrades.
        Minor::V3_6 if of_template.is_some() => largest(DEFAULT_3_5),
        _ => None,
    }
}
