//! A stored backup read from end to end before it is restored: whether it is whole, and what it holds. Nothing is judged
//! about where it goes.

use std::path::Path;

use etcd_operator_api::contract::{JobOutcome, Manifest, ObjectFacts, Verified, VerifyTask};
use etcd_operator_snapshot::content::audit::Audit;
use etcd_operator_snapshot::content::live::{Live, live};
use etcd_operator_snapshot::stream::{Checked, Kind};
use etcd_operator_store::Store;

use crate::failure::Failure;
use crate::fetch::{Expected, fetch_expected};
use crate::object::Object;
use crate::{catalog, check, rehearsal, settings};

/// Where the backup is laid out, in the folder it is given.
const FILE: &str = "verify.db";

/// Verifies the object of this name. Needs room for its snapshot in `scratch`.
pub async fn verify(
    store: &Store,
    name: &str,
    task: &VerifyTask,
    scratch: &Path,
) -> Result<JobOutcome, Failure> {
    let manifest = catalog::manifest(store, name).await?;
    let keys = settings::keys(task.keys.as_deref())?;
    let object = Object::open(store, name, manifest.as_ref(), keys).await?;
    if let Some(length) = object.length() {
        rehearsal::room(scratch, length, 0)?;
    }
    let file = scratch.join(FILE);
    let (checked, _) = fetch_expected(&object, manifest.as_ref().map(Expected::from), &file).await?;
    let Kind::Snapshot { database } = &checked.kind else {
        let message = format!("{name} is a database without the hash that etcd puts behind a snapshot");
        return Err(Failure::lasting("NoHash", message));
    };
    let facts = ObjectFacts {
        size: object.stored_size(),
        sha256: sha256(&object, manifest.as_ref(), &checked).await?,
        snapshot_size: checked.length,
        snapshot_sha256: database.clone(),
    };
    let read = tokio::task::spawn_blocking(move || {
        let read = walk(&file);
        // It goes with the pod in any case.
        let _ = std::fs::remove_file(&file);
        read
    });
    let (audit, live) = read
        .await
        .map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))??;
    let verified = told(name, facts, &audit, &live, manifest.as_ref());
    Ok(JobOutcome::Verified(Box::new(verified)))
}

/// That of the object as it is stored: a plain one is its snapshot, and of frames the manifest tells, or every byte.
async fn sha256(object: &Object, manifest: Option<&Manifest>, checked: &Checked) -> Result<String, Failure> {
    let found = match (object.is_plain(), manifest) {
        (true, _) => checked.sha256.clone(),
        (false, Some(manifest)) => return Ok(manifest.object_sha256.clone()),
        (false, None) => object.stored_sha256().await?,
    };
    match manifest {
        Some(manifest) if manifest.object_sha256 != found => Err(Failure::lasting(
            "VerificationFailed",
            "the object is not the one that its manifest speaks of: its SHA-256 is another",
        )),
        _ => Ok(found),
    }
}

fn walk(file: &Path) -> Result<(Audit, Live), Failure> {
    let (mut database, audit) = check::walk(file)?;
    if let Some(first) = audit.findings.list.first() {
        let more = audit.findings.list.len() as u64 - 1 + audit.findings.more;
        let message = format!("the database is damaged: {first} (and {more} more)");
        return Err(Failure::lasting("VerificationFailed", message));
    }
    let live = live(&mut database, None, audit.records)?;
    Ok((audit, live))
}

fn told(
    name: &str,
    object: ObjectFacts,
    audit: &Audit,
    live: &Live,
    manifest: Option<&Manifest>,
) -> Verified {
    let facts = &audit.look.facts;
    let members = facts.roster.members.iter();
    let mut alarms: Vec<String> = facts.alarms.iter().map(|alarm| alarm.alarm.clone()).collect();
    alarms.sort();
    alarms.dedup();
    Verified {
        name: name.to_owned(),
        object,
        revision: audit.look.revision,
        digest: live.digest.to_string(),
        keys: live.keys,
        etcd_version: manifest.map(|manifest| manifest.etcd_version.clone()),
        cluster_version: facts.versions.cluster.clone(),
        storage_version: facts.versions.storage.clone(),
        auth_enabled: facts.auth.enabled,
        users: facts.auth.users.len() as u64,
        roles: facts.auth.roles.len() as u64,
        learners: members.filter(|member| member.is_learner).count() as u64,
        alarms,
        has_manifest: manifest.is_some(),
        cluster_id: manifest.map(|manifest| manifest.cluster_id.clone()),
        incarnation: manifest.and_then(|manifest| manifest.incarnation),
        completed_at: manifest.map(|manifest| manifest.completed_at),
    }
}
