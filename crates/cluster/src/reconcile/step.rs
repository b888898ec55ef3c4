//! Taking the step of a plan that is written down, and telling what came of it.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::severity::Severity;
use etcd_operator_cluster_core::pending_operation::Operation;
use etcd_operator_cluster_core::plan::{Plan, Reason, Step};
use etcd_operator_cluster_core::status::StatusInputs;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;
use jiff::SignedDuration;
use tracing::{debug, info};

use super::{RETRY_SOON, Reconciler};
use crate::act::{self, Error, Outcome};
use crate::observe::Observation;

/// For how long an eviction may be refused before that is reported.
const EVICTION_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// The text of an Event, with why a member is replaced if one is.
fn with_cause(text: String, plan: &Plan) -> String {
    match plan.persisted.pending.as_ref().map(|pending| &pending.operation) {
        Some(Operation::Replace(replace)) => {
            format!("{}: {}.", text.trim_end_matches('.'), replace.cause)
        }
        _ => text,
    }
}

/// When a cluster is reconciled again after a plan without a step. Clusters of which no member can be reached are asked less and
/// less often.
fn requeue_without_step(reason: Reason, has_silent_member: bool, after: Duration) -> Wake {
    match reason {
        Reason::MembersUnreachable if !after.is_zero() => Wake::Unanswered,
        _ => wake(has_silent_member, after),
    }
}

/// Calls to silent members take their timeout, so that clusters with one keep no others waiting.
pub(super) fn wake(has_silent_member: bool, after: Duration) -> Wake {
    if has_silent_member {
        Wake::UnansweredAfter(after)
    } else {
        Wake::After(after)
    }
}

impl Reconciler {
    /// Takes the step of a plan, if it has one, and returns when to reconcile again. `stored` is the cluster with the
    /// plan in its status.
    pub(super) async fn take_step(
        &self,
        key: &ObjectKey,
        stored: &EtcdCluster,
        observation: &Observation,
        plan: &Plan,
        status_inputs: &StatusInputs<'_>,
    ) -> Result<Wake, Error> {
        let Some(step) = &plan.step else {
            return Ok(requeue_without_step(
                plan.explanation.reason,
                observation.observed.has_silent_member(),
                plan.requeue_after,
            ));
        };
        let observed = &observation.observed;
        let wake = |after| wake(observed.has_silent_member(), after);
        let taken = act::act(step, plan, observation, key, &self.deps).await;
        if let Err(Error::Api(error)) = &taken
            && error.is_refusal()
        {
            let status_inputs = StatusInputs {
                refused_step: Some(error.to_string()),
                ..status_inputs.clone()
            };
            self.write_status(stored, observed, plan, &status_inputs).await?;
            self.rollout_slots.release(key);
        }
        match taken? {
            Outcome::Done(text) => {
                let text = with_cause(text, plan);
                if matches!(step, Step::FencePods(_)) {
                    self.set_unfenced(key, BTreeSet::new());
                }
                self.publish_event(stored, step, text);
                Ok(wake(Duration::ZERO))
            }
            Outcome::Added(id, text) => {
                self.publish_event(stored, step, text);
                // Where it votes at once, nobody may be able to tell its ID before it has started.
                self.write_status(
                    stored,
                    observed,
                    &plan.clone().with_added_member(id),
                    status_inputs,
                )
                .await?;
                Ok(wake(Duration::ZERO))
            }
            Outcome::Stale(why) => {
                debug!(cluster = %key, %why, "looked at anew");
                Ok(wake(Duration::ZERO))
            }
            Outcome::EvictionRefused(why) => {
                let rollout = plan.persisted.rollout.as_ref();
                let is_overdue = rollout
                    .is_some_and(|rollout| !rollout.has_progressed_within(EVICTION_PATIENCE, observed.now));
                // Right after another member has come back the budget does not know it yet.
                if is_overdue {
                    self.rollout_slots.release(key);
                    let status_inputs = StatusInputs {
                        refused_step: Some(why.clone()),
                        ..status_inputs.clone()
                    };
                    self.write_status(stored, observed, plan, &status_inputs).await?;
                }
                debug!(cluster = %key, %why, "the API server evicts no pod now");
                Ok(wake(plan.requeue_after.max(RETRY_SOON)))
            }
            Outcome::Waits(why) => {
                debug!(cluster = %key, %why, "etcd lets the step wait");
                Ok(wake(plan.requeue_after.max(RETRY_SOON)))
            }
        }
    }

    fn publish_event(&self, cluster: &EtcdCluster, step: &Step, text: String) {
        info!(cluster = %ObjectKey::of(cluster), step = act::event_reason(step), "{text}");
        let (reason, severity) = (act::event_reason(step), Severity::Normal);
        self.deps
            .reporter
            .tell(cluster, severity, reason, "Reconcile", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_with_silent_members_keep_no_others_waiting() {
        let after = Duration::from_secs(5);
        let wake = requeue_without_step;
        assert_eq!(wake(Reason::MembersUnreachable, true, after), Wake::Unanswered);
        for reason in [Reason::QuorumLost, Reason::Waiting, Reason::Scaling] {
            assert_eq!(
                wake(reason, true, after),
                Wake::UnansweredAfter(after),
                "{reason:?}"
            );
            assert_eq!(wake(reason, false, after), Wake::After(after), "{reason:?}");
        }
        let now = Duration::ZERO;
        // What was decided is stored, and is done next.
        assert_eq!(
            wake(Reason::MembersUnreachable, true, now),
            Wake::UnansweredAfter(now)
        );
        assert_eq!(wake(Reason::Waiting, false, now), Wake::After(now));
    }
}
