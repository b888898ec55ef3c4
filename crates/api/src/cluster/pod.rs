//! Pod settings of the members: the fields of the older operator's `PodPolicy`, and newer ones.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PersistentVolumeClaimSpec, PodSecurityContext, ResourceRequirements, Toleration,
    TopologySpreadConstraint,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{reserved, schema};

/// Pod settings of the members.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(oldSelf.persistentVolumeClaimSpec) && has(oldSelf.persistentVolumeClaimSpec.resources) && has(oldSelf.persistentVolumeClaimSpec.resources.requests) && 'storage' in oldSelf.persistentVolumeClaimSpec.resources.requests && has(self.persistentVolumeClaimSpec) && has(self.persistentVolumeClaimSpec.resources) && has(self.persistentVolumeClaimSpec.resources.requests) && 'storage' in self.persistentVolumeClaimSpec.resources.requests) || quantity(string(self.persistentVolumeClaimSpec.resources.requests['storage'])).compareTo(quantity(string(oldSelf.persistentVolumeClaimSpec.resources.requests['storage']))) >= 0").message("pod.persistentVolumeClaimSpec.resources.requests.storage cannot shrink, because volumes only grow: set it to the present size or more; for a smaller volume restore a backup into a new EtcdCluster").field_path(".persistentVolumeClaimSpec"),
)]
pub struct PodPolicy {
    /// Additional labels of the pods. The keys app and etcd_* are reserved for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = reserved::labels_rule())]
    pub labels: Option<BTreeMap<String, String>>,
    /// Additional annotations of the pods. The key etcd.version and keys under etcd.database.coreos.com/ are reserved for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = reserved::annotations_rule())]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Node labels required to run a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Affinity of the pods. It takes precedence over antiAffinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Deprecated; use affinity or topologySpreadConstraints. true forbids two members of this cluster on one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<bool>,
    /// Tolerations of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// How the members spread over nodes and zones. Default: evenly over both, as far as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// CPU and memory of the containers of a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Environment variables of the etcd container. Variables that set reserved etcd flags, such as ETCD_INITIAL_CLUSTER, are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), schema_with = "schema::env_vars")]
    #[x_kube(validation = reserved::env_rule())]
    pub etcd_env: Option<Vec<EnvVar>>,
    /// Security context of the pods. Default: an unprivileged user, no privilege escalation, seccomp profile RuntimeDefault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// Deprecated; use storage. Spec of each member's PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_spec: Option<PersistentVolumeClaimSpec>,
    /// ServiceAccount of the pods. No token is mounted. Default: the default ServiceAccount of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Grace period for stopping a member, in seconds. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 0 && self <= 3600)").message("pod.terminationGracePeriodSeconds must be 0 to 3600; for example: terminationGracePeriodSeconds: 30"))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Strategic merge patch for the pod template, applied last, for settings that no other field covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form_patch")]
    pub patch: Option<serde_json::Map<String, serde_json::Value>>,
    /// Ignored; accepted for manifests of the older operator. No busybox container runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub busybox_image: Option<String>,
    /// Ignored; accepted for manifests of the older operator. A member waits for its DNS name without a timeout.
    #[serde(
        default,
        rename = "DNSTimeoutInSecond",
        skip_serializing_if = "Option::is_none"
    )]
    pub dns_timeout_in_second: Option<i64>,
    /// DNS domain of the Kubernetes cluster, for example .cluster.local. Default: detected.
    #[serde(default, rename = "ClusterDomain", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster_domain: Option<String>,
}
