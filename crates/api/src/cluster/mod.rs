//! `EtcdCluster`: one etcd cluster, its members, storage and policies.

mod options;
mod pod;
mod policy;
mod status;
mod storage;
mod tls;

pub use options::{AutoCompaction, AutoCompactionMode, EtcdOptions};
pub use pod::PodPolicy;
pub use policy::{
    AuthSpec, BootstrapSpec, ConsistencyCheck, DefragPolicy, MaintenancePolicy, MonitoringSpec, OnDataLoss,
    OnNoSpace, OnQuorumLoss, RecoveryPolicy, ServicePolicy, ServiceType, UpdatePolicy, UpdateStrategy,
};
pub use status::{
    EtcdClusterStatus, MemberStatus, MembersStatus, PlanStatus, RestoreProgress, StepIntent, StepTarget,
};
pub use storage::{Medium, Retention, StorageSpec};
pub use tls::{CertManagerTls, IssuerRef, ManagedTls, MemberSecrets, StaticTls, TlsPolicy};

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The most members a cluster can have: beyond nine, each write waits for too many disks.
pub const MAX_SIZE: i32 = 9;
/// The number of members of a cluster whose spec does not say.
pub const DEFAULT_SIZE: i32 = 3;
/// Where the etcd image comes from unless the spec says otherwise.
pub const DEFAULT_REPOSITORY: &str = "quay.io/coreos/etcd";

/// What an etcd cluster should look like.
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
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "What the cluster is doing"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.readyMembers", description = "Ready members of those wanted"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion", description = "The etcd version that runs"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader", description = "The member that leads"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Time since the object was created"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size", priority = 1, description = "Members wanted"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".status.storage", priority = 1, description = "What the members keep their data on"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1, description = "Why the cluster is in this phase"),
    validation = Rule::new("self.metadata.name.size() <= 52").message("metadata.name must have at most 52 characters, because pods, services and volumes carry it with a suffix; for example: orders-etcd"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must start with a letter and hold only lower-case letters, digits and '-', because Services carry it; for example: orders-etcd"),
    validation = Rule::new("!self.metadata.name.endsWith('-client')").message("metadata.name must not end in '-client': NAME-client is the client Service of the cluster NAME; for example: orders-etcd"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.size) || self.size != 0 || (has(self.storage) && (!has(self.storage.medium) || self.storage.medium == 'PersistentVolume')) || (has(self.pod) && has(self.pod.persistentVolumeClaimSpec))").message("size 0 hibernates the cluster and needs data that outlives its pods: set storage.medium: PersistentVolume, or a size of 1 to 9").field_path(".size"),
    validation = Rule::new("!(has(self.storage) && has(self.pod) && has(self.pod.persistentVolumeClaimSpec))").message("storage and pod.persistentVolumeClaimSpec both describe the volumes: keep one of them, for example storage: {size: 8Gi}").field_path(".storage"),
    validation = Rule::new("(has(self.storage) ? (has(self.storage.medium) ? self.storage.medium : 'PersistentVolume') : (has(self.pod) && has(self.pod.persistentVolumeClaimSpec) ? 'PersistentVolume' : 'EmptyDir')) == (has(oldSelf.storage) ? (has(oldSelf.storage.medium) ? oldSelf.storage.medium : 'PersistentVolume') : (has(oldSelf.pod) && has(oldSelf.pod.persistentVolumeClaimSpec) ? 'PersistentVolume' : 'EmptyDir'))").message("storage.medium cannot change while the cluster exists: back the cluster up and restore it into a new EtcdCluster with the other medium"),
)]
pub struct EtcdClusterSpec {
    /// How many members the cluster has: 1 to 9, an odd number tolerates the most failures for its cost. 0 hibernates the cluster: its pods go, its volumes stay.
    #[serde(default = "default_size")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 9").message("size must be 0 to 9, where 0 hibernates the cluster; for example: size: 3"))]
    pub size: i32,

    /// The etcd version, with or without a leading v, for example 3.6.16. Without it the tag of image counts; without that the newest known patch of the default minor, which status.currentVersion then shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self == '' || self.matches('^v?[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?$')").message("version must be MAJOR.MINOR.PATCH; for example: version: 3.6.16"))]
    pub version: Option<String>,

    /// The image repository, to which ':v' and the version are added. Default: quay.io/coreos/etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ @]*$')").message("repository must be an image name without tag or digest; for example: repository: quay.io/coreos/etcd"))]
    pub repository: Option<String>,

    /// A whole image reference, with tag or digest. It wins over repository and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^ ]*$')").message("image must be an image reference without spaces; for example: image: quay.io/coreos/etcd:v3.6.16"))]
    pub image: Option<String>,

    /// When the kubelet pulls the image: Always, IfNotPresent or Never. Default: as Kubernetes decides from the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets with the credentials of the registry that holds the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub image_pull_secrets: Option<Vec<k8s_openapi::api::core::v1::LocalObjectReference>>,

    /// While true the operator observes and reports, and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// How the pods of the members are shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodPolicy>,

    /// What the members keep their data on. Without it, and without pod.persistentVolumeClaimSpec, data lives as long as the pod (EmptyDir), which the StorageEphemeral condition says aloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdOptions>,

    /// The client Service NAME-client, and names under which clients outside the cluster reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServicePolicy>,

    /// Encryption and mutual authentication of peer and client traffic. Without it both are plain.
    #[serde(default, rename = "TLS", skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPolicy>,

    /// etcd's own authentication of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,

    /// How changes of version, image and pod shape reach running members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<UpdatePolicy>,

    /// Defragmentation, what happens when the quota is full, and checks that all members hold the same data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<MaintenancePolicy>,

    /// When a member is replaced, and what happens when quorum or all data are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryPolicy>,

    /// How the cluster comes into being.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapSpec>,

    /// Objects for a monitoring system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<MonitoringSpec>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum ImagePullPolicy {
    /// Ask the registry before each start of a container.
    Always,
    /// Pull only what the node does not have.
    IfNotPresent,
    /// Use only what the node has.
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

impl EtcdClusterSpec {
    /// The image of etcd in a member's pod that runs this version, which may be empty where it is not known; none if that
    /// leaves it open.
    pub fn etcd_image(&self, version: &str) -> Option<String> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let of_version = || {
            let repository = filled(&self.repository).unwrap_or_else(|| DEFAULT_REPOSITORY.to_owned());
            (!version.is_empty()).then(|| format!("{repository}:v{version}"))
        };
        filled(&self.image).or_else(of_version)
    }
}

impl EtcdCluster {
    /// Whether members speak TLS to clients. The address in the status is that of members as they run; until there is one
    /// the spec tells, whose edits reach no member that runs.
    pub fn has_secure_clients(&self) -> bool {
        let endpoints = self.status.as_ref().and_then(|status| status.endpoints.as_ref());
        let told = endpoints.and_then(|endpoints| endpoints.first());
        told.map_or(self.operator_secret().is_some(), |address| {
            address.starts_with("https://")
        })
    }

    /// The Secret that the operator shows to members, if the spec names one.
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

    /// A field that is pending must not make anybody ask members otherwise than they answer.
    #[test]
    fn members_speak_as_they_run_and_not_as_the_spec_would_have_them() {
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
