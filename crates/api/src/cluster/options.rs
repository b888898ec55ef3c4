//! Settings of etcd itself: database quota, compaction, raft timing, extra flags.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reserved;

/// Settings of etcd itself. Unset fields keep etcd's own defaults.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.heartbeatMs) || !has(self.electionMs) || self.electionMs >= self.heartbeatMs * 5").message("etcd.electionMs must be at least five times etcd.heartbeatMs, or elections never settle; for example: heartbeatMs: 100, electionMs: 1000").field_path(".electionMs"),
)]
pub struct EtcdOptions {
    /// Maximum size of the database; beyond it etcd refuses writes (NOSPACE). For example 4Gi. etcd recommends at most 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')))").message("etcd.quotaBackendBytes must be a quantity above zero; for example: quotaBackendBytes: 4Gi"))]
    pub quota_backend_bytes: Option<Quantity>,
    /// Automatic compaction of old revisions. Without it, nothing is compacted unless a client requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
    /// Number of applied raft entries between two raft snapshots on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 100 && self <= 1000000)").message("etcd.snapshotCount must be 100 to 1000000; for example: snapshotCount: 10000"))]
    pub snapshot_count: Option<i64>,
    /// Interval of the leader's heartbeats in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 10 && self <= 10000)").message("etcd.heartbeatMs must be 10 to 10000; for example: heartbeatMs: 100"))]
    pub heartbeat_ms: Option<i32>,
    /// Election timeout in milliseconds: how long a follower waits for a heartbeat before it starts an election. At least five times heartbeatMs, at most 50000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 50 && self <= 50000)").message("etcd.electionMs must be 50 to 50000; for example: electionMs: 1000"))]
    pub election_ms: Option<i32>,
    /// Maximum size of a client request in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(self >= 1024 && self <= 104857600)").message("etcd.maxRequestBytes must be 1024 to 104857600; for example: maxRequestBytes: 1572864"))]
    pub max_request_bytes: Option<i64>,
    /// Additional etcd flags, each written --name=value. Flags for identity, membership, addresses, certificates or durability are reserved for the operator and rejected by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    #[x_kube(
        validation = Rule::new("self.all(a, a.matches('^--[a-z][-a-z0-9]*(=.*)?$'))").message("etcd.extraArgs must hold flags written --name=value; for example: extraArgs: [--log-level=warn]"),
        validation = reserved::flags_rule(),
    )]
    pub extra_args: Option<Vec<String>>,
}

/// Automatic compaction of old revisions by etcd.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(!has(self.mode) || self.mode == 'Periodic') ? self.retention.matches('^([0-9]+(h|m|s))+$|^[0-9]+$') : self.retention.matches('^[0-9]+$')").message("etcd.autoCompaction.retention must be a time for mode Periodic (for example 1h) and a number of revisions for mode Revision (for example \"10000\")").field_path(".retention"),
)]
pub struct AutoCompaction {
    /// Compaction mode: Periodic keeps the revisions of a time window, Revision keeps a number of revisions.
    #[serde(default)]
    pub mode: AutoCompactionMode,
    /// How much to keep: a duration such as 1h for Periodic, a number such as "10000" for Revision.
    #[schemars(length(min = 1, max = 32))]
    pub retention: String,
}

/// Mode of the automatic compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutoCompactionMode {
    /// Keep the revisions of a time window.
    #[default]
    Periodic,
    /// Keep a number of revisions.
    Revision,
}
