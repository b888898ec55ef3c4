//! What a Job is built from, and the metadata that follows from it.

use std::collections::BTreeMap;

use etcd_operator_api::names::{
    APP_BACKUP_VALUE, LABEL_APP, LABEL_BACKUP, LABEL_MANAGED_BY, LABEL_TASK, MANAGED_BY,
};
use etcd_operator_api::retention::Keep;
use etcd_operator_api::{GROUP, VERSION};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::desired::Desired;
use crate::observed_state::ResolvedSource;
use crate::persisted_state::{Run, Task};

/// The annotation with the generation of the spec from which a Job was built.
pub const GENERATION: &str = "etcd.database.coreos.com/generation";

/// The annotation with the location where a Job stores its backup.
pub const LOCATION: &str = "etcd.database.coreos.com/location";

/// The annotation of a prune Job with the keys of the backups that it must not delete, as a JSON list. Absent if there are
/// none.
pub const HELD: &str = "etcd.database.coreos.com/held";

/// What a Job is built from, besides its run.
#[derive(Clone, Copy, Debug)]
pub struct BuildInputs<'a> {
    /// The parsed spec.
    pub desired: &'a Desired,
    /// The namespace of the `EtcdBackup`.
    pub namespace: &'a str,
    /// The name of the `EtcdBackup`.
    pub name: &'a str,
    /// The UID of the `EtcdBackup`.
    pub uid: &'a str,
    /// The generation of the spec.
    pub generation: i64,
    /// Which stored backups are kept.
    pub retention: &'a Keep,
    /// How to reach the etcd cluster.
    pub source: &'a ResolvedSource,
    /// The operator's own image.
    pub image: &'a str,
    /// The current time.
    pub now: Timestamp,
}

impl BuildInputs<'_> {
    /// The labels of the Job of a run.
    pub(super) fn labels(&self, run: &Run) -> BTreeMap<String, String> {
        let pairs = [
            (LABEL_APP, APP_BACKUP_VALUE),
            ("app.kubernetes.io/name", APP_BACKUP_VALUE),
            ("app.kubernetes.io/instance", self.name),
            (LABEL_MANAGED_BY, MANAGED_BY),
            (LABEL_BACKUP, self.name),
            (LABEL_TASK, run.task.as_str()),
        ];
        let texts = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        texts.into_iter().collect()
    }

    fn annotations(&self, run: &Run) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::from([
            (GENERATION.to_owned(), self.generation.to_string()),
            (LOCATION.to_owned(), self.desired.location_address(self.name)),
        ]);
        let held = &self.retention.held;
        if run.task == Task::Prune && !held.is_empty() {
            let list = serde_json::to_string(held).expect("a list of texts serializes to JSON");
            annotations.insert(HELD.to_owned(), list);
        }
        annotations
    }

    /// The metadata of the Job of a run.
    pub(super) fn metadata(&self, run: &Run) -> ObjectMeta {
        ObjectMeta {
            name: Some(run.job_name(self.name)),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(self.labels(run)),
            annotations: Some(self.annotations(run)),
            // Without `blockOwnerDeletion`: setting it would need a permission on finalizers.
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{GROUP}/{VERSION}"),
                kind: "EtcdBackup".to_owned(),
                name: self.name.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        }
    }
}
