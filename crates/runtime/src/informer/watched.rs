//! The kinds that are watched, and whom their objects belong to.

use etcd_operator_api::names::{LABEL_BACKUP, LABEL_RESTORE};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use serde::de::DeserializeOwned;

/// A kind that can be watched.
pub trait Watched: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static {
    /// The name of the object of its namespace that it belongs to, by which [`Store::belonging_to`](crate::store::Store::belonging_to)
    /// finds it.
    fn belongs_to(&self) -> Option<&str> {
        None
    }
}

impl Watched for EtcdCluster {}
impl Watched for EtcdRestore {}
impl Watched for StatefulSet {}
impl Watched for PersistentVolumeClaim {}
impl Watched for Service {}
impl Watched for PodDisruptionBudget {}
impl Watched for Node {}

impl Watched for EtcdBackup {
    /// The cluster that is backed up.
    fn belongs_to(&self) -> Option<&str> {
        self.spec
            .etcd_cluster
            .as_ref()
            .map(|cluster| cluster.name.as_str())
    }
}

impl Watched for Job {
    /// The `EtcdBackup` or `EtcdRestore` that it was created for.
    fn belongs_to(&self) -> Option<&str> {
        labelled(self)
    }
}

impl Watched for ConfigMap {
    /// As a Job, in examples and tests: no controller watches it.
    fn belongs_to(&self) -> Option<&str> {
        labelled(self)
    }
}

impl Watched for Pod {
    /// The `EtcdBackup` or `EtcdRestore` whose Job it is of. Pods of members are found by name.
    fn belongs_to(&self) -> Option<&str> {
        labelled(self)
    }
}

/// The value of either label: an `EtcdBackup` and an `EtcdRestore` may have the same name, which the caller tells apart.
fn labelled(object: &impl Resource) -> Option<&str> {
    let labels = object.meta().labels.as_ref()?;
    let value = labels.get(LABEL_BACKUP).or_else(|| labels.get(LABEL_RESTORE));
    value.map(String::as_str)
}
