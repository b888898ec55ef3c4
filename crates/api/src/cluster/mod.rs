//! The `EtcdCluster` kind: one etcd cluster, its members, storage and policies.

mod image;
mod options;
mod pod;
mod policy;
mod status;
mod storage;
mod tls;

pub use image::{DefaultRepository, RepositoryError, UPSTREAM_REPOSITORY};
pub use options::{AutoCompaction, AutoCompactionMode, EtcdOptions};
pub use pod::PodPolicy;
pub use policy::{
    AuthSpec, BackupFirstPolicy, BootstrapSpec, ConsistencyCheck, DefragPolicy, MaintenancePolicy,
    MonitoringSpec, OnDataLoss, OnNoSpace, OnQuorumLoss, RecoveryPolicy, ServicePolicy, ServiceType,
    UpdatePolicy, UpdateStrategy,
};
pub use status::{
    BlockerStatus, EtcdClusterStatus, ImageFailureStatus, MemberStatus, MembersStatus, PlanStatus,
    RefusedStep, RestoreProgress, RolloutMember, RolloutStatus, StepIntent, StepTarget,
};
pub use storage::{Medium, Retention, StorageSpec};
pub use tls::{CertManagerTls, IssuerRef, ManagedTls, MemberSecrets, StaticTls, TlsPolicy};

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The maximum number of members. With more than nine, each write waits for too many disks.
pub const MAX_SIZE: i32 = 9;
/// The number of members if the spec does not set `size`.
pub const DEFAULT_SIZE: i32 = 3;

/// Spec of an `EtcdCluster`: the desired members, storage and policies.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcd",
    category = "all",
    category = "etcd-operator",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "EtcdCluster is one etcd cluster: the operator creates its members, scales and heals them, upgrades them, and never takes a step that leaves fewer healthy voters than a quorum.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Current phase of the cluster"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.readyMembers", description = "Ready members of the desired members"),
    printcolumn(name = "Updated", type_ = "string", json_path = ".status.updatedMembers", description = "Members with the current pod template"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", description = "etcd version of the members, and the target while it changes"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "Member that is the raft leader"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since the object was created"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", priority = 1, description = "Desired number of members"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".status.storage", priority = 1, description = "Storage of the members' data"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1, description = "Why the cluster is in this phase"),
    validation = Rule::new("self.metadata.name.size() <= 52").message("metadata.name must have at most 52 characters, because pods, services and volumes carry it with a suffix; for example: orders-etcd"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must start with a letter and hold only lower-case letters, digits and '-', because Services carry it; for example: orders-etcd"),
    validation = Rule::new("!self.metadata.name.endsWith('-client')").message("metadata.name must not end in '-client': NAME-client is the client Service of the cluster NAME; for example: orders-etcd"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.clusterID) || (has(oldSelf.status.endpoints) && oldSelf.status.endpoints.exists(e, e.startsWith('https://'))) || (!((has(self.spec.TLS) && has(self.spec.TLS.static) && has(self.spec.TLS.static.member) && has(self.spec.TLS.static.member.serverSecret) && self.spec.TLS.static.member.serverSecret != '') && !((has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.serverSecret) && oldSelf.spec.TLS.static.member.serverSecret != ''))) && !((has(self.spec.TLS) && has(self.spec.TLS.static) && has(self.spec.TLS.static.member) && has(self.spec.TLS.static.member.peerSecret) && self.spec.TLS.static.member.peerSecret != '') && !((has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.peerSecret) && oldSelf.spec.TLS.static.member.peerSecret != ''))))").message("TLS cannot be added to a cluster that has formed, because its members would stop understanding one another: create a new EtcdCluster with TLS and restore a backup into it"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.clusterID) || ((has(oldSelf.status.endpoints) && oldSelf.status.endpoints.exists(e, e.startsWith('https://'))) ? !(has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.serverSecret) && oldSelf.spec.TLS.static.member.serverSecret != '') || ((has(self.spec.TLS) && has(self.spec.TLS.static) && has(self.spec.TLS.static.member) && has(self.spec.TLS.static.member.serverSecret) && self.spec.TLS.static.member.serverSecret != '') && (has(self.spec.TLS) && has(self.spec.TLS.static) && has(self.spec.TLS.static.member) && has(self.spec.TLS.static.member.peerSecret) && self.spec.TLS.static.member.peerSecret != '') == (has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.peerSecret) && oldSelf.spec.TLS.static.member.peerSecret != '')) : !(has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.peerSecret) && oldSelf.spec.TLS.static.member.peerSecret != '') || (has(oldSelf.spec.TLS) && has(oldSelf.spec.TLS.static) && has(oldSelf.spec.TLS.static.member) && has(oldSelf.spec.TLS.static.member.serverSecret) && oldSelf.spec.TLS.static.member.serverSecret != '') || (has(self.spec.TLS) && has(self.spec.TLS.static) && has(self.spec.TLS.static.member) && has(self.spec.TLS.static.member.peerSecret) && self.spec.TLS.static.member.peerSecret != ''))").message("TLS cannot be removed from a cluster whose members use it, and peer encryption cannot be switched: create a new EtcdCluster with the other setting and restore a backup into it"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.size) || self.size != 0 || (has(self.storage) && (!has(self.storage.medium) || self.storage.medium == 'PersistentVolume')) || (has(self.pod) && has(self.pod.persistentVolumeClaimSpec))").message("size 0 hibernates the cluster and needs data that outlives its pods: set storage.medium: PersistentVolume, or a size of 1 to 9").field_path(".size"),
    validation = Rule::new("!(has(self.storage) && has(self.pod) && has(self.pod.persistentVolumeClaimSpec))").message("storage and pod.persistentVolumeClaimSpec both describe the volumes: keep one of them, for example storage: {size: 8Gi}").field_path(".storage"),
    validation = Rule::new("(has(self.storage) ? (has(self.storage.medium) ? self.storage.medium : 'PersistentVolume') : (has(self.pod) && has(self.pod.persistentVolumeClaimSpec) ? 'PersistentVolume' : 'EmptyDir')) == (has(oldSelf.storage) ? (has(oldSelf.storage.medium) ? oldSelf.storage.medium : 'PersistentVolume') : (has(oldSelf.pod) && has(oldSelf.pod.persistentVolumeClaimSpec) ? 'PersistentVolume' : 'EmptyDir'))").message("storage.medium cannot change while the cluster exists: back the cluster up and restore it into a new EtcdCluster with the other medium"),
)]
pub struct EtcdClusterSpec {
    /// Number of members: 1 to 9. An odd number tolerates the most failures for its cost. 0 hibernates the cluster: the operator deletes its pods and keeps its volumes.
    #[serde(default = "default_size")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 9").message("size must be 0 to 9, where 0 hibernates the cluster; for example: size: 3"))]
    pub size: i32,

