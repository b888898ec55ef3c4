//! Policies of a cluster: service, authentication, updates, maintenance, recovery, bootstrap, monitoring.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::{self, Span};

/// Settings of the client Service NAME-client.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')").message("service.loadBalancerClass needs service.type: LoadBalancer").field_path(".loadBalancerClass"),
)]
pub struct ServicePolicy {
    /// Type of the Service: ClusterIP, NodePort or LoadBalancer.
    #[serde(default, rename = "type")]
    pub type_: ServiceType,
    /// Annotations of the Service, for example for a cloud load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Load balancer implementation of the Service. Only with type LoadBalancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub load_balancer_class: Option<String>,
    /// DNS names under which clients outside the Kubernetes cluster reach etcd. Managed certificates include them. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub external_names: Option<Vec<String>>,
}

/// Type of the client Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Reachable inside the Kubernetes cluster only.
    #[default]
    ClusterIP,
    /// Reachable on a port of every node.
    NodePort,
    /// Reachable through a load balancer of the cloud.
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
    /// Secret with the credentials of etcd's user root: keys username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub root_secret: Option<String>,
}

/// How changes are rolled out to running members.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// Update strategy: Automatic restarts members one by one, OnDelete waits until a user deletes a pod, Paused rolls nothing out.
    #[serde(default)]
    pub strategy: UpdateStrategy,
    /// Seconds without progress of a restarted member after which the rollout counts as stalled. The other members keep
    /// running. A member that cannot start without the user is reported as stalled after this time, too. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 30 && self <= 86400").message("updates.progressDeadlineSeconds must be 30 to 86400; for example: progressDeadlineSeconds: 600"))]
    pub progress_deadline_seconds: Option<i32>,
    /// Seconds for which the updated members must be ready before the last member of the lower minor version is restarted.
    /// Until then, setting the version back reverses the upgrade. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 86400").message("updates.minReadySeconds must be 0 to 86400; for example: minReadySeconds: 30"))]
    pub min_ready_seconds: Option<i32>,
    /// Whether a backup comes before another minor version: IfConfigured requests one from a periodic EtcdBackup of this
    /// EtcdCluster and waits until it is verified, Never starts without.
    #[serde(default)]
    pub backup_first: BackupFirstPolicy,
    /// Consent to a downgrade by one minor version through etcd's Downgrade API, from 3.7 to 3.6 or from 3.6 to 3.5. A lower patch needs none.
    #[serde(default)]
    pub allow_downgrade: bool,
}

/// How changes are rolled out to running members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// The operator restarts members one by one, the leader last, and each only while the others hold quorum.
    #[default]
    Automatic,
    /// The pod template changes once that is safe, and a member takes it when a user deletes its pod.
    OnDelete,
    /// The pod template stays as it is, and no member is restarted.
    Paused,
}

/// Whether a backup comes before another minor version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupFirstPolicy {
    /// The operator requests a backup from a periodic EtcdBackup of this EtcdCluster, unless all are suspended or there is
    /// none. The change starts once the backup is verified.
    #[default]
    IfConfigured,
    /// The change starts without a backup.
    Never,
}

/// Database maintenance.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenancePolicy {
    /// When the operator defragments a member's database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defrag: Option<DefragPolicy>,
    /// Reaction to an exceeded database quota (NOSPACE): Remediate compacts, defragments and disarms the alarm; Alert only reports it.
    #[serde(default)]
    pub on_no_space: OnNoSpace,
    /// How often the operator compares the members' data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency_check: Option<ConsistencyCheck>,
}

/// When a member's database is defragmented: one member at a time, the leader last.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefragPolicy {
    /// Minimum unused share of the database file, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 1 && self <= 99)").message("maintenance.defrag.fragmentationPercent must be 1 to 99; for example: fragmentationPercent: 50"))]
    pub fragmentation_percent: Option<i32>,
    /// Minimum size of the database file; smaller ones are not defragmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size: Option<Quantity>,
    /// Cron schedule with five fields that limits when defragmentation may start. Default: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub schedule: Option<String>,
}

/// Reaction to an exceeded database quota (NOSPACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnNoSpace {
    /// Compact, defragment member by member, then disarm the alarm so that etcd accepts writes again.
    #[default]
    Remediate,
    /// Report the alarm and wait for the user.
    Alert,
}

/// How often the members' data are compared.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsistencyCheck {
    /// Time between two comparisons, for example 6h.
    pub interval: Span,
}

/// When a member is replaced, and the reaction to quorum loss and data loss.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryPolicy {
    /// How long a node may be gone before the operator replaces its member. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "span::replace_after")]
    pub replace_after: Option<Span>,
    /// Reaction to the permanent loss of a majority of voters: Manual waits for the user's consent, Automatic recovers from the survivor with the most data. Only Manual is implemented: an EtcdCluster with another value is refused.
    #[serde(default)]
    pub on_quorum_loss: OnQuorumLoss,
    /// Reaction when no member has data left: Manual waits, RestoreLatestBackup restores the newest verified backup. Only Manual is implemented: an EtcdCluster with another value is refused.
    #[serde(default)]
    pub on_data_loss: OnDataLoss,
}

/// Reaction to the permanent loss of a majority of voters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnQuorumLoss {
    /// Report the survivors and wait for the user's consent.
    #[default]
    Manual,
    /// Recover from the survivor with the most data, once all other members are confirmed gone.
    Automatic,
}

/// Reaction when no member has data left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDataLoss {
    /// Report it and wait for the user.
    #[default]
    Manual,
    /// Restore the newest verified backup of this cluster.
    RestoreLatestBackup,
}

/// How the cluster starts for the first time.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapSpec {
    /// true makes a new cluster wait for an EtcdRestore that names it, instead of starting empty. It has no effect once the cluster has started.
    #[serde(default)]
    pub await_restore: bool,
}

/// Objects for a monitoring system.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringSpec {
    /// Whether the operator creates a PodMonitor for the members.
    #[serde(default)]
    pub pod_monitor: bool,
}
