//! Which rollouts keep other clusters waiting: as many as `--max-concurrent-rollouts` says.

use jiff::SignedDuration;

use super::pending_cause::PendingCause;
use super::restarting::RECONNECTED_AFTER;
use super::state::RolloutState;
use crate::blocker::Blocker;
use crate::observed_state::{ImageCheck, ObservedCluster};
use crate::persisted_state::{PersistedState, Rollout};

/// How long a cluster keeps others waiting while its user watches the newer minor version.
const WATCHED_AT_MOST: SignedDuration = SignedDuration::from_mins(10);
/// How soon etcd has lowered the versions of a cluster whose downgrade is enabled.
const LOWERED_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// After what time the copies show that the pod of a restarted member goes.
const PODS_SEEN_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Whether a rollout does something now. One that waits for its own members, its budget or its user keeps no other waiting; one
/// that waits for its backup does, as that is old by the time a later turn comes, and so does one whose raft log is written to, or
/// whose new image is tried, as not all clusters' are at once. `acts` says whether the pod template changes or a step is taken.
pub fn is_under_way(
    observed: &ObservedCluster,
    persisted: &PersistedState,
    state: &RolloutState,
    acts: bool,
) -> bool {
    let rollout = persisted.rollout.as_ref();
    match state {
        RolloutState::Pending(
            PendingCause::Backup { .. }
            | PendingCause::LogSnapshot(_)
            | PendingCause::ImageCheck { waits: None, .. },
        ) => true,
        // Else a bad image that was corrected would seldom have a turn for as long as its Job takes.
        RolloutState::Blocked(Blocker::ImageNotUsable { .. }) => {
            observed.image_check == ImageCheck::Running { waits: None }
        }
        RolloutState::Pending(
            PendingCause::LowerClusterVersion | PendingCause::LowerStorageVersion { .. },
        ) => rollout.is_some_and(|rollout| rollout.has_progressed_within(LOWERED_WITHIN, observed.now)),
        RolloutState::RollingOut => acts || rollout.is_some_and(|rollout| is_restarting(observed, rollout)),
        _ => false,
    }
}

/// Whether a member restarts. Between two members this lasts until clients have returned, or the user has watched a newer minor
/// version for long enough.
fn is_restarting(observed: &ObservedCluster, rollout: &Rollout) -> bool {
    let Some(current) = &rollout.current else {
        let watched = SignedDuration::try_from(observed.desired.updates.min_ready);
        let watched = watched.ok().filter(|_| rollout.reversible == Some(true));
        let watched = watched.unwrap_or_default().min(WATCHED_AT_MOST);
        let watched = watched.saturating_add(RECONNECTED_AFTER);
        return rollout.has_progressed_within(watched, observed.now);
    };
    let pod = observed.member(current.ordinal).pod.as_ref();
    // The copies may not show yet that its pod goes, while its etcd does not answer any more.
    let has_just_begun = rollout.has_progressed_within(PODS_SEEN_AFTER, observed.now);
    has_just_begun || pod.is_none_or(|pod| pod.uid != current.pod || pod.deleting.is_some())
}
