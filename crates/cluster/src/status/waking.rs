//! Whether the operator is starting members after a sleep. Until they have had time to answer, their silence is no lost
//! quorum. Since when it does so stands in the status, so that another process of the operator knows it as well.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use jiff::{SignedDuration, Timestamp};

use super::findings::WAKING;
use crate::memory::Restore;
use crate::plan::{Plan, Reason, Situation};
use crate::world::Ordinal;

/// How long members have to answer after a sleep.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// Members that are started after a sleep, and have time to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waking {
    /// Since when.
    since: Timestamp,
}

impl Waking {
    /// Whether members are started after a sleep, and nobody has told yet who they are.
    pub fn of(situation: &Situation<'_>, plan: &Plan, before: &[Condition]) -> Option<Self> {
        let is_restored = plan.memory.restore.as_ref().is_some_and(Restore::is_active);
        let sleeps = plan.why.reason == Reason::Hibernated || !plan.memory.has_formed();
        if sleeps || is_restored || situation.known().is_some() {
            return None;
        }
        let now = situation.world.now;
        let since = noted(before).or_else(|| begins(situation, plan, before).then_some(now))?;
        (now.duration_since(since).abs() < PATIENCE).then_some(Self { since })
    }

    /// Whether the member at a place may still come: one whose pod was there long before the sleep ended has had its time.
    pub fn excuses(&self, situation: &Situation<'_>, place: Ordinal) -> bool {
        let Some(pod) = &situation.world.seen(place).pod else {
            return true;
        };
        let is_of_before = |created: Timestamp| self.since.duration_since(created) >= PATIENCE;
        pod.deleting.is_some() || !pod.created.is_some_and(is_of_before)
    }
}

/// Since when the status says that they are started. It says so in the same words for as long as it is so.
fn noted(before: &[Condition]) -> Option<Timestamp> {
    let told = condition::find(before, ConditionType::QuorumLost)?;
    let is_so = told.reason.as_deref() == Some(WAKING);
    told.last_update_time.as_ref().filter(|_| is_so)?.parse().ok()
}

/// Whether the sleep ends just now. Whoever was paused in it has not begun to wake up.
fn begins(situation: &Situation<'_>, plan: &Plan, before: &[Condition]) -> bool {
    let progress = condition::find(before, ConditionType::Progressing);
    let was = |reason: Reason| progress.is_some_and(|one| one.reason.as_deref() == Some(reason.as_str()));
    let has_no_pods = situation.world.set.as_ref().is_some_and(|set| set.replicas == 0);
    !matches!(plan.why.reason, Reason::Paused | Reason::Invalid)
        && (was(Reason::Hibernated) || (was(Reason::Paused) && has_no_pods))
}
