//! What a restore would do, told before anything is done: which backup, what it replaces, what it takes, and whether it
//! may be at all. Pure; the same choice and the same gate as the controller's.

mod text;

use etcd_operator_api::contract::Verified;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::Serialize;

use crate::build;
use crate::desired::desired;
use crate::memory::Memory;
use crate::observe::{found_cluster, rival_among, takes_several};
use crate::plan::{Reason, chosen, pass, ready, room};
use crate::world::World;

/// The version of the form that programs read.
const VERSION: u32 = 1;

/// The objects that a preview is made from, as they are.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// The restore, which need not exist yet.
    pub restore: &'a EtcdRestore,
    /// The cluster that it names.
    pub cluster: Option<&'a EtcdCluster>,
    /// The backup that it names.
    pub backup: Option<&'a EtcdBackup>,
    /// All restores of the namespace.
    pub others: &'a [EtcdRestore],
    /// The claim that the backup lies on.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The time.
    pub now: Timestamp,
}

/// The world that the controller would see, without its Jobs.
pub fn world(objects: &Objects<'_>) -> Result<World, Vec<Refusal>> {
    let restore = objects.restore;
    let key = ObjectKey::of(restore);
    let desired = desired(restore)?;
    let uid = restore.metadata.uid.clone().unwrap_or_default();
    let of_cluster = key.beside(&desired.cluster);
    let template = desired.template.as_ref().filter(|_| objects.cluster.is_none());
    let made = template.map(|template| build::cluster(template, &of_cluster, &uid, None));
    Ok(World {
        now: objects.now,
        name: key.name.clone(),
        uid,
        is_edited: false,
        memory: Memory::read(restore.status.as_ref()),
        cluster: found_cluster(&desired.cluster, objects.cluster.or(made.as_ref()), &key),
        is_cluster_missing: false,
        scope: None,
        source: chosen(&desired, objects.backup, None),
        rival: rival_among(restore, objects.others.iter(), objects.cluster),
        is_claim_shared: objects.claim.cloned().and_then(takes_several),
        jobs: Vec::new(),
        foreign: None,
        image: Ok(String::new()),
        desired,
    })
}

/// How well the backup is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// It was read from end to end.
    Whole(Box<Verified>),
    /// Its size, its hash and its ends were looked at.
    Ends(Box<Verified>),
    /// It could not be read, and why.
    No(String),
}

/// What a restore would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The version of this form.
    pub version: u32,
    /// Namespace and name of the restore.
    pub restore: String,
    /// Whether it would be carried out.
    pub passes: bool,
    /// The same in a word, as the condition Progressing would have it.
    pub reason: String,
    /// The same in words: what will happen, or why it must not.
    pub message: String,
    /// The backup, where one is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// What would be replaced, where there is anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
    /// Bytes that each volume must hold beside the data of before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
}

/// The backup that would be restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Its key in the store.
    pub object: String,
    /// How it was verified: whole, ends, or no.
    pub verified: &'static str,
    /// The revision it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How many keys it holds; only a whole reading counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// When it was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// How many seconds ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<i64>,
    /// Bytes as stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes of the snapshot in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_size: Option<u64>,
    /// The etcd version that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Whether it asks clients who they are.
    pub auth_enabled: bool,
    /// How many users of etcd are in it.
    pub users: u64,
    /// How many roles.
    pub roles: u64,
    /// Alarms under which it was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
}

/// What would be replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// The `EtcdCluster`.
    pub cluster: String,
    /// The version it runs, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Bytes of each member's volume; none where the data live with the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<u64>,
    /// Its members as they are now.
    pub members: Vec<MemberNow>,
    /// The highest revision of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How many revisions of it are not in the backup; nothing is said where it holds none of this history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_revisions: Option<i64>,
}

/// A member as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberNow {
    /// Its name.
    pub name: String,
    /// The revision of its data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Bytes of its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<u64>,
    /// Why neither is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What the restore of this world would do with a backup that is known so well.
pub fn preview(restore: &EtcdRestore, world: &World, known: &Known, members: Vec<MemberNow>) -> Preview {
    let verified = match known {
        Known::Whole(verified) | Known::Ends(verified) => Some(&**verified),
        Known::No(_) => None,
    };
    let known = &beside(known, &members);
    let (passes, reason, message) = match verdict(world, known) {
        Ok(words) => (true, Reason::Verified, words),
        Err((reason, why)) => (false, reason, why),
    };
    Preview {
        version: VERSION,
        restore: ObjectKey::of(restore).to_string(),
        passes,
        reason: reason.as_str().to_owned(),
        message,
        backup: backup(world, known),
        replaces: replaced(world, verified, members),
        room: verified.map(room),
    }
}

/// The same beside the data of these members, as a restore would find out by itself.
fn beside(known: &Known, members: &[MemberNow]) -> Known {
    let largest = members.iter().filter_map(|member| member.database).max();
    let mut known = known.clone();
    if let Known::Whole(verified) | Known::Ends(verified) = &mut known {
        verified.beside = verified.beside.max(largest);
    }
    known
}

fn verdict(world: &World, known: &Known) -> Result<String, (Reason, String)> {
    if world.memory.succeeded || world.is_earlier() {
        let text = "this restore was carried out, and no restore is carried out twice: create another one";
        return Err((Reason::Restored, text.to_owned()));
    }
    let (cluster, source) = ready(world)?;
    match known {
        Known::Whole(verified) | Known::Ends(verified) => {
            pass(world, cluster, source, verified).map(|(_, words)| words)
        }
        Known::No(why) => {
            let text = format!("{} could not be verified: {why}", source.object);
            Err((Reason::VerificationFailed, text))
        }
    }
}

fn backup(world: &World, known: &Known) -> Option<Backup> {
    let source = world.source.as_ref().ok()?;
    let object = source.object.clone();
    let (verified, how) = match known {
        Known::Whole(verified) => (verified, "whole"),
        Known::Ends(verified) => (verified, "ends"),
        Known::No(_) => {
            return Some(Backup {
                object,
                verified: "no",
                ..Backup::default()
            });
        }
    };
    let age = verified
        .completed_at
        .map(|at| world.now.duration_since(at).as_secs());
    let facts = &verified.object;
    Some(Backup {
        object,
        verified: how,
        revision: Some(verified.revision),
        keys: (how == "whole").then_some(verified.keys),
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

fn replaced(world: &World, verified: Option<&Verified>, members: Vec<MemberNow>) -> Option<Replaced> {
    let cluster = world
        .cluster
        .as_ref()
        .ok()
        .filter(|cluster| !cluster.is_waiting)?;
    let revision = members.iter().filter_map(|member| member.revision).max();
    let behind =
        |(now, verified): (i64, &Verified)| (now >= verified.revision).then(|| now - verified.revision);
    Some(Replaced {
        cluster: cluster.name.clone(),
        etcd_version: cluster.version.as_ref().map(ToString::to_string),
        volume: cluster.volume,
        revision,
        lost_revisions: revision.zip(verified).and_then(behind),
        members,
    })
}

#[cfg(test)]
mod tests;
