//! Replaces a backup by a new one, at the user's request.
//!
//! No store changes an object and its manifest atomically. So the new backup is first stored and verified under another name,
//! where it counts, and is then copied and compared by its SHA-256. At whatever point this is interrupted, the old backup
//! counts or the new one does.

use bytes::{Bytes, BytesMut};
use etcd_operator_api::contract::{self, Claim, Manifest};
use etcd_operator_store::backend::{ByteRange, Part};
use etcd_operator_store::error::UploadRemains;
use etcd_operator_store::{CreateOutcome, Upload};
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::Run;
use super::attempt::{commit, part_size};
use super::destination::busy_failure;
use crate::failure::Failure;
use crate::leftovers::{self, Deletion, RunIdentity};
use crate::text::hex;
use crate::{catalog, names};

/// Why the copy failed, and whether the claim must stay because something may be left at the path.
type CopyError = (Failure, bool);

fn without_residue<E: Into<Failure>>(error: E) -> CopyError {
    (error.into(), false)
}

fn with_residue<E: Into<Failure>>(error: E) -> CopyError {
    (error.into(), true)
}

/// Replaces the backup at the path of the order by the one that `make` stores under another name.
///
/// `old_manifest` is the manifest of the backup to replace.
pub async fn replace(
    run: &Run<'_>,
    identity: RunIdentity<'_>,
    old_manifest: &Bytes,
    make: impl Future<Output = Result<Manifest, Failure>>,
) -> Result<Manifest, Failure> {
    let (store, path) = (&run.store, run.order.store.path.as_str());
    create_claim(run, identity, path).await?;
    let new = match make.await {
        Ok(new) => new,
        Err(failure) => {
            delete_claim(run, path).await;
            return Err(failure);
        }
    };
    let replaced = match copy_to_path(run, &new, path, old_manifest).await {
        Ok(replaced) => replaced,
        Err((failure, keeps_claim)) => {
            if !keeps_claim {
                delete_claim(run, path).await;
            }
            let context = format!(
                "the new backup {} counts, but could not replace {path}",
                new.object
            );
            return Err(failure.with_context(&context));
        }
    };
    delete_claim(run, path).await;
    match leftovers::delete(store, &new.object, identity).await {
        Ok(Deletion::Done) => {}
        kept => tracing::warn!(
            object = new.object,
            ?kept,
            "the same backup remains under this name as well"
        ),
    }
    Ok(replaced)
}

/// Creates the claim on the backup that is replaced.
async fn create_claim(run: &Run<'_>, identity: RunIdentity<'_>, path: &str) -> Result<(), Failure> {
    let claim = Claim {
        version: contract::VERSION,
        object: path.to_owned(),
        owner_uid: identity.owner.to_owned(),
        run: identity.run.to_owned(),
        until: run.task.deadline,
        replaces: true,
    };
    match catalog::create(&run.store, &names::claim_name(path), &claim).await? {
        CreateOutcome::Created => Ok(()),
        CreateOutcome::AlreadyExists => Err(busy_failure(
            path,
            catalog::read_claim(&run.store, path).await?.as_ref(),
        )),
    }
}

async fn delete_claim(run: &Run<'_>, path: &str) {
    if let Err(failure) = catalog::delete(&run.store, &names::claim_name(path)).await {
        tracing::warn!(object = path, %failure, "cannot delete the claim; the next run does");
    }
}

/// Copies the new backup to the path of the old one. The old manifest is deleted once all parts of the copy are
/// uploaded.
async fn copy_to_path(
    run: &Run<'_>,
    new: &Manifest,
    path: &str,
    old_manifest: &Bytes,
) -> Result<Manifest, CopyError> {
    let store = &run.store;
    let key = catalog::object_key(path).map_err(without_residue)?;
    let begun = store.begin(&key, part_size(new.object_size)).await;
    let upload = begun.map_err(|error| (Failure::from(error.clone()), error.class.is_uncertain()))?;
    let copied = tokio::select! {
        copied = upload_copy(run, new, &upload) => copied,
        why = run.wait_until_stopped() => Err(why),
    };
    let parts = match copied {
        Ok(parts) => parts,
        Err(failure) => {
            let keeps_claim = upload.abort().await.is_err();
            return Err((failure, keeps_claim));
        }
    };
    let manifest_name = names::manifest_name(path);
    if let Err(failure) = catalog::delete(store, &manifest_name).await {
        let keeps_claim = upload.abort().await.is_err();
        return Err((failure, keeps_claim));
    }
    let stored = match upload.complete(parts).await {
        Ok(stored) => stored,
        Err(error) if matches!(error.upload_remains, Some(UploadRemains::Aborted) | None) => {
            // The old object still exists: its manifest is written back, so that it counts again.
            let manifest_key = catalog::object_key(&manifest_name).map_err(with_residue)?;
            let restored = store.create(&manifest_key, old_manifest.clone()).await;
            return Err((error.into(), restored.is_err()));
        }
        Err(error) => return Err(with_residue(error)),
    };
    // As for every backup, the stored object is verified before it counts.
    let read_back = tokio::select! {
        sha256 = hash_stored(run, path) => sha256,
        why = run.wait_until_stopped() => Err(why),
    };
    match read_back {
        Ok(sha256) if sha256 == new.object_sha256 => {}
        Ok(_) => {
            let message = format!("the copy at {path} differs from the new backup");
            return Err(with_residue(Failure::retriable("VerificationFailed", message)));
        }
        Err(failure) => return Err(with_residue(failure)),
    }
    let manifest = Manifest {
        object: path.to_owned(),
        ..new.clone()
    };
    match commit(store, &manifest, &stored).await {
        Ok(()) => Ok(manifest),
        Err((failure, _)) => Err(with_residue(failure)),
    }
}

/// The range of a whole object.
const WHOLE: ByteRange = ByteRange { from: 0, to: None };

/// The SHA-256 of a stored object.
async fn hash_stored(run: &Run<'_>, path: &str) -> Result<String, Failure> {
    let mut opened = run.store.open(&catalog::object_key(path)?, WHOLE, None).await?;
    let mut hash = Sha256::new();
    while let Some(piece) = opened.body.next().await {
        hash.update(&piece?);
    }
    Ok(hex(&hash.finalize()))
}

/// Uploads a copy of a backup. Fails if its bytes are not those that were verified.
async fn upload_copy(run: &Run<'_>, new: &Manifest, upload: &Upload) -> Result<Vec<Part>, Failure> {
    let (store, key) = (&run.store, catalog::object_key(&new.object)?);
    let mut opened = store.open(&key, WHOLE, None).await?;
    let size = usize::try_from(upload.part_size()).map_err(|_| Failure::bad_order("parts are too large"))?;
    let (mut parts, mut hash) = (Vec::new(), Sha256::new());
    let mut buffer = BytesMut::new();
    let mut number = 0;
    let mut is_at_end = false;
    while !is_at_end {
        match opened.body.next().await {
            Some(piece) => {
                let piece = piece?;
                hash.update(&piece);
                buffer.extend_from_slice(&piece);
            }
            None => is_at_end = true,
        }
        while buffer.len() >= size || (is_at_end && !buffer.is_empty()) {
            number += 1;
            let part = buffer.split_to(buffer.len().min(size)).freeze();
            parts.push(upload.upload_part(number, part).await?);
        }
    }
    if hex(&hash.finalize()) != new.object_sha256 {
        let message = format!("{} has changed since it was stored", new.object);
        return Err(Failure::retriable("Changed", message));
    }
    Ok(parts)
}
