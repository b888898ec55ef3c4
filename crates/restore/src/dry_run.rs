//! Predicts what a restore would do: which backup it selects, what it replaces, how much space it needs, and whether it is
//! refused. Pure; uses the same selection and preconditions as the controller.

mod display;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::Verified;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::Serialize;

use crate::build;
use crate::desired::desired;
use crate::observe::{competing_restore_among, find_cluster, is_multi_node};
use crate::observed_state::ObservedRestore;
use crate::persisted_state::PersistedState;
use crate::plan::{Reason, check_preconditions, check_ready, required_space, select_source};

/// The version of the JSON output.
const VERSION: u32 = 1;

/// The objects that a dry run is based on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The restore, which need not exist yet.
    pub restore: &'a EtcdRestore,
    /// The cluster of the restore.
    pub cluster: Option<&'a EtcdCluster>,
    /// The `EtcdBackup` of the restore.
    pub backup: Option<&'a EtcdBackup>,
    /// All restores of the namespace.
    pub others: &'a [EtcdRestore],
    /// The PVC with the backup.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The current time.
    pub now: Timestamp,
}

/// The observed state that the controller would see, without Jobs.
pub fn observe(inputs: &Inputs<'_>) -> Result<ObservedRestore, Vec<Refusal>> {
    let restore = inputs.restore;
    let key = ObjectKey::of(restore);
    let desired = desired(restore)?;
    let uid = restore.metadata.uid.clone().unwrap_or_default();
    let cluster_key = key.beside(&desired.cluster);
    let template = desired.template.as_ref().filter(|_| inputs.cluster.is_none());
    let new_cluster = template.map(|template| build::cluster(template, &cluster_key, &uid, None));
    // Only Jobs need the image, and a dry run creates none.
    let repository = DefaultRepository::default();
    let cluster = inputs.cluster.or(new_cluster.as_ref());
    Ok(ObservedRestore {
        now: inputs.now,
        name: key.name.clone(),
        uid,
        is_edited: false,
        state: PersistedState::read(restore.status.as_ref()),
        cluster: find_cluster(&desired.cluster, cluster, &key, &repository),
        is_cluster_missing: false,
        scope: None,
        source: select_source(&desired, inputs.backup, None),
        competing_restore: competing_restore_among(restore, inputs.others.iter(), inputs.cluster),
        is_pvc_shared: inputs.claim.cloned().and_then(is_multi_node),
        jobs: Vec::new(),
        foreign_job: None,
        operator_image: Ok(String::new()),
        desired,
    })
}

/// The result of checking the backup.
#[derive(Clone, Debug, PartialEq)]
pub enum BackupCheck {
    /// The whole backup was read and verified.
    Full(Box<Verified>),
    /// Only size, hash and both ends of the backup were checked.
    Quick(Box<Verified>),
    /// The backup could not be read, for this reason.
    Failed(String),
}

/// What a restore would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// The version of this format.
    pub version: u32,
    /// Namespace and name of the restore.
    pub restore: String,
    /// Whether the restore would be carried out.
    pub passes: bool,
    /// The reason that the Progressing condition would have.
    pub reason: String,
    /// What the restore would do, or why it would be refused.
    pub message: String,
    /// The selected backup, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// The cluster whose data would be replaced, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplacedCluster>,
    /// Free bytes that each volume needs in addition to the previous data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
}

/// The backup that would be restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Key of the object in the store.
    pub object: String,
    /// How the backup was verified: `whole`, `ends` or `no`.
    pub verified: &'static str,
    /// Revision of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Number of keys; only counted by a full verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// When the backup completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Age of the backup in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<i64>,
    /// Stored size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Size of the snapshot in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_size: Option<u64>,
    /// The etcd version that wrote the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Whether authentication is enabled in the backup.
    pub auth_enabled: bool,
    /// Number of etcd users in the backup.
    pub users: u64,
    /// Number of etcd roles in the backup.
    pub roles: u64,
    /// Alarms in the backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
}

/// The cluster whose data would be replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacedCluster {
    /// Name of the `EtcdCluster`.
    pub cluster: String,
    /// The etcd version of the cluster, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Size of a member's volume in bytes; absent for ephemeral data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<u64>,
    /// The current state of its members.
    pub members: Vec<MemberState>,
    /// The highest revision of the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Number of revisions that the backup does not contain; absent if the backup is newer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_revisions: Option<i64>,
}

