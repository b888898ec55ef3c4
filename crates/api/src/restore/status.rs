//! Status of an `EtcdRestore`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    backup::BackupRecord,
    condition::{Condition, Conditioned},
    schema,
};

/// The values of `status.phase` of an `EtcdRestore`.
pub const RESTORE_PHASES: [&str; 12] = [
    "Waiting",
    "Verifying",
    "BackingUp",
    "Stopping",
    "Preparing",
    "Committed",
    "RollingBack",
    "Serving",
    "Succeeded",
    "Failed",
    "RolledBack",
    "Invalid",
];

/// Status of an `EtcdRestore`, written by the operator.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// Whether the cluster serves the restored data.
    #[serde(default)]
    pub succeeded: bool,
    /// Why the restore waits or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Current phase of the restore, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = RESTORE_PHASES))]
    pub phase: Option<String>,
    /// Generation of the spec that this status describes; -1 until an operator has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the restore, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Key of the backup object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// etcd revision of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether the restore is past its commit point. Before it, the old cluster can come back completely; after it, the restore can only continue.
    #[serde(default)]
    pub committed: bool,
    /// Progress of the restore, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Progress of each member, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Option<Vec<MemberRestoreStatus>>,
    /// How often verification of the backup was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Preview of the restore before it changes anything: the backup, its age, and what it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub plan: Option<String>,
    /// The safety backup of the previous data, if spec.safetyBackup is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_backup: Option<BackupRecord>,
    /// When the restore started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the restore finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
}

impl Conditioned for EtcdRestoreStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// Progress of one member in a restore.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRestoreStatus {
    /// Name of the member.
    pub name: String,
    /// Current phase of the member, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Bytes downloaded so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Bytes to download in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// What the member waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_of_a_member_survive_a_round_trip() {
        let given = json!({"name": "orders-0", "bytes": 7, "later": {"parts": [1]}});
        let member: MemberRestoreStatus = serde_json::from_value(given.clone()).expect("a member");
        assert_eq!(serde_json::to_value(member).expect("JSON"), given);
    }
}
