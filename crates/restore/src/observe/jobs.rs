//! Observes a Job of a restore from its status and its pods.

use std::time::Duration;

use etcd_operator_api::contract::{self, JobResult};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::unscheduled::unscheduled;
use etcd_operator_runtime::job_end::{ending_condition, is_active};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod};
use kube::ResourceExt as _;

use super::MAX_MESSAGE_CHARS;
use crate::build::{CONTAINER, TOOL};
use crate::observed_state::{JobEnd, ObservedJob};

/// How long a Job may have no pod before that is reported.
const POD_CREATION_TIMEOUT: Duration = Duration::from_secs(20);

/// The observed state of a Job; `pods` may contain pods of other Jobs.
pub fn observe_job<'a>(job: &Job, pods: impl Iterator<Item = &'a Pod>, now: Timestamp) -> ObservedJob {
    let uid = job.uid().unwrap_or_default();
    let own: Vec<_> = pods
        .filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == uid))
        .collect();
    let conditions = job.status.iter().flat_map(|status| &status.conditions).flatten();
    let find = |types: &[&str]| {
        let mut holding = conditions.clone().filter(|condition| condition.status == "True");
        holding.find(|condition| types.contains(&condition.type_.as_str()))
    };
    let active_pods = own.iter().filter(|pod| is_active(pod));
    let active_pods = active_pods.map(|pod| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0));
    // What a lost pod may still do is harmless: the Jobs only read, except for the safety backup, which replaces no other
    // backup.
    let end = ending_condition(
        find(&["Complete", "Failed"]),
        find(&["FailureTarget"]),
        active_pods,
        now,
    );
    let tools: Vec<_> = own
        .iter()
        .filter_map(|pod| Some((*pod, tool_state(pod)?)))
        .collect();
    let states: Vec<_> = own
        .into_iter()
        .map(|pod| {
            let containers = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            let container = containers
                .into_iter()
                .find(|container| container.name == CONTAINER);
            (pod, container.and_then(|container| container.state.as_ref()))
        })
        .collect();
    let results = states.iter().filter_map(|(_, state)| job_result((*state)?));
    ObservedJob {
        name: job.name_any(),
        is_deleting: job.metadata.deletion_timestamp.is_some(),
        end: end.map(|condition| JobEnd {
            is_complete: condition.type_ == "Complete",
            at: condition
                .last_transition_time
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            message: bounded(
                condition.message.as_deref().unwrap_or_default(),
                MAX_MESSAGE_CHARS,
            ),
        }),
        tool_error: tools
            .iter()
            .find_map(|(_, state)| tool_start_error(state.terminated.as_ref()?)),
        pending_reason: tools
            .iter()
            .find_map(|(pod, state)| {
                waiting_reason(pod, Some(*state).filter(|state| state.waiting.is_some()))
            })
            .or_else(|| states.iter().find_map(|(pod, state)| waiting_reason(pod, *state)))
            .or_else(|| missing_pod_reason(job, now).filter(|_| states.is_empty())),
        result: results.max_by_key(|(time, _)| *time).map(|(_, result)| result),
        uid,
    }
}

/// Why a Job has no pod, once the Job controller should have created one. Only Events of the Job contain the reason, and
/// the operator may not read Events.
fn missing_pod_reason(job: &Job, now: Timestamp) -> Option<String> {
    let made = job.metadata.creation_timestamp.as_ref()?.0;
    let is_overdue = made.checked_add(POD_CREATION_TIMEOUT).is_ok_and(|due| now > due);
    is_overdue.then(|| {
        format!(
            "the Job has no pod; see kubectl events --for job/{} for the reason, for example a ResourceQuota or LimitRange",
            job.name_any()
        )
    })
}

/// The state of the init container that runs etcd's restore tool.
fn tool_state(pod: &Pod) -> Option<&ContainerState> {
    let containers = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    let found = containers.iter().find(|container| container.name == TOOL)?;
    found.state.as_ref()
}

/// Why the tool did not start, if its exit code is 127 or 128; `None` for other failures, such as an eviction.
fn tool_start_error(end: &ContainerStateTerminated) -> Option<String> {
    let words = || {
        let reason = end.reason.as_deref().unwrap_or("Error");
        let message = end.message.as_deref().unwrap_or_default();
        bounded(
            format!("{reason} (exit code {}) {message}", end.exit_code).trim(),
            MAX_MESSAGE_CHARS,
        )
    };
    // Other exit codes, such as after an eviction, say nothing about the image.
    [127, 128].contains(&end.exit_code).then(words)
}

/// The result in the termination message of a container, or how the container died, with the time.
fn job_result(state: &ContainerState) -> Option<(Timestamp, Result<JobResult, String>)> {
    let end = state.terminated.as_ref()?;
    let time = end
        .finished_at
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let text = end.message.as_deref().unwrap_or_default();
    let result = contract::read::<JobResult>(text.as_bytes()).map_err(|_| {
        let reason = end.reason.as_deref().unwrap_or("Error");
        format!("its container ended with {reason} (exit code {})", end.exit_code)
    });
    Some((time, result))
}

