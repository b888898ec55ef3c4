//! Builds the Jobs of a restore with their orders. Pure: Secrets are mounted by name, never read or copied.

mod cluster;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{
    BackupTask, CompareTask, JobOrder, Limits, Naming, RecheckTask, Source as EtcdSource, StoreOrder, Task,
    VERSION, VerifyTask, mounts,
};
use etcd_operator_api::names::{
    APP_RESTORE_VALUE, LABEL_APP, LABEL_MANAGED_BY, LABEL_RESTORE, LABEL_TASK, MANAGED_BY,
};
use etcd_operator_api::{GROUP, VERSION as API_VERSION};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::observed_state::{ObservedCluster, Source};
use crate::plan::{DesiredJob, JobTask};

pub use cluster::cluster;
pub use pod::{CONTAINER, TOOL};

/// Deadline of a Job's process; large enough for a large backup over a slow network.
const JOB_TIMEOUT: Duration = Duration::from_hours(12);
/// How much longer the Job may run, so that its process ends first and reports the missed deadline.
const DEADLINE_MARGIN: Duration = Duration::from_mins(1);
/// Retries of a Job's pod; Kubernetes doubles the delay from 10 s.
const BACKOFF_LIMIT: i32 = 3;
/// Exit codes of failures that a retry cannot fix.
const PERMANENT_EXIT_CODES: [i32; 2] = [2, 3];

/// The inputs from which a Job is built.
#[derive(Clone, Copy, Debug)]
pub struct BuildInputs<'a> {
    /// Namespace of the `EtcdRestore`.
    pub namespace: &'a str,
    /// Name of the `EtcdRestore`.
    pub name: &'a str,
    /// UID of the `EtcdRestore`.
    pub uid: &'a str,
    /// The cluster to restore.
    pub cluster: &'a ObservedCluster,
    /// The location of the backup. A Job that only compares served data needs none.
    pub source: Option<&'a Source>,
    /// The operator's own image.
    pub image: &'a str,
    /// The current time.
    pub now: Timestamp,
}

impl BuildInputs<'_> {
    fn labels(&self, task: &JobTask) -> BTreeMap<String, String> {
        let pairs = [
            (LABEL_APP, APP_RESTORE_VALUE),
            ("app.kubernetes.io/name", APP_RESTORE_VALUE),
            ("app.kubernetes.io/instance", self.name),
            (LABEL_MANAGED_BY, MANAGED_BY),
            (LABEL_RESTORE, self.name),
            (LABEL_TASK, task.as_str()),
        ];
        let texts = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        texts.into_iter().collect()
    }

    /// The members' client endpoints.
    fn members(&self) -> EtcdSource {
        let tls = self.cluster.client_tls_secret.as_ref();
        EtcdSource {
            endpoints: self.cluster.endpoints.clone(),
            tls: tls.map(|_| mounts::CLIENT_TLS.to_owned()),
            ..EtcdSource::default()
        }
    }

    /// The members whose data stays on their volumes during the restore; `None` if there is no such data.
    fn members_with_data(&self) -> Option<EtcdSource> {
        let has_data = !self.cluster.endpoints.is_empty() && self.cluster.volume_size.is_some();
        (has_data && !self.cluster.is_ephemeral).then(|| self.members())
    }

    /// The object that the Job reads or writes.
    fn store_order(&self, task: &JobTask) -> StoreOrder {
        self.source.map_or_else(StoreOrder::default, |source| match task {
            JobTask::BackUp => source.location.order(&source.safety_backup_key(self.name)),
            JobTask::Verify | JobTask::Recheck { .. } | JobTask::Compare { .. } => {
                source.location.order(&source.object)
            }
        })
    }

    /// The mount path of the encryption keys, if there are any.
    fn keys_mount(&self) -> Option<String> {
        let keys = self.source.and_then(|source| source.keys.as_ref());
        keys.map(|_| mounts::KEYS.to_owned())
    }

    fn order(&self, desired: &DesiredJob) -> JobOrder {
        let deadline = self.now.checked_add(JOB_TIMEOUT).unwrap_or(Timestamp::MAX);
        JobOrder {
            version: VERSION,
            run: format!("{}/{}", desired.name, self.uid),
            owner_uid: self.uid.to_owned(),
            store: self.store_order(&desired.task),
            task: match &desired.task {
                JobTask::Verify => Task::Verify(VerifyTask {
                    keys: self.keys_mount(),
                    beside: self.members_with_data(),
                    deadline,
                }),
                JobTask::Recheck {
                    size,
                    etag,
                    has_manifest,
                } => Task::Recheck(RecheckTask {
                    size: *size,
                    etag: etag.clone(),
                    has_manifest: *has_manifest,
                    deadline,
                }),
                JobTask::BackUp => Task::Backup(Box::new(BackupTask {
                    source: self.members(),
                    cluster_id: self.cluster.cluster_id.clone(),
                    incarnation: self.cluster.incarnation,
                    naming: Naming::Periodic,
                    compression: Compression::Zstd,
                    keys: self.keys_mount(),
                    verification: Verification::Full,
                    deadline,
                    limits: Limits::default(),
                    // Restores of the same name in other namespaces may have stored backups under this key.
                    allow_others: true,
                })),
                JobTask::Compare {
                    cluster_id,
                    revision,
                    digest,
                } => Task::Compare(Box::new(CompareTask {
                    source: self.members(),
                    cluster_id: cluster_id.clone(),
                    revision: *revision,
                    digest: digest.clone(),
                    deadline,
                })),
            },
        }
    }
}

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
