//! The Jobs of a restore, with the orders they carry. Pure: no secret is read or copied, Secrets are mounted by name.

mod cluster;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{
    BackupTask, CompareTask, JobOrder, Limits, Naming, Source as Etcd, StoreOrder, Task as Order, VERSION,
    VerifyTask, mounts,
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

use crate::plan::{Task, Wanted};
use crate::world::{Cluster, Source};

pub use cluster::cluster;
pub use pod::{CONTAINER, TOOL};

/// How long a Job may take: hours for the largest backup over the slowest line.
const LONGEST: Duration = Duration::from_hours(12);
/// How much longer than its process a Job may take: it ends by itself before, with a word.
const GRACE: Duration = Duration::from_mins(1);
/// How often its pod is made again; the pauses double from ten seconds on.
const RETRIES: i32 = 3;
/// How the process ends where trying again does not help.
const IN_VAIN: [i32; 2] = [2, 3];

/// What a Job is made from.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The namespace of the `EtcdRestore`.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The cluster that is restored.
    pub cluster: &'a Cluster,
    /// Where the backup is; whoever only compares what is served needs none.
    pub source: Option<&'a Source>,
    /// The operator's own image.
    pub image: &'a str,
    /// The time.
    pub now: Timestamp,
}

impl Frame<'_> {
    fn labels(&self, task: &Task) -> BTreeMap<String, String> {
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

    /// The members, as clients reach them.
    fn members(&self) -> Etcd {
        let tls = self.cluster.client_tls.as_ref();
        Etcd {
            endpoints: self.cluster.endpoints.clone(),
            tls: tls.map(|_| mounts::CLIENT_TLS.to_owned()),
            ..Etcd::default()
        }
    }

    /// Those whose data stay where they are for a while.
    fn beside(&self) -> Option<Etcd> {
        let has_data = !self.cluster.endpoints.is_empty() && self.cluster.volume.is_some();
        (has_data && !self.cluster.is_ephemeral).then(|| self.members())
    }

    /// The object that is read or written.
    fn store(&self, task: &Task) -> StoreOrder {
        self.source.map_or_else(StoreOrder::default, |source| match task {
            Task::BackUp => source.location.order(&source.beside(self.name)),
            Task::Verify | Task::Compare { .. } => source.location.order(&source.object),
        })
    }

    /// Where the keys of sealed backups are mounted.
    fn keys(&self) -> Option<String> {
        let keys = self.source.and_then(|source| source.keys.as_ref());
        keys.map(|_| mounts::KEYS.to_owned())
    }

    fn order(&self, wanted: &Wanted) -> JobOrder {
        let deadline = self.now.checked_add(LONGEST).unwrap_or(Timestamp::MAX);
        JobOrder {
            version: VERSION,
            run: format!("{}/{}", wanted.name, self.uid),
            owner_uid: self.uid.to_owned(),
            store: self.store(&wanted.task),
            task: match &wanted.task {
                Task::Verify => Order::Verify(VerifyTask {
                    keys: self.keys(),
                    beside: self.beside(),
                    deadline,
                }),
                Task::BackUp => Order::Backup(Box::new(BackupTask {
                    source: self.members(),
                    cluster_id: self.cluster.cluster_id.clone(),
                    incarnation: self.cluster.incarnation,
                    naming: Naming::Periodic,
                    compression: Compression::Zstd,
                    keys: self.keys(),
                    verification: Verification::Full,
                    deadline,
                    limits: Limits::default(),
                    // Other restores of this name, of other namespaces, may have left theirs there.
                    allow_others: true,
                })),
                Task::Compare {
                    cluster_id,
                    revision,
                    digest,
                } => Order::Compare(Box::new(CompareTask {
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

/// The Job that is wanted.
pub fn job(wanted: &Wanted, frame: &Frame<'_>) -> Job {
    let longest = LONGEST + GRACE;
    Job {
        metadata: ObjectMeta {
            name: Some(wanted.name.clone()),
            namespace: Some(frame.namespace.to_owned()),
            labels: Some(frame.labels(&wanted.task)),
            // Its deletion never waits for Jobs: to say so would take a right of its own.
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{GROUP}/{API_VERSION}"),
                kind: "EtcdRestore".to_owned(),
                name: frame.name.to_owned(),
                uid: frame.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(i64::try_from(longest.as_secs()).unwrap_or(i64::MAX)),
            backoff_limit: Some(RETRIES),
            completions: Some(1),
            parallelism: Some(1),
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(failures()),
            template: pod::template(wanted, frame),
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn failures() -> PodFailurePolicy {
    let in_vain = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(CONTAINER.to_owned()),
            operator: "In".to_owned(),
            values: IN_VAIN.to_vec(),
        }),
        ..PodFailurePolicyRule::default()
    };
    // A drained node is no failure of the Job.
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