/// The current state of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberState {
    /// Name of the member.
    pub name: String,
    /// Revision of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Size of its database in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<u64>,
    /// Why revision and size are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// Predicts what the restore would do with the checked backup.
pub fn dry_run(
    restore: &EtcdRestore,
    observed: &ObservedRestore,
    check: &BackupCheck,
    members: Vec<MemberState>,
) -> DryRun {
    let verified = match check {
        BackupCheck::Full(verified) | BackupCheck::Quick(verified) => Some(&**verified),
        BackupCheck::Failed(_) => None,
    };
    let check = &with_old_data(check, &members);
    let (passes, reason, message) = match decide(observed, check) {
        Ok(description) => (true, Reason::Verified, description),
        Err((reason, why)) => (false, reason, why),
    };
    DryRun {
        version: VERSION,
        restore: ObjectKey::of(restore).to_string(),
        passes,
        reason: reason.as_str().to_owned(),
        message,
        backup: backup(observed, check),
        replaces: replaced_cluster(observed, verified, members),
        room: verified.map(required_space),
    }
}

/// Adds the size of the members' databases, which the verification Job of a restore would determine itself.
fn with_old_data(check: &BackupCheck, members: &[MemberState]) -> BackupCheck {
    let largest = members.iter().filter_map(|member| member.database).max();
    let mut check = check.clone();
    if let BackupCheck::Full(verified) | BackupCheck::Quick(verified) = &mut check {
        verified.beside = verified.beside.max(largest);
    }
    check
}

/// What the restore would do, or why it would not be carried out. Reasons that only a Job would find are not part of
/// it.
fn decide(observed: &ObservedRestore, check: &BackupCheck) -> Result<String, (Reason, String)> {
    if observed.state.succeeded || observed.was_committed_earlier() {
        let text = "this restore was already carried out, and a restore is never repeated: create another EtcdRestore";
        return Err((Reason::Restored, text.to_owned()));
    }
    let (cluster, source) = check_ready(observed)?;
    match check {
        BackupCheck::Full(verified) | BackupCheck::Quick(verified) => {
            check_preconditions(observed, cluster, source, verified).map(|(_, description)| description)
        }
        BackupCheck::Failed(why) => {
            let text = format!("the verification of {} failed: {why}", source.object);
            Err((Reason::VerificationFailed, text))
        }
    }
}

fn backup(observed: &ObservedRestore, check: &BackupCheck) -> Option<Backup> {
    let source = observed.source.as_ref().ok()?;
    let object = source.object.clone();
    let (verified, verified_by) = match check {
        BackupCheck::Full(verified) => (verified, "whole"),
        BackupCheck::Quick(verified) => (verified, "ends"),
        BackupCheck::Failed(_) => {
            return Some(Backup {
                object,
                verified: "no",
                ..Backup::default()
            });
        }
    };
    let age = verified
        .completed_at
        .map(|at| observed.now.duration_since(at).as_secs());
    let facts = &verified.object;
    Some(Backup {
        object,
        verified: verified_by,
        revision: Some(verified.revision),
        keys: (verified_by == "whole").then_some(verified.keys),
        completed_at: verified.completed_at,
        age_seconds: age,
        size: Some(facts.size),
        snapshot_size: Some(facts.snapshot_size),
        etcd_version: verified
            .etcd_version
            .clone()
            .or_else(|| verified.cluster_version.clone()),
        auth_enabled: verified.auth_enabled,
        users: verified.users,
        roles: verified.roles,
        alarms: verified.alarms.clone(),
    })
}

/// The cluster whose data the restore would replace; `None` if it does not exist, is being deleted, or waits for a
/// restore.
fn replaced_cluster(
    observed: &ObservedRestore,
    verified: Option<&Verified>,
    members: Vec<MemberState>,
) -> Option<ReplacedCluster> {
    let cluster = observed
        .cluster
        .as_ref()
        .ok()
        .filter(|cluster| !cluster.awaits_restore)?;
    let revision = members.iter().filter_map(|member| member.revision).max();
    let lost =
        |(now, verified): (i64, &Verified)| (now >= verified.revision).then(|| now - verified.revision);
    Some(ReplacedCluster {
        cluster: cluster.name.clone(),
        etcd_version: cluster.version.as_ref().map(ToString::to_string),
        volume: cluster.volume_size,
        revision,
        lost_revisions: revision.zip(verified).and_then(lost),
        members,
    })
}

#[cfg(test)]
mod tests;
