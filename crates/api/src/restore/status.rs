//! What the operator reports about an `EtcdRestore`.

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

/// What the operator reports about an `EtcdRestore`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// Whether the cluster serves the restored data.
    #[serde(default)]
    pub succeeded: bool,
    /// Why the restore waits or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the restore is doing, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is true of the restore, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The object that is restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The revision the object holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Whether the old data are given up: before that the old cluster can come back whole, after it there is only forward.
    #[serde(default)]
    pub committed: bool,
    /// How far the restore is, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Each member's part, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Option<Vec<MemberRestoreStatus>>,
    /// How often the backup was begun to be verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// What will happen, before anything is touched: the object, how old it is, what is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub plan: Option<String>,
    /// The backup of the data of before, where spec.safetyBackup asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_backup: Option<BackupRecord>,
    /// When the restore started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the restore was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
}

impl Conditioned for EtcdRestoreStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// One member's part of a restore.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRestoreStatus {
    /// The member's name.
    pub name: String,
    /// What it does, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Bytes that have arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Bytes that will arrive in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// What a newer version of the operator wrote besides. It stays, for a list is written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_newer_version_wrote_of_a_members_part_is_written_again() {
        let given = json!({"name": "orders-0", "bytes": 7, "later": {"parts": [1]}});
        let part: MemberRestoreStatus = serde_json::from_value(given.clone()).expect("a part");
        assert_eq!(serde_json::to_value(part).expect("JSON"), given);
    }
}
