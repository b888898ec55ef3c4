//! The Job of a run. Kubernetes retries its pod where that may help, so a run continues while the operator is down.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};

use super::{BuildInputs, order, pod};
use crate::persisted_state::Run;

/// How much longer than the deadline of its run a Job may run: the process ends by itself first and reports why.
pub const GRACE: Duration = Duration::from_mins(1);
/// How much longer than its Job a pod may run: usually Kubernetes ends the Job first, and says so in the Job's condition. The
/// kubelet keeps the deadline of a pod also while its node is cut off from the API server.
const POD_GRACE: i64 = 60;
/// The longest deadline of a Job. Kubernetes counts nanoseconds; a deadline that overflows ends the Job at once.
const LONGEST_DEADLINE: Duration = Duration::from_hours(24 * 365 * 10);
/// How often Kubernetes retries the pod; the pauses double from ten seconds on.
const RETRIES: i32 = 6;
/// The exit codes of a process that a retry does not help.
const PERMANENT_EXIT_CODES: [i32; 2] = [2, 3];

/// Builds the Job of a run.
pub(super) fn job(run: &Run, inputs: &BuildInputs<'_>) -> Job {
    let rest = order::deadline(run, inputs).duration_since(inputs.now);
    let rest = Duration::try_from(rest).unwrap_or_default() + GRACE;
    let deadline = i64::try_from(rest.min(LONGEST_DEADLINE).as_secs()).unwrap_or(i64::MAX);
    Job {
        metadata: inputs.metadata(run),
        spec: Some(JobSpec {
            active_deadline_seconds: Some(deadline),
            backoff_limit: Some(RETRIES),
            completions: Some(1),
            parallelism: Some(1),
            // Two pods of one run must not write at once: the next pod starts when the last one has ended.
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(failure_policy()),
            template: pod::template(run, inputs, deadline.saturating_add(POD_GRACE)),
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

/// Fails the Job at once for exit codes that a retry does not help. A disruption, such as a drained node, does not
/// count as a failed try.
fn failure_policy() -> PodFailurePolicy {
    let fail_permanently = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(pod::CONTAINER.to_owned()),
            operator: "In".to_owned(),
            values: PERMANENT_EXIT_CODES.to_vec(),
        }),
        ..PodFailurePolicyRule::default()
    };
    // A drained node does not count as a failed try.
    let ignore_disruption = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_owned(),
            status: Some("True".to_owned()),
        }]),
        ..PodFailurePolicyRule::default()
    };
    PodFailurePolicy {
        rules: vec![fail_permanently, ignore_disruption],
    }
}
