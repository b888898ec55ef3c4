//! When a Job has ended although the node of its last pod is lost.
//!
//! From Kubernetes 1.31 on, a Job that fails has the condition `FailureTarget` first, and `Failed` only when its last pod is
//! gone. A lost node never reports that. So a deleted pod counts as lost a minute after its grace period has ended.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

/// How long after its grace period a deleted pod may still report its end.
pub const END_ALLOWANCE: SignedDuration = SignedDuration::from_mins(1);

/// Whether a pod has not ended: its phase is neither `Succeeded` nor `Failed`.
pub fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether an active pod with this deletion timestamp is lost. The timestamp is when its grace period ends.
pub fn is_lost(deleted_at: Option<Timestamp>, now: Timestamp) -> bool {
    deleted_at.is_some_and(|end| now.duration_since(end) >= END_ALLOWANCE)
}

/// Whether a Job has active pods, and all of them are lost. `active_pods` holds their deletion timestamps.
pub fn has_only_lost_pods(active_pods: impl IntoIterator<Item = Option<Timestamp>>, now: Timestamp) -> bool {
    let mut active_pods = active_pods.into_iter().peekable();
    active_pods.peek().is_some() && active_pods.all(|deleted_at| is_lost(deleted_at, now))
}

/// The condition that ended a Job: `terminal`, which is `Complete` or `Failed`; else `FailureTarget`, if only lost pods keep
/// Kubernetes from setting `Failed`.
pub fn ending_condition<C>(
    terminal: Option<C>,
    failure_target: Option<C>,
    active_pods: impl IntoIterator<Item = Option<Timestamp>>,
    now: Timestamp,
) -> Option<C> {
    terminal.or_else(|| failure_target.filter(|_| has_only_lost_pods(active_pods, now)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_job_that_fails_has_ended_once_all_its_active_pods_are_lost() {
        let (lost, ends_later) = (Some(at(100)), Some(at(400)));
        for (active_pods, now, has_ended) in [
            (vec![lost], 159, false),
            (vec![lost], 160, true),
            (vec![lost, lost], 160, true),
            // Kubernetes reports the end itself.
            (vec![], 9_999, false),
            // The second pod may still end.
            (vec![lost, ends_later], 160, false),
            (vec![lost, ends_later], 460, true),
            (vec![lost, None], 9_999, false),
        ] {
            let end = ending_condition(None, Some("FailureTarget"), active_pods.clone(), at(now));
            assert_eq!(end.is_some(), has_ended, "{active_pods:?} at {now}");
        }
    }

    #[test]
    fn a_terminal_condition_counts_whatever_became_of_the_pods() {
        for active_pods in [vec![], vec![None], vec![Some(at(1))]] {
            let end = ending_condition(
                Some("Failed"),
                Some("FailureTarget"),
                active_pods.clone(),
                at(100),
            );
            assert_eq!(end, Some("Failed"));
            assert_eq!(ending_condition(None::<&str>, None, active_pods, at(100)), None);
        }
    }

    #[test]
    fn a_pod_is_active_until_it_reports_a_terminal_phase() {
        for (status, wanted) in [
            (json!(null), true),
            (json!({"phase": "Pending"}), true),
            (json!({"phase": "Running"}), true),
            (json!({"phase": "Succeeded"}), false),
            (json!({"phase": "Failed"}), false),
        ] {
            let pod = serde_json::from_value(json!({"metadata": {}, "status": status})).expect("a pod");
            assert_eq!(is_active(&pod), wanted, "{status}");
        }
    }
}
