//! Status of an `EtcdCluster`, which is also the operator's persisted state of this cluster.
//!
//! Values that change with every client write (revision, raft index, sizes) are metrics and not in the status.

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

/// The container of a member's pod that runs etcd.
const ETCD_CONTAINER: &str = "etcd";

/// Status of an `EtcdCluster`, written by the operator.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// Current phase of the cluster, as one word: Invalid, Creating, Waiting, Running, Hibernated, Restoring, Failed.
    #[serde(default)]
    pub phase: String,
    /// Why the cluster is in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the operator does not change the cluster because spec.paused is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control_paused: bool,
    /// Conditions of the cluster, one entry per type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Number of members.
    #[serde(default)]
    pub size: i32,
    /// Name of the client Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Port of the client Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_port: Option<i32>,
    /// Names of the ready and the unready members.
    #[serde(default)]
    pub members: MembersStatus,
    /// Lowest etcd version that a member runs.
    #[serde(default)]
    pub current_version: String,
    /// etcd version that is being rolled out; empty otherwise.
    #[serde(default)]
    pub target_version: String,
    /// etcd version of the members as text: the lowest that runs, and the target after an arrow while the version changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Generation of the spec that this status describes; -1 until an operator has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// etcd's ID of the cluster, in hexadecimal, recorded at the first linearizable read.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Incarnation of the cluster's data: 1 after the first start, increased by each restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Highest incarnation ever issued. No incarnation is used twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_incarnation: Option<i64>,
    /// Ready members of the desired members, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_members: Option<String>,
    /// Members with the current pod template of the members that have a pod, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_members: Option<String>,
    /// Label selector of the members' pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Member that is the raft leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Storage of the members' data, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Client URLs of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub endpoints: Option<Vec<String>>,
    /// Installation of the operator that controls this cluster. Other installations ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controlled_by: Option<String>,
    /// Details of each member, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub member_status: Option<Vec<MemberStatus>>,
    /// What the operator is doing or waiting for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// etcd's ID of the member that was last replaced because of the annotation etcd.database.coreos.com/replace. It prevents a second replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// The pod template that the members run, as JSON, while a newer template is not rolled out yet, or the spec is refused. If
    /// the StatefulSet is deleted in that time, the operator recreates it from this template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_template: Option<String>,
    /// The change of the spec that is rolled out to the members, or was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Spec hashes of the pod templates with which a voter was seen healthy, oldest first. A crash or an unreadable volume
    /// under a template that is not listed can have its cause in the template, so no member is replaced because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub served_spec_hashes: Option<Vec<String>>,
    /// Upper bound of the revision that restores have raised the data to. The next restore raises it further, even if the old cluster can no longer be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_revision: Option<i64>,
    /// UIDs of EtcdRestores that were committed before the last one, oldest first. None of them is executed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub earlier_restores: Option<Vec<String>>,
    /// The restore in progress, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreProgress>,
}

impl EtcdClusterStatus {
    /// The etcd image of the last pod template with which a voter was healthy, while the current one is not known to be such; else
    /// the one in [`applied_template`](Self::applied_template).
    pub fn running_etcd_image(&self) -> Option<String> {
        let last_served = self
            .rollout
            .as_ref()
            .and_then(|rollout| rollout.last_served.as_deref());
        let template = last_served.or(self.applied_template.as_deref())?;
        let template: Value = serde_json::from_str(template).ok()?;
        let containers = template.pointer("/spec/containers")?.as_array()?;
        let etcd = containers
            .iter()
            .find(|container| container["name"] == ETCD_CONTAINER)?;
        etcd["image"].as_str().map(str::to_owned)
    }
}

impl Conditioned for EtcdClusterStatus {
    fn conditions(&self) -> &[Condition] {
        self.conditions.as_deref().unwrap_or_default()
    }
}

/// Names of the members by readiness.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MembersStatus {
    /// Members that serve clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub ready: Option<Vec<String>>,
    /// Members that do not serve clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub unready: Option<Vec<String>>,
}

/// Details of one member.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member and of its pod.
    pub name: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// voter or learner; not set while the member is not in the membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// etcd version that the member runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the member answers and is caught up.
    #[serde(default)]
    pub healthy: bool,
    /// Node of the member's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Storage of the member's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Verdict on the member's disk at its last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// UID of the PersistentVolumeClaim that the member was last seen running on.
    #[serde(default, rename = "claimUID", skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// PersistentVolume that the member was last seen running on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// UID of the pod that the member was last seen running in.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Raft index up to which the member had all entries when it was last recorded. A volume with fewer entries at the next
    /// start was reverted. The value is not updated for every entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_index: Option<i64>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// The change of the spec that is rolled out to the members, or was last.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// etcd version of the change.
    #[serde(default)]
    pub target: String,
    /// Spec hash of the change.
    #[serde(default)]
    pub hash: String,
    /// The value of the annotation etcd.database.coreos.com/restart that the change includes. Once it is the requested one, the
    /// condition RolledOut counts for that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// The last request by kubectl rollout restart of the StatefulSet that was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_at: Option<String>,
    /// Member that is being restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<RolloutMember>,
    /// Whether setting the version back returns the members to the lower minor version. It is false once the last of them is
    /// restarted, and not set before a minor version changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// The etcd versions that the members go through: the one before the change, those on the way, and spec.version. Not set while
    /// the version does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub versions: Option<Vec<String>>,
    /// Which change from one of these versions to the next is due or under way, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i32>,
    /// When the change was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When a member was last restarted or finished its restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressed_at: Option<Time>,
    /// When the backup was requested that comes before another minor version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_requested_at: Option<Time>,
    /// The raft index that every member reaches before another minor version of etcd, so that it has taken a snapshot of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<i64>,
    /// Why the etcd image of the change cannot be used, found by a Job before any member got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_failure: Option<ImageFailureStatus>,
    /// The last pod template with which a voter was healthy, as JSON, until one is healthy with the current template. A restore
    /// that begins in that time uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_served: Option<String>,
}