    /// etcd version, with or without a leading v, for example 3.6.16. Default: the tag of image, or else the newest known patch of the default minor version, which status.currentVersion shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^v?[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?$')").message("version must be MAJOR.MINOR.PATCH; for example: version: 3.6.16"))]
    pub version: Option<String>,

    /// Image repository of etcd; the operator appends ':v' and the version. Default: the chart's etcdImage.repository, or else quay.io/coreos/etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ @]*$')").message("repository must be an image name without tag or digest; for example: repository: quay.io/coreos/etcd"))]
    pub repository: Option<String>,

    /// Full image reference of etcd, with tag or digest. It takes precedence over repository and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ ]*$')").message("image must be an image reference without spaces; for example: image: quay.io/coreos/etcd:v3.6.16"))]
    pub image: Option<String>,

    /// Image pull policy: Always, IfNotPresent or Never. Default: Kubernetes decides by the image tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials of the image registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub image_pull_secrets: Option<Vec<k8s_openapi::api::core::v1::LocalObjectReference>>,

    /// Pauses the operator for this cluster: while true, it observes and reports, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// Pod settings of the members, such as resources, scheduling and labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodPolicy>,

    /// Storage of the members' data. Without it and without pod.persistentVolumeClaimSpec, each member uses an EmptyDir, which is lost with the pod; the condition StorageEphemeral reports this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdOptions>,

    /// The client Service NAME-client, and external DNS names of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServicePolicy>,

    /// Encryption and mutual authentication of peer and client traffic. Without it, both are plain text.
    #[serde(default, rename = "TLS", skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPolicy>,

    /// etcd's own authentication of users. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,

    /// How changes of version, image and pod settings are rolled out to running members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<UpdatePolicy>,

    /// Defragmentation, handling of an exceeded database quota (NOSPACE), and consistency checks between members. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<MaintenancePolicy>,

    /// When the operator replaces a member, and how it reacts to quorum loss and data loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryPolicy>,

    /// How the cluster starts for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapSpec>,

    /// Objects for a monitoring system. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<MonitoringSpec>,
}

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum ImagePullPolicy {
    /// Query the registry before each start of a container.
    Always,
    /// Pull the image only if the node does not have it.
    IfNotPresent,
    /// Never pull; use only an image that the node has.
    Never,
}

impl ImagePullPolicy {
    /// The value as the Kubernetes API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl EtcdCluster {
    /// Whether the members require TLS from clients. The endpoints in the status decide, because they describe the members
    /// as they run. Only before the first endpoint is reported the spec decides: its edits may not be rolled out yet.
    pub fn has_secure_clients(&self) -> bool {
        let endpoints = self.status.as_ref().and_then(|status| status.endpoints.as_ref());
        let endpoint = endpoints.and_then(|endpoints| endpoints.first());
        endpoint.map_or(self.operator_secret().is_some(), |address| {
            address.starts_with("https://")
        })
    }

    /// The Secret with the operator's client certificate for the members, if the spec names one.
    pub fn operator_secret(&self) -> Option<&str> {
        let statics = self.spec.tls.as_ref()?.static_.as_ref()?;
        statics.operator_secret.as_deref().filter(|name| !name.is_empty())
    }
}

fn default_size() -> i32 {
    DEFAULT_SIZE
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A change of `spec.TLS` that is not rolled out yet must not change how the members are contacted.
    #[test]
    fn reported_endpoints_decide_about_tls_before_the_spec_does() {
        let tls = json!({"static": {"operatorSecret": "client"}});
        let none = json!({"static": {"operatorSecret": ""}});
        let (plain, secure) = (
            json!(["http://c-client.a.svc:2379"]),
            json!(["https://c-client.a.svc:2379"]),
        );
        let table = [
            (json!(null), json!(null), false),
            (tls.clone(), json!(null), true),
            (none, json!(null), false),
            (tls.clone(), json!([]), true),
            (tls.clone(), plain.clone(), false),
            (json!(null), secure.clone(), true),
            (tls, secure, true),
            (json!(null), plain, false),
        ];
        for (tls, endpoints, is_secure) in table {
            let cluster: EtcdCluster = serde_json::from_value(json!({
                "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"},
                "spec": {"size": 3, "TLS": tls}, "status": {"endpoints": endpoints},
            }))
            .expect("a cluster");
            assert_eq!(cluster.has_secure_clients(), is_secure, "{tls} {endpoints}");
        }
    }
}
