//! Whether the operator is starting members after a sleep. Until they have had time to answer, their silence is no lost
//! quorum. Since when it does so stands in the status, so that another process of the operator knows it as well.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use jiff::{SignedDuration, Timestamp};

use crate::observed_state::Ordinal;
use crate::persisted_state::Restore;
use crate::plan::{ClusterView, Plan, Reason};

/// The word for members that are started after a sleep.
pub const WAKING: &str = "Waking";

/// How long members have to answer after a sleep.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// Members that start after hibernation and still have time to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HibernationExit {
    /// Since when.
    since: Timestamp,
}

impl HibernationExit {
    /// Detects that members start after hibernation, began to less than two minutes ago, and have not returned the
    /// membership yet. `None` otherwise, and during a restore.
    pub fn detect(view: &ClusterView<'_>, plan: &Plan, before: &[Condition]) -> Option<Self> {
        let is_restored = plan.persisted.restore.as_ref().is_some_and(Restore::is_active);
        let is_not_running = plan.explanation.reason == Reason::Hibernated || !plan.persisted.has_formed();
        if is_not_running || is_restored || view.known().is_some() {
            return None;
        }
        let now = view.observed.now;
        let since =
            recorded_start(before).or_else(|| is_just_beginning(view, plan, before).then_some(now))?;
        (now.duration_since(since).abs() < PATIENCE).then_some(Self { since })
    }

    /// Whether the member with this ordinal may still be silent. One whose pod existed two minutes before the start has
    /// had its time.
    pub fn excuses(&self, view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
        let Some(pod) = &view.observed.member(ordinal).pod else {
            return true;
        };
        let is_older = |created: Timestamp| self.since.duration_since(created) >= PATIENCE;
        pod.deleting.is_some() || !pod.created.is_some_and(is_older)
    }
}

/// Since when the status says that members start. Its text stays the same as long as they do, and so does its time.
fn recorded_start(before: &[Condition]) -> Option<Timestamp> {
    let condition = condition::find(before, ConditionType::QuorumLost)?;
    let is_recorded = condition.reason.as_deref() == Some(WAKING);
    condition
        .last_update_time
        .as_ref()
        .filter(|_| is_recorded)?
        .parse()
        .ok()
}

/// Whether hibernation ends now. A cluster that was paused while it was hibernated has not started before it is
/// resumed.
fn is_just_beginning(view: &ClusterView<'_>, plan: &Plan, before: &[Condition]) -> bool {
    let progress = condition::find(before, ConditionType::Progressing);
    let was = |reason: Reason| progress.is_some_and(|one| one.reason.as_deref() == Some(reason.as_str()));
    let has_no_pods = view.observed.set.as_ref().is_some_and(|set| set.replicas == 0);
    !matches!(plan.explanation.reason, Reason::Paused | Reason::Invalid)
        && (was(Reason::Hibernated) || (was(Reason::Paused) && has_no_pods))
}
