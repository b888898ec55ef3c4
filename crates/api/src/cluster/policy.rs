//! Policies of a cluster: service, authentication, updates, maintenance, recovery, bootstrap, monitoring.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;

/// The client Service NAME-client.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')").message("service.loadBalancerClass needs service.type: LoadBalancer").field_path(".loadBalancerClass"),
)]
pub struct ServicePolicy {
    /// ClusterIP, NodePort or LoadBalancer.
    #[serde(default, rename = "type")]
    pub type_: ServiceType,
    /// Annotations of the Service, for example for a cloud's load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Which load balancer implementation serves it. Only with type LoadBalancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub load_balancer_class: Option<String>,
    /// Names under which clients outside the Kubernetes cluster reach etcd; they go into managed certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub external_names: Option<Vec<String>>,
}

/// How a Service is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Inside the Kubernetes cluster only.
    #[default]
    ClusterIP,
    /// On a port of every node.
    NodePort,
    /// Through a load balancer of the cloud.
    LoadBalancer,
}

/// etcd's own authentication of users.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!self.enabled || (has(self.rootSecret) && self.rootSecret != '')").message("auth.rootSecret must name the Secret with the password of etcd's user root when auth.enabled is true; for example: rootSecret: etcd-root").field_path(".rootSecret"),
)]
pub struct AuthSpec {
    /// Whether clients must authenticate.
    #[serde(default)]
    pub enabled: bool,
    /// The Secret with the password of etcd's user root: keys username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub root_secret: Option<String>,
}

/// How changes reach running members.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// Automatic restarts members one by one, OnDelete waits until somebody deletes a pod, Paused changes nothing.
    #[serde(default)]
    pub strategy: UpdateStrategy,
    /// Whether the version may go down by one minor, where etcd can do it.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// How changes reach running members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// Members are restarted one by one, the leader last, each only while the others hold quorum.
    #[default]
    Automatic,
    /// A member takes the change when somebody deletes its pod.
    OnDelete,
    /// Nothing changes.
    Paused,
}

/// Regular care of the database.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenancePolicy {
    /// When a member's database is defragmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag: Option<DefragPolicy>,
    /// What happens when the quota is full: Remediate compacts, defragments and disarms; Alert only reports.
    #[serde(default)]
    pub on_no_space: OnNoSpace,
    /// How often the members' data are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency_check: Option<ConsistencyCheck>,
}

/// When a member's database is defragmented: one member at a time, the leader last.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragPolicy {
    /// The share of the file that must be unused, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 1 && self <= 99)").message("maintenance.defrag.fragmentationPercent must be 1 to 99; for example: fragmentationPercent: 50"))]
    pub fragmentation_percent: Option<i32>,
    /// The size of the file below which nothing is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size: Option<Quantity>,
    /// When it may happen, as a cron expression of five fields. Default: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub schedule: Option<String>,
}

/// What happens when the quota of the database is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnNoSpace {
    /// Compact, defragment member by member, then allow writes again.
    #[default]
    Remediate,
    /// Report it and wait for a person.
    Alert,
}

/// How often the members' data are compared.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsistencyCheck {
    /// The time between two comparisons, for example 6h.
    pub interval: Span,
}

/// When a member is replaced, and what happens when quorum or all data are lost.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryPolicy {
    /// How long a node may be gone before its member is replaced. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after: Option<Span>,
    /// What happens when a majority of voters is lost for good: Manual waits for consent, Automatic recovers from the survivor with the most data.
    #[serde(default)]
    pub on_quorum_loss: OnQuorumLoss,
    /// What happens when no member has data any more: Manual waits, RestoreLatestBackup restores the newest verified backup.
    #[serde(default)]
    pub on_data_loss: OnDataLoss,
}

/// What happens when a majority of voters is lost for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnQuorumLoss {
    /// Report the survivors and wait for a person's consent.
    #[default]
    Manual,
    /// Recover from the survivor with the most data, once all others are confirmed gone.
    Automatic,
}

/// What happens when no member has data any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDataLoss {
    /// Report it and wait for a person.
    #[default]
    Manual,
    /// Restore the newest verified backup of this cluster.
    RestoreLatestBackup,
}

/// How the cluster comes into being.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapSpec {
    /// True makes the cluster wait for an EtcdRestore that names it, instead of starting empty. Without effect once it has started.
    #[serde(default)]
    pub await_restore: bool,
}

/// Objects for a monitoring system.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringSpec {
    /// Whether a PodMonitor for the members is kept.
    #[serde(default)]
    pub pod_monitor: bool,
}