/// Why an etcd image cannot be used.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFailureStatus {
    /// The image.
    #[serde(default)]
    pub image: String,
    /// The etcd version that it was expected to hold.
    #[serde(default)]
    pub version: String,
    /// NotStarted (the kubelet does not start it), VersionDiffers (it holds another minor version) or NotRunning.
    #[serde(default)]
    pub reason: String,
    /// What the kubelet or etcd said.
    #[serde(default)]
    pub message: String,
    /// How often it was tried in vain since the spec was edited.
    #[serde(default)]
    pub tries: i32,
    /// When it was last tried. It is tried again after 15 seconds, then after pauses that grow to five minutes, and at once after
    /// an edit of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_at: Option<Time>,
    /// Why the last try told nothing, for example a quota or a missing right; absent if that try found the problem, and after
    /// an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_failure: Option<String>,
}

/// The member that a rollout restarts.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutMember {
    /// Name of the member.
    pub name: String,
    /// UID of the pod that is replaced.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// When that pod was seen to be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at: Option<Time>,
}

/// What the operator is doing or waiting for.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// The step in progress, recorded before it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepIntent>,
    /// Why the operator does this, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What must change before the next step is safe, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub blocked_by: Option<Vec<String>>,
    /// What must change before the next step is safe, with a reason for each member. The reference lists all reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub blockers: Option<Vec<BlockerStatus>>,
    /// The next step, if the API server has refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_step: Option<RefusedStep>,
}

/// A fact that must change before the next step is safe.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerStatus {
    /// Reason, as one CamelCase word.
    pub reason: String,
    /// Name of the member that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The reason with its details, as text.
    pub message: String,
}

/// A step that the API server has refused.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedStep {
    /// The step, as the reason of its Event, for example StartPermitted.
    pub step: String,
    /// The API server's message.
    pub message: String,
}

/// One disruptive step, recorded before it begins.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepIntent {
    /// Kind of the step.
    pub kind: String,
    /// Operator process that began the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Incarnation of the data that the step is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Why the step is necessary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How often the step was begun for this cause. The number of attempts is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Members that the step affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub targets: Option<Vec<StepTarget>>,
}

/// A member that a step affects.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepTarget {
    /// Name of the member.
    pub member: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// UID of the member's pod.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Process in the pod that requested the permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Nonce of that process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// UID of the member's PersistentVolumeClaim.
    #[serde(default, rename = "claimUID", skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

impl RestoreProgress {
    /// Whether the restore is in progress. An unknown phase counts as in progress.
    pub fn is_active(&self) -> bool {
        !["Finished", "RolledBack"].contains(&self.phase.as_str())
    }
}

/// The restore in progress, or the last one. This field alone decides between commit and rollback.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// UID of the EtcdRestore.
    pub uid: String,
    /// Name of the EtcdRestore.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// Incarnation of the restored data.
    pub incarnation: i64,
    /// etcd's ID of the restored cluster, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Phase of the restore: Stopping, Preparing, Committed, RollingBack or Serving; at the end Finished or RolledBack.
    pub phase: String,
    /// When the restore entered this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Whether the restore is past its commit point: the old cluster can no longer come back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub committed: bool,
    /// Incarnation of the data before the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_incarnation: Option<i64>,
    /// etcd's ID of the cluster before the restore, in hexadecimal.
    #[serde(
        default,
        rename = "previousClusterID",
        skip_serializing_if = "Option::is_none"
    )]
    pub previous_cluster_id: Option<String>,
    /// Number of members that the restored cluster starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i32>,
    /// Number of members to which the data before the restore were restored, if they never served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_size: Option<i32>,
    /// SHA-256 of the backup object, in hexadecimal.
    #[serde(default, rename = "objectSHA256", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub object_sha256: Option<String>,
    /// How much the restore raises the revision of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<i64>,
    /// Seconds for which the previous data are kept, as requested when the restore began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_previous_seconds: Option<i64>,
    /// Best progress of the members so far, counted in downloaded bytes and prepared members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest: Option<i64>,
    /// When the members made progress last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest_since: Option<Time>,
    /// Whether the client Service routes to the members again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Why the restore is rolled back, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Progress of each member, one entry per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Option<Vec<MemberRestoreStatus>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_of_members_and_step_targets_survive_a_round_trip() {
        let given = json!({"name": "orders-0", "id": "ab", "healthy": true, "later": {"disks": [1]}});
        let member: MemberStatus = serde_json::from_value(given.clone()).expect("a member");
        assert_eq!(serde_json::to_value(member).expect("JSON"), given);
        let given = json!({"member": "orders-0", "podUID": "p", "later": "kept"});
        let target: StepTarget = serde_json::from_value(given.clone()).expect("a target");
        assert_eq!(serde_json::to_value(target).expect("JSON"), given);
    }
}
