//! The Job of a run. Kubernetes makes its pod again where that may help, so a run goes on while no operator is there.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};

use super::{Frame, order, pod};
use crate::memory::Run;

/// How long deletions may take at least.
pub(super) const LONG: Duration = Duration::from_mins(10);
/// How much longer than its run a Job may take: the process ends by itself before, with a word.
pub const GRACE: Duration = Duration::from_mins(1);
/// Kubernetes counts in nanoseconds, and a Job that may take longer than these can tell is ended at once.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 10);
/// How often its pod is made again; the pauses double from ten seconds on.
const RETRIES: i32 = 6;
/// How the process ends where trying again does not help.
const IN_VAIN: [i32; 2] = [2, 3];

/// The Job of a run.
pub(super) fn job(run: &Run, frame: &Frame<'_>) -> Job {
    let rest = order::deadline(run, frame).duration_since(frame.now);
    let rest = Duration::try_from(rest).unwrap_or_default() + GRACE;
    Job {
        metadata: frame.metadata(run),
        spec: Some(JobSpec {
            active_deadline_seconds: Some(i64::try_from(rest.min(LONGEST).as_secs()).unwrap_or(i64::MAX)),
            backoff_limit: Some(RETRIES),
            completions: Some(1),
            parallelism: Some(1),
            // Two pods of one run must not write at once: the next one is made when the last one has ended.
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(failures()),
            template: pod::template(run, frame),
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn failures() -> PodFailurePolicy {
    let in_vain = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(pod::CONTAINER.to_owned()),
            operator: "In".to_owned(),
            values: IN_VAIN.to_vec(),
        }),
        ..PodFailurePolicyRule::default()
    };
    // A drained node is no failure of the backup.
    let disrupted = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_owned(),
            status: Some("True".to_owned()),
        }]),
        ..PodFailurePolicyRule::default()
    };
    PodFailurePolicy {
        rules: vec![in_vain, disrupted],
    }
}
