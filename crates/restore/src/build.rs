//! Builds the Jobs of a restore with their orders. Pure: Secrets are mounted by name, never read or copied.

mod cluster;
mod inputs;
mod pod;
#[cfg(test)]
mod tests;

use std::time::Duration;

use etcd_operator_api::{GROUP, VERSION as API_VERSION};
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::plan::DesiredJob;
use inputs::JOB_TIMEOUT;

pub use cluster::cluster;
pub use inputs::BuildInputs;
pub use pod::{CONTAINER, TOOL};

/// How much longer the Job may run, so that its process ends first and reports the missed deadline.
const DEADLINE_MARGIN: Duration = Duration::from_mins(1);
/// Retries of a Job's pod; Kubernetes doubles the delay from 10 s.
const BACKOFF_LIMIT: i32 = 3;
/// Exit codes of failures that a retry cannot fix.
const PERMANENT_EXIT_CODES: [i32; 2] = [2, 3];

/// Builds a Job.
pub fn job(desired: &DesiredJob, inputs: &BuildInputs<'_>) -> Job {
    let timeout = JOB_TIMEOUT + DEADLINE_MARGIN;
    Job {
        metadata: ObjectMeta {
            name: Some(desired.name.clone()),
            namespace: Some(inputs.namespace.to_owned()),
            labels: Some(inputs.labels(&desired.task)),
            // `blockOwnerDeletion` would need additional RBAC rules, and the deletion need not wait for Jobs.
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{GROUP}/{API_VERSION}"),
                kind: "EtcdRestore".to_owned(),
                name: inputs.name.to_owned(),
                uid: inputs.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX)),
            backoff_limit: Some(BACKOFF_LIMIT),
            completions: Some(1),
            parallelism: Some(1),
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(pod_failure_policy()),
            template: pod::template(desired, inputs),
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

/// Fails the Job at once for exit codes that a retry cannot fix. A disruption, such as a drained node, does not count
/// as a failure.
fn pod_failure_policy() -> PodFailurePolicy {
    let permanent_failure = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(CONTAINER.to_owned()),
            operator: "In".to_owned(),
            values: PERMANENT_EXIT_CODES.to_vec(),
        }),
        ..PodFailurePolicyRule::default()
    };
    // A disruption, such as a node drain, does not count as a failure.
    let disrupted = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_owned(),
            status: Some("True".to_owned()),
        }]),
        ..PodFailurePolicyRule::default()
    };
    PodFailurePolicy {
        rules: vec![permanent_failure, disrupted],
    }
}
