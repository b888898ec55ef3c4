//! Storage of the members' data.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Storage of the members' data.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.size) || !has(oldSelf.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0").message("storage.size cannot shrink, because volumes only grow: set it to the present size or more; for a smaller volume restore a backup into a new EtcdCluster").field_path(".size"),
    validation = Rule::new("!has(oldSelf.storageClassName) || (has(self.storageClassName) && self.storageClassName == oldSelf.storageClassName)").message("storage.storageClassName cannot change while the cluster exists: restore a backup into a new EtcdCluster with the other class, or, before it has formed, delete it with its claims and create it anew"),
    validation = Rule::new("!has(self.storageClassName) || !has(self.medium) || self.medium == 'PersistentVolume'").message("storage.storageClassName is for storage.medium: PersistentVolume only: leave it out, or change the medium").field_path(".storageClassName"),
)]
pub struct StorageSpec {
    /// Size of each member's volume, for example 8Gi. Volumes can grow if the StorageClass allows it, and never shrink. For EmptyDir and Memory, it is the size limit of the directory. Default: 8Gi for PersistentVolume, otherwise no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')))").message("storage.size must be a quantity above zero; for example: size: 8Gi"))]
    pub size: Option<Quantity>,
    /// StorageClass of the volumes. Default: the default StorageClass of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// Kind of volume. PersistentVolume keeps the data when a pod is deleted. With EmptyDir and Memory, a member's data is lost with its pod, and all data is lost with all pods.
    #[serde(default)]
    pub medium: Medium,
    /// What happens to the volumes when the EtcdCluster is deleted: Retain keeps them, Delete deletes them.
    #[serde(default)]
    pub retention: Retention,
    /// Labels of the PersistentVolumeClaims, for example for a volume backup tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Kind of volume that holds a member's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Medium {
    /// One PersistentVolumeClaim per member.
    #[default]
    PersistentVolume,
    /// A directory on the node, deleted with the pod.
    EmptyDir,
    /// Memory of the node (tmpfs), freed with the pod.
    Memory,
}

/// What happens to the volumes when their cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retention {
    /// The volumes stay until a user deletes them.
    #[default]
    Retain,
    /// The volumes are deleted with the EtcdCluster.
    Delete,
}
