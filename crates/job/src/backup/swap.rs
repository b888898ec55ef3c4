//! A backup in the place of another one, as was asked for. No store changes an object and its manifest at once, so the new
//! one is stored and checked under a name of its own first, where it counts, and is copied from there, byte by byte and by
//! its sum. Wherever this is cut off, the old one counts, or the new one does.

use bytes::{Bytes, BytesMut};
use etcd_operator_api::contract::{self, Claim, Manifest};
use etcd_operator_store::backend::{ByteRange, Part};
use etcd_operator_store::error::UploadRemains;
use etcd_operator_store::{CreateOutcome, Upload};
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::Run;
use super::attempt::{commit, part_size};
use super::place::busy;
use crate::failure::Failure;
use crate::leftovers::{self, Actor, Deletion};
use crate::text::hex;
use crate::{catalog, names};

/// Why it is not in its place, and whether the claim on that must stay, as something may be left there.
type Undone = (Failure, bool);

fn clean<E: Into<Failure>>(error: E) -> Undone {
    (error.into(), false)
}

fn unsure<E: Into<Failure>>(error: E) -> Undone {
    (error.into(), true)
}

/// Puts what `make` stores under another name into the place of `old`, the manifest of the backup that lies at the path.
pub async fn replace(
    run: &Run<'_>,
    actor: Actor<'_>,
    old: &Bytes,
    make: impl Future<Output = Result<Manifest, Failure>>,
) -> Result<Manifest, Failure> {
    let (store, path) = (&run.store, run.order.store.path.as_str());
    claim(run, actor, path).await?;
    let new = match make.await {
        Ok(new) => new,
        Err(failure) => {
            release(run, path).await;
            return Err(failure);
        }
    };
    let put = match put(run, &new, path, old).await {
        Ok(put) => put,
        Err((failure, must_stay)) => {
            if !must_stay {
                release(run, path).await;
            }
            let what = format!(
                "the new backup is {} and counts, and could not take the place of {path}",
                new.object
            );
            return Err(failure.while_doing(&what));
        }
    };
    release(run, path).await;
    match leftovers::delete(store, &new.object, actor).await {
        Ok(Deletion::Done) => {}
        kept => tracing::warn!(
            object = new.object,
            ?kept,
            "the same backup stays under this name, too"
        ),
    }
    Ok(put)
}

/// Writes down that something is about to be replaced here.
async fn claim(run: &Run<'_>, actor: Actor<'_>, path: &str) -> Result<(), Failure> {
    let claim = Claim {
        version: contract::VERSION,
        object: path.to_owned(),
        owner_uid: actor.owner.to_owned(),
        run: actor.run.to_owned(),
        until: run.task.deadline,
        replaces: true,
    };
    match catalog::create(&run.store, &names::claim(path), &claim).await? {
        CreateOutcome::Created => Ok(()),
        CreateOutcome::AlreadyExists => Err(busy(path, catalog::claim(&run.store, path).await?.as_ref())),
    }
}

async fn release(run: &Run<'_>, path: &str) {
    if let Err(failure) = catalog::delete(&run.store, &names::claim(path)).await {
        tracing::warn!(object = path, %failure, "the claim stays until the next run");
    }
}

/// Copies a backup that counts to the path, where another one lies.
async fn put(run: &Run<'_>, new: &Manifest, path: &str, old: &Bytes) -> Result<Manifest, Undone> {
    let store = &run.store;
    let key = catalog::key(path).map_err(clean)?;
    let begun = store.begin(&key, part_size(new.object_size)).await;
    let upload = begun.map_err(|error| (Failure::from(error.clone()), error.class.is_uncertain()))?;
    let copied = tokio::select! {
        copied = copy(run, new, &upload) => copied,
        why = run.halted() => Err(why),
    };
    let parts = match copied {
        Ok(parts) => parts,
        Err(failure) => {
            let must_stay = upload.abort().await.is_err();
            return Err((failure, must_stay));
        }
    };
    let manifest_name = names::manifest(path);
    if let Err(failure) = catalog::delete(store, &manifest_name).await {
        let must_stay = upload.abort().await.is_err();
        return Err((failure, must_stay));
    }
    let stored = match upload.complete(parts).await {
        Ok(stored) => stored,
        Err(error) if matches!(error.upload_remains, Some(UploadRemains::Aborted) | None) => {
            // The old one is still there, and counts again.
            let manifest_key = catalog::key(&manifest_name).map_err(unsure)?;
            let put_back = store.create(&manifest_key, old.clone()).await;
            return Err((error.into(), put_back.is_err()));
        }
        Err(error) => return Err(unsure(error)),
    };
    let read_back = tokio::select! {
        read = sum(run, path) => read,
        why = run.halted() => Err(why),
    };
    // What a store puts together is believed when it was seen, as with every backup.
    match read_back {
        Ok(sum) if sum == new.object_sha256 => {}
        Ok(_) => {
            let message = format!("the copy at {path} is not what was copied there");
            return Err(unsure(Failure::passing("VerificationFailed", message)));
        }
        Err(failure) => return Err(unsure(failure)),
    }
    let manifest = Manifest {
        object: path.to_owned(),
        ..new.clone()
    };
    match commit(store, &manifest, &stored).await {
        Ok(()) => Ok(manifest),
        Err((failure, _)) => Err(unsure(failure)),
    }
}

/// All of the object that lies there.
const WHOLE: ByteRange = ByteRange { from: 0, to: None };

/// The sum of every byte that lies there.
async fn sum(run: &Run<'_>, path: &str) -> Result<String, Failure> {
    let mut opened = run.store.open(&catalog::key(path)?, WHOLE, None).await?;
    let mut hash = Sha256::new();
    while let Some(piece) = opened.body.next().await {
        hash.update(&piece?);
    }
    Ok(hex(&hash.finalize()))
}

/// Copies every byte of a backup into an upload; they must be those that were checked.
async fn copy(run: &Run<'_>, new: &Manifest, upload: &Upload) -> Result<Vec<Part>, Failure> {
    let (store, key) = (&run.store, catalog::key(&new.object)?);
    let mut opened = store.open(&key, WHOLE, None).await?;
    let size = usize::try_from(upload.part_size()).map_err(|_| Failure::order("parts are too large"))?;
    let (mut parts, mut hash) = (Vec::new(), Sha256::new());
    let mut filling = BytesMut::new();
    let mut number = 0;
    let mut is_over = false;
    while !is_over {
        match opened.body.next().await {
            Some(piece) => {
                let piece = piece?;
                hash.update(&piece);
                filling.extend_from_slice(&piece);
            }
            None => is_over = true,
        }
        while filling.len() >= size || (is_over && !filling.is_empty()) {
            number += 1;
            let part = filling.split_to(filling.len().min(size)).freeze();
            parts.push(upload.upload_part(number, part).await?);
        }
    }
    if hex(&hash.finalize()) != new.object_sha256 {
        let message = format!("{} is no longer what was stored there", new.object);
        return Err(Failure::passing("Changed", message));
    }
    Ok(parts)
}
