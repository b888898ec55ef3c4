//! How the pods of the members are shaped: the ancestor's `PodPolicy` and what users asked for since.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PersistentVolumeClaimSpec, PodSecurityContext, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{reserved, schema};

/// How the pods of the members are shaped.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(oldSelf.persistentVolumeClaimSpec) && has(oldSelf.persistentVolumeClaimSpec.resources) && has(oldSelf.persistentVolumeClaimSpec.resources.requests) && 'storage' in oldSelf.persistentVolumeClaimSpec.resources.requests && has(self.persistentVolumeClaimSpec) && has(self.persistentVolumeClaimSpec.resources) && has(self.persistentVolumeClaimSpec.resources.requests) && 'storage' in self.persistentVolumeClaimSpec.resources.requests) || quantity(string(self.persistentVolumeClaimSpec.resources.requests['storage'])).compareTo(quantity(string(oldSelf.persistentVolumeClaimSpec.resources.requests['storage']))) >= 0").message("pod.persistentVolumeClaimSpec.resources.requests.storage cannot shrink, because volumes only grow: set it to the present size or more; for a smaller volume restore a backup into a new EtcdCluster").field_path(".persistentVolumeClaimSpec"),
)]
pub struct PodPolicy {
    /// Further labels of the pods. The keys app and etcd_* belong to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = reserved::labels_rule())]
    pub labels: Option<BTreeMap<String, String>>,
    /// Further annotations of the pods. The key etcd.version and keys below etcd.database.coreos.com/ belong to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = reserved::annotations_rule())]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels a node must have to run a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Rules about nodes and other pods. It wins over antiAffinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Older form: true forbids two members of this cluster on one node. Use affinity or topologySpreadConstraints in new manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<bool>,
    /// Taints of nodes that the members bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// How members spread over nodes and zones. Default: evenly over both, as far as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// CPU and memory of the containers of a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Environment variables of the etcd container. Variables that decide membership or durability are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), schema_with = "schema::env_vars")]
    #[x_kube(validation = reserved::env_rule())]
    pub etcd_env: Option<Vec<EnvVar>>,
    /// The security context of the pods. Default: an unprivileged user, no privilege escalation, seccomp RuntimeDefault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// Older form of storage: the claim of each member's volume. Use storage in new manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_spec: Option<PersistentVolumeClaimSpec>,
    /// The ServiceAccount of the pods. No token is mounted. Default: the default account of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Seconds a member has to stop before it is killed. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 3600)").message("pod.terminationGracePeriodSeconds must be 0 to 3600; for example: terminationGracePeriodSeconds: 30"))]
    pub termination_grace_period_seconds: Option<i64>,
    /// A strategic merge patch applied last to the pod template, for what no field covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form_patch")]
    pub patch: Option<serde_json::Map<String, serde_json::Value>>,
    /// Accepted for manifests of the older operator and not needed: no busybox container runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub busybox_image: Option<String>,
    /// Accepted for manifests of the older operator and not needed: a member waits for its name to resolve as long as it takes.
    #[serde(
        default,
        rename = "DNSTimeoutInSecond",
        skip_serializing_if = "Option::is_none"
    )]
    pub dns_timeout_in_second: Option<i64>,
    /// The DNS domain of the Kubernetes cluster, for example .cluster.local. It is detected where it is left out.
    #[serde(default, rename = "ClusterDomain", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster_domain: Option<String>,
}