/// Why a container or its pod does not start; `None` while the container is merely being created.
fn waiting_reason(pod: &Pod, state: Option<&ContainerState>) -> Option<String> {
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let soon = ["ContainerCreating", "PodInitializing"];
    let waiting = waiting.filter(|waiting| {
        !waiting
            .reason
            .as_deref()
            .is_some_and(|reason| soon.contains(&reason))
    });
    if let Some(waiting) = waiting {
        let words: Vec<&str> = [waiting.reason.as_deref(), waiting.message.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        return (!words.is_empty()).then(|| bounded(&words.join(": "), MAX_MESSAGE_CHARS));
    }
    Some(bounded(&unscheduled(pod)?.text()?, MAX_MESSAGE_CHARS))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn job(conditions: &Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "back-v1", "uid": "j"}, "status": {"conditions": conditions},
        }))
        .expect("a Job")
    }

    fn pod(name: &str, phase: &str, deleted: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "deletionTimestamp": deleted,
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "back-v1", "uid": "j"}],
            },
            "status": {"phase": phase},
        }))
        .expect("a pod")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    /// Kubernetes reports `Failed` only when the last pod is gone, and a lost node never confirms that.
    #[test]
    fn a_job_at_its_deadline_ends_although_its_node_is_lost() {
        let conditions = json!([{
            "type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded",
            "message": "Job was active longer than specified deadline", "lastTransitionTime": "2026-03-01T12:00:00Z",
        }]);
        let job = job(&conditions);
        let grace_end = Some("2026-03-01T12:00:30Z");
        let (lost, ended) = (pod("a", "Running", grace_end), pod("b", "Failed", grace_end));
        let replaced = pod("c", "Pending", None);
        let later = Some("2026-03-01T12:05:00Z");
        let later = pod("d", "Running", later);
        for (pods, now, is_end) in [
            (vec![&lost], "2026-03-01T12:01:29Z", false),
            (vec![&lost], "2026-03-01T12:01:30Z", true),
            (vec![&lost, &ended], "2026-03-01T12:01:30Z", true),
            // Kubernetes reports these itself.
            (vec![&ended], "2026-03-02T12:00:00Z", false),
            (vec![], "2026-03-02T12:00:00Z", false),
            // These may still stop.
            (vec![&lost, &later], "2026-03-01T12:01:30Z", false),
            (vec![&lost, &replaced], "2026-03-02T12:00:00Z", false),
        ] {
            let count = pods.len();
            let found = observe_job(&job, pods.into_iter(), at(now));
            let end = found.end.map(|end| (end.is_complete, end.at));
            let wanted = is_end.then(|| (false, at("2026-03-01T12:00:00Z")));
            assert_eq!(end, wanted, "{count} pods at {now}");
        }
        let running = self::job(&json!([]));
        let much_later = at("2026-03-01T12:00:00Z") + SignedDuration::from_hours(9);
        assert_eq!(observe_job(&running, [&lost].into_iter(), much_later).end, None);
    }

    /// A ResourceQuota or a LimitRange forbids the pod, and only Events of the Job say so.
    #[test]
    fn a_job_without_a_pod_is_reported_with_the_way_to_its_reason() {
        let mut job = job(&json!([]));
        job.metadata.creation_timestamp = Some(Time(at("2026-03-01T12:00:00Z")));
        let pod = pod("a", "Running", None);
        let pending_reason =
            |pods: &[&Pod], now| observe_job(&job, pods.iter().copied(), at(now)).pending_reason;
        let in_time = "2026-03-01T12:00:20Z";
        assert_eq!(pending_reason(&[], in_time), None, "the Job controller has time");
        let late = "2026-03-01T12:00:21Z";
        assert_eq!(
            pending_reason(&[], late).as_deref(),
            Some(
                "the Job has no pod; see kubectl events --for job/back-v1 for the reason, for example a ResourceQuota or LimitRange"
            )
        );
        assert_eq!(pending_reason(&[&pod], late), None);
    }

    #[test]
    fn the_condition_failed_comes_before_failure_target() {
        let conditions = json!([
            {"type": "FailureTarget", "status": "True", "message": "first", "lastTransitionTime": "2026-03-01T12:00:00Z"},
            {"type": "Failed", "status": "True", "message": "last", "lastTransitionTime": "2026-03-01T12:01:00Z"},
        ]);
        let found = observe_job(&job(&conditions), [].into_iter(), at("2026-03-01T13:00:00Z"));
        let end = found.end.expect("an end");
        assert_eq!(
            (end.message.as_str(), end.at),
            ("last", at("2026-03-01T12:01:00Z"))
        );
    }
}
