//! What a Job is built from, and the order that follows from it.

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
use jiff::Timestamp;

use crate::observed_state::{ObservedCluster, Source};
use crate::plan::{DesiredJob, JobTask};

/// Deadline of a Job's process; large enough for a large backup over a slow network.
pub(super) const JOB_TIMEOUT: Duration = Duration::from_hours(12);

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
    /// The labels of a Job.
    pub(super) fn labels(&self, task: &JobTask) -> BTreeMap<String, String> {
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

    /// The order of a Job.
    pub(super) fn order(&self, desired: &DesiredJob) -> JobOrder {
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
