//! What an `EtcdBackup` asks for, as Jobs of Kubernetes and the orders they carry.
//!
//! Pure: the same run gives the same bytes. No secret is read or copied: Secrets are mounted by name, and an order names
//! the directories. Nothing here decides whether a Job is made.

mod job;
mod order;
mod pod;
#[cfg(test)]
mod tests;

use etcd_operator_api::names::{
    APP_BACKUP_VALUE, LABEL_APP, LABEL_BACKUP, LABEL_MANAGED_BY, LABEL_TASK, MANAGED_BY,
};
use etcd_operator_api::retention::Keep;
use etcd_operator_api::{GROUP, VERSION};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

use crate::desired::Desired;
use crate::memory::Run;
use crate::world::Origin;

pub use job::GRACE;
pub use pod::CONTAINER;

/// The annotation of a Job with the generation of the spec it was made from.
pub const GENERATION: &str = "etcd.database.coreos.com/generation";

/// The annotation of a Job with the place that its backup goes to.
pub const LOCATION: &str = "etcd.database.coreos.com/location";

/// What a Job is made from, beside its run.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What the user asks for.
    pub desired: &'a Desired,
    /// The namespace of the `EtcdBackup`.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Where what is backed up is found.
    pub origin: &'a Origin,
    /// The operator's own image.
    pub image: &'a str,
    /// The time.
    pub now: Timestamp,
}

impl Frame<'_> {
    fn labels(&self, run: &Run) -> BTreeMap<String, String> {
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

    fn metadata(&self, run: &Run) -> ObjectMeta {
        ObjectMeta {
            name: Some(run.job(self.name)),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(self.labels(run)),
            annotations: Some(BTreeMap::from([
                (GENERATION.to_owned(), self.generation.to_string()),
                (LOCATION.to_owned(), self.desired.place(self.name)),
            ])),
            // Its deletion never waits for Jobs: to say so would take a right of its own.
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

    fn keep(&self) -> Keep {
        self.desired.keep.clone()
    }
}

/// The Job of a run.
pub fn job(run: &Run, frame: &Frame<'_>) -> Job {
    job::job(run, frame)
}
