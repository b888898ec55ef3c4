//! Verifies a stored backup before a restore: whether it is complete, and what it holds. Whether it fits the cluster to be
//! restored is decided elsewhere.

use std::path::Path;

use etcd_operator_api::contract::{
    JobOutcome, Manifest, ObjectFacts, RecheckTask, Source, Verified, VerifyTask,
};
use etcd_operator_snapshot::content::audit::Audit;
use etcd_operator_snapshot::content::live_keys::{LiveKeys, find_live_keys};
use etcd_operator_snapshot::content::quick_look::QuickLook;
use etcd_operator_snapshot::database::HASH_SIZE;
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_snapshot::stream::StreamKind;
use etcd_operator_store::Store;

use crate::failure::Failure;
use crate::fetch::fetch;
use crate::members::{Members as _, NetworkMembers};
use crate::object::Object;
use crate::text::hex;
use crate::{catalog, checks, names, settings, test_restore};

/// The name of the copy in the scratch directory.
const SCRATCH_FILE: &str = "verify.db";

/// Verifies the object of this name. Needs space for its snapshot in `scratch`.
pub async fn verify(
    store: &Store,
    name: &str,
    task: &VerifyTask,
    scratch: &Path,
) -> Result<JobOutcome, Failure> {
    let keys = settings::read_keys(task.keys.as_deref())?;
    let verified = Verified {
        beside: largest_database(task.beside.as_ref()).await,
        ..verify_fully(store, name, keys, scratch).await?
    };
    Ok(JobOutcome::Verified(Box::new(verified)))
}

/// Checks that a verified object still exists and was not replaced, without reading it. Hours may pass between the
/// verification and the restore, for example for a safety backup.
pub async fn recheck(store: &Store, name: &str, task: &RecheckTask) -> Result<JobOutcome, Failure> {
    let address = store.location().address(name);
    let Some(found) = store.head(&catalog::object_key(name)?).await? else {
        let message = format!("{address} was deleted after its verification");
        return Err(Failure::permanent("NotFound", message));
    };
    if found.size != task.size || task.etag.as_ref().is_some_and(|etag| *etag != found.etag.0) {
        let message = format!("{address} was replaced after its verification");
        return Err(Failure::permanent("Replaced", message));
    }
    let manifest = catalog::object_key(&names::manifest_name(name))?;
    if task.has_manifest && store.head(&manifest).await?.is_none() {
        let message = format!("the manifest of {address} was deleted after its verification");
        return Err(Failure::permanent("NotFound", message));
    }
    Ok(JobOutcome::Unchanged)
}

/// The size in bytes of the largest database of the members that are to be restored; `None` if no member answers. It is
/// optional: a restore that runs out of space is rolled back.
async fn largest_database(members: Option<&Source>) -> Option<u64> {
    let access = settings::read_etcd_access(members?).ok()?;
    let survey = NetworkMembers::new(access).survey().await;
    survey.found.iter().map(|member| member.db_size).max()
}

/// Verifies every byte and every page. A database without the hash that etcd appends is refused.
pub async fn verify_fully(
    store: &Store,
    name: &str,
    keys: KeyRing,
    scratch: &Path,
) -> Result<Verified, Failure> {
    let manifest = catalog::read_manifest(store, name).await?;
    let object = Object::open(store, name, manifest.as_ref(), keys).await?;
    if let Some(length) = object.length() {
        test_restore::require_free_space(scratch, length, 0)?;
    }
    let file = scratch.join(SCRATCH_FILE);
    let arrived = fetch(&object, manifest.as_ref(), &file).await?;
    let checked = &arrived.checked;
    let StreamKind::Snapshot { database } = &checked.kind else {
        let message = format!("{name} is a database without the hash that etcd appends to a snapshot");
        return Err(Failure::permanent("NoHash", message));
    };
    let facts = ObjectFacts {
        size: object.stored_size(),
        sha256: arrived
            .object_sha256
            .or_else(|| manifest.as_ref().map(|manifest| manifest.object_sha256.clone()))
            .unwrap_or_default(),
        snapshot_size: checked.length,
        snapshot_sha256: database.clone(),
    };
    let read = tokio::task::spawn_blocking(move || {
        let read = walk(&file);
        // A file that remains is deleted with the pod.
        let _ = std::fs::remove_file(&file);
        read
    });
    let (audit, live) = read
        .await
        .map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))??;
    Ok(Verified {
        etag: Some(object.etag().0.clone()),
        ..describe(name, facts, &audit.look, Some(&live), manifest.as_ref())
    })
}

/// Reads only the ends of the snapshot, and counts no keys. Before a restore [`verify_fully`] is required.
pub async fn verify_ends(store: &Store, name: &str, keys: KeyRing) -> Result<Verified, Failure> {
    let manifest = catalog::read_manifest(store, name).await?;
    let mut object = Object::open(store, name, manifest.as_ref(), keys).await?;
    let length = object.length().unwrap_or_default();
    let look = match &manifest {
        Some(manifest) => {
            checks::check_ends(&mut object, manifest.snapshot_size, &manifest.snapshot_sha256).await?
        }
        None => checks::quick_look(&mut object).await?,
    };
    let hash = object
        .read_range(length.saturating_sub(HASH_SIZE), HASH_SIZE.min(length))
        .await?;
    let facts = ObjectFacts {
        size: object.stored_size(),
        sha256: manifest
            .as_ref()
            .map(|manifest| manifest.object_sha256.clone())
            .unwrap_or_default(),
        snapshot_size: length,
        snapshot_sha256: hex(&hash),
    };
    Ok(Verified {
        etag: Some(object.etag().0.clone()),
        ..describe(name, facts, &look, None, manifest.as_ref())
    })
}

/// Walks every page of a file, and computes the digest of its live keys. A damaged page is a permanent failure.
fn walk(file: &Path) -> Result<(Audit, LiveKeys), Failure> {
    let (mut database, audit) = checks::walk_pages(file)?;
    if let Some(first) = audit.findings.list.first() {
        let more = audit.findings.list.len() as u64 - 1 + audit.findings.more;
        let message = format!("the database is damaged: {first} (and {more} more)");
        return Err(Failure::permanent("VerificationFailed", message));
    }
    let live = find_live_keys(&mut database, None, audit.records)?;
    Ok((audit, live))
}

fn describe(
    name: &str,
    object: ObjectFacts,
    look: &QuickLook,
    live: Option<&LiveKeys>,
    manifest: Option<&Manifest>,
) -> Verified {
    let facts = &look.facts;
    let members = facts.roster.members.iter();
    let mut alarms: Vec<String> = facts.alarms.iter().map(|alarm| alarm.alarm.clone()).collect();
    alarms.sort();
    alarms.dedup();
    Verified {
        name: name.to_owned(),
        object,
        etag: None,
        revision: look.revision,
        digest: live.map(|live| live.digest.to_string()).unwrap_or_default(),
        keys: live.map_or(0, |live| live.keys),
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
        beside: None,
    }
}
