//! What the operator reports about an `EtcdCluster`, and the durable memory of its plans.
//!
//! Figures that change with every client write (revision, raft index, sizes) do not belong here: they live in metrics.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    condition::{Condition, Conditioned},
    restore::MemberRestoreStatus,
    schema,
};

/// What the operator reports about an `EtcdCluster`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// What the cluster is doing, in one word: Invalid, Creating, Waiting, Running, Hibernated, Restoring, Failed.
    #[serde(default)]
    pub phase: String,
    /// Why the cluster is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the operator leaves the cluster alone because spec.paused is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control_paused: bool,
    /// What is true of the cluster, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// How many members the cluster has.
    #[serde(default)]
    pub size: i32,
    /// The Service for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The port for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_port: Option<i32>,
    /// Names of the members that serve and of those that do not.
    #[serde(default)]
    pub members: MembersStatus,
    /// The etcd version that runs on all members.
    #[serde(default)]
    pub current_version: String,
    /// The etcd version that is being rolled out, empty otherwise.
    #[serde(default)]
    pub target_version: String,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// etcd's ID of the cluster, in hexadecimal, fixed at the first linearizable read.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Which life of the cluster's data runs: 1 after the first start, one more after each restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// The highest incarnation ever given out; none is used twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_incarnation: Option<i64>,
    /// Ready members of those wanted, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_members: Option<String>,
    /// The label selector of the members' pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The member that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// What the members keep their data on, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Addresses for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub endpoints: Option<Vec<String>>,
    /// The installation of the operator that looks after this cluster; another one leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlled_by: Option<String>,
    /// Each member in detail, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub member_status: Option<Vec<MemberStatus>>,
    /// What the operator does or waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// etcd's ID of the member that was last replaced because a person asked for it by annotation: it is not done twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// The pod template that runs, as JSON, while another one is asked for and not rolled out: a StatefulSet that is
    /// deleted meanwhile is made from it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_template: Option<String>,
    /// The revision to which restores have raised the data at most: the next one goes beyond it, whoever can still tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_revision: Option<i64>,
    /// The UIDs of the EtcdRestores that were committed before the last one, the newest at the end: none is carried out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub earlier_restores: Option<Vec<String>>,
    /// The restore that is under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreProgress>,
}

impl Conditioned for EtcdClusterStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// Names of members by readiness.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MembersStatus {
    /// Members that serve clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub ready: Option<Vec<String>>,
    /// Members that do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub unready: Option<Vec<String>>,
}

/// One member in detail.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The member's name, which is its pod's.
    pub name: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// voter, learner, or none while it is not in the membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The etcd version it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it answers and is caught up.
    #[serde(default)]
    pub healthy: bool,
    /// The node it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it keeps its data on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// What its disk was found to be at the last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The UID of the volume claim that it was last seen to run on.
    #[serde(default, rename = "claimUID", skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// The PersistentVolume that it was last seen to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The UID of the pod in which it was last seen to run.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The raft index up to which it had everything then: a volume that holds less when the next pod comes was put back. It is
    /// not written anew for every entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,
    /// What a newer version of the operator wrote besides. It stays, for a list is written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// What the operator does or waits for.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// The step that was written down before it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepIntent>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What must change before the next step is safe, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub blocked_by: Option<Vec<String>>,
}

/// One disruptive step, written down before it is begun.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepIntent {
    /// What kind of step.
    pub kind: String,
    /// The process of the operator that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The incarnation of the data it is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// What made it necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How often it was begun for this cause; it is not tried without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// The members it touches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub targets: Option<Vec<StepTarget>>,
}

/// A member that a step touches.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepTarget {
    /// The member's name.
    pub member: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The UID of its pod.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The process in the pod that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The nonce that process gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// The UID of its volume claim.
    #[serde(default, rename = "claimUID", skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// What a newer version of the operator wrote besides. It stays, for a list is written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

impl RestoreProgress {
    /// Whether it is under way; a phase that is not known counts as one.
    pub fn is_active(&self) -> bool {
        !["Finished", "RolledBack"].contains(&self.phase.as_str())
    }
}

/// The restore that is under way, or the last one: the one field that decides between commit and roll-back.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// The UID of the EtcdRestore.
    pub uid: String,
    /// The name of the EtcdRestore.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// The incarnation the restored data will have.
    pub incarnation: i64,
    /// etcd's ID of the restored cluster, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Stopping, Preparing, Committed, RollingBack or Serving; at the end Finished or RolledBack.
    pub phase: String,
    /// Since when it is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Whether the old cluster can no longer come back: there is only forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committed: bool,
    /// The incarnation of the data of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_incarnation: Option<i64>,
    /// etcd's ID of the cluster of before, in hexadecimal.
    #[serde(
        default,
        rename = "previousClusterID",
        skip_serializing_if = "Option::is_none"
    )]
    pub previous_cluster_id: Option<String>,
    /// How many members the restored cluster begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// The SHA-256 of the object, in hexadecimal.
    #[serde(default, rename = "objectSHA256", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub object_sha256: Option<String>,
    /// By how much the revision of the object is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Seconds the data of before are kept, as was asked for when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_previous_seconds: Option<i64>,
    /// How far the members have come at best: bytes that were fetched, and members that are prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest: Option<i64>,
    /// Since when they have come no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest_since: Option<Time>,
    /// Whether clients are let in again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Why it is rolled back, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Each member's part, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Option<Vec<MemberRestoreStatus>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_newer_version_wrote_of_a_member_is_written_again() {
        let given = json!({"name": "orders-0", "id": "ab", "healthy": true, "later": {"disks": [1]}});
        let member: MemberStatus = serde_json::from_value(given.clone()).expect("a member");
        assert_eq!(serde_json::to_value(member).expect("JSON"), given);
        let given = json!({"member": "orders-0", "podUID": "p", "later": "kept"});
        let target: StepTarget = serde_json::from_value(given.clone()).expect("a target");
        assert_eq!(serde_json::to_value(target).expect("JSON"), given);
    }
}
