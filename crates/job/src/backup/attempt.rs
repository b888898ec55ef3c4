//! Stores the snapshot of one member.
//!
//! It ends with a backup that counts, or with what was there before. If the store no longer answers, a claim remains, by
//! which the next run finds what is left. Only an object without a manifest, which does not count, is overwritten before the
//! new object is verified.

use std::sync::Arc;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::{self, Claim, Manifest, Naming};
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_store::error::UploadRemains;
use etcd_operator_store::upload::MAX_PARTS;
use etcd_operator_store::{CreateOutcome, Store, StoredObject, Upload};
use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::destination::{Destination, ExistingObject, busy_failure};
use super::watch::watch;
use crate::encoder::Encoding;
use crate::failure::Failure;
use crate::member_choice::Candidate;
use crate::object::Object;
use crate::transfer::{TransferProgress, TransferResult, transfer};
use crate::{catalog, checks, clock, leftovers, names, progress_reporter, settings, test_restore};

/// The size of parts in bytes: above the minimum of all stores (5 MiB), as three parts are held in memory.
const PART_SIZE: u64 = 6 << 20;
/// How many names are tried: a name that is taken in this second is free in a later one.
const MAX_NAMES: i64 = 10;

/// One try to store the snapshot of one member.
pub struct Attempt<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// The member.
    pub candidate: &'a Candidate,
    /// How the object is encoded.
    pub encoding: &'a Arc<Encoding>,
    /// When the run started.
    pub started: Timestamp,
    /// What exists under the name of a one-shot backup.
    pub existing: &'a ExistingObject,
}

/// What may remain in the store after a failure. The claim stays as long as something may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residue {
    /// Nothing that needs the claim. With `allow_others` an unverified object that overwrote another one may remain.
    None,
    /// Possibly an object or an upload.
    Possible,
}

/// A result; a failure says what may remain in the store.
pub type AttemptResult<T> = Result<T, (Failure, Residue)>;

/// A failure after which nothing remains.
fn without_residue<E: Into<Failure>>(error: E) -> (Failure, Residue) {
    (error.into(), Residue::None)
}

impl Attempt<'_> {
    /// Claims a name, stores the snapshot, and releases the claim. The claim stays while something may remain in the
    /// store.
    pub async fn run(&self, destination: &Destination) -> Result<Manifest, Failure> {
        let claim = self.create_claim(destination).await?;
        let (result, residue) = match self.store_snapshot(&claim.object).await {
            Ok(manifest) => (Ok(manifest), Residue::None),
            Err((failure, residue)) => (Err(failure), residue),
        };
        if residue == Residue::None {
            // A claim that remains does no harm to a backup that counts; the next run deletes it.
            if let Err(failure) = catalog::delete(&self.run.store, &names::claim_name(&claim.object)).await {
                tracing::warn!(object = claim.object, %failure, "cannot delete the claim; the next run does");
            }
        }
        result
    }

    /// How the object is named: as the task says, or with revision and time if a good backup of the same `EtcdBackup` has the
    /// name of a one-shot backup. A new backup never overwrites a good one.
    fn naming(&self) -> Naming {
        match self.existing {
            ExistingObject::OwnBackup => Naming::Periodic,
            _ => self.run.task.naming,
        }
    }

    /// Creates the claim, which names the owner of the object before the object exists. A taken periodic name gets a
    /// later second. A one-shot name that another run has claimed is the retriable failure `Busy`.
    async fn create_claim(&self, destination: &Destination) -> Result<Claim, Failure> {
        let (store, order, task) = (&self.run.store, self.run.order, self.run.task);
        let (now, naming) = (clock::now(), self.naming());
        for seconds in 0..MAX_NAMES {
            let at = now
                .saturating_add(SignedDuration::from_secs(seconds))
                .unwrap_or(now);
            let object = names::object_name(&order.store.path, naming, self.candidate.revision.0, at);
            if naming == Naming::Periodic && destination.catalog.contains_key(&object) {
                continue;
            }
            let claim = Claim {
                version: contract::VERSION,
                object,
                owner_uid: order.owner_uid.clone(),
                run: order.run.clone(),
                until: task.deadline,
                replaces: self.existing == &ExistingObject::WithoutManifest,
            };
            let created = catalog::create(store, &names::claim_name(&claim.object), &claim).await?;
            match (created, naming) {
                (CreateOutcome::Created, _) => return Ok(claim),
                (CreateOutcome::AlreadyExists, Naming::Periodic) => {}
                (CreateOutcome::AlreadyExists, Naming::OneShot) => {
                    match catalog::read_claim(store, &claim.object).await? {
                        // The try with another member could not clean up.
                        Some(found) if found.run == order.run && found.owner_uid == order.owner_uid => {
                            leftovers::finish_claim(store, &found).await?;
                        }
                        found => return Err(busy_failure(&claim.object, found.as_ref())),
                    }
                }
            }
        }
        Err(busy_failure(&order.store.path, None))
    }

    /// Uploads the snapshot, verifies the stored object, and writes its manifest.
    async fn store_snapshot(&self, object: &str) -> AttemptResult<Manifest> {
        let (run, candidate) = (self.run, self.candidate);
        tracing::info!(
            object,
            member = candidate.display_name(),
            role = ?candidate.role,
            revision = candidate.revision.0,
            bytes = candidate.db_size,
            "storing a snapshot"
        );
        let key = catalog::object_key(object).map_err(without_residue)?;
        let part_size = part_size(candidate.db_size);
        let upload = run.store.begin(&key, part_size).await.map_err(|error| {
            let residue = if error.class.is_uncertain() {
                Residue::Possible
            } else {
                Residue::None
            };
            (error.into(), residue)
        })?;
        let upload = Arc::new(upload);
        let stopwatch = clock::Stopwatch::start();
        let transferred = match self.transfer(&upload).await {
            Ok(transferred) => transferred,
            Err(failure) => return Err((failure, abort(upload).await)),
        };
        // Checked before the upload completes and possibly overwrites an object.
        if let Err(failure) = self.require_scratch_space(&transferred) {
            return Err((failure, abort(upload).await));
        }
        let stored = self.complete(object, upload, &transferred).await?;
        let completed = clock::now();
        let storing = stopwatch.elapsed();
        let manifest = tokio::select! {
            verified = self.verify(object, &transferred, completed) => verified,
            why = run.wait_until_stopped() => Err(why),
        };
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(failure) => return Err(self.undo(object, failure).await),
        };
        commit(&run.store, &manifest, &stored).await?;
        tracing::info!(
            object,
            revision = manifest.revision,
            bytes = manifest.object_size,
            verification = manifest.verification,
            storing_seconds = storing.as_secs_f64(),
            checking_seconds = stopwatch.elapsed().saturating_sub(storing).as_secs_f64(),
            "the backup is stored"
        );
        Ok(manifest)
    }

    /// Transfers the snapshot into the upload, until it exceeds a limit or the run must stop.
    async fn transfer(&self, upload: &Arc<Upload>) -> Result<TransferResult, Failure> {
        let (run, candidate) = (self.run, self.candidate);
        let snapshot = run.members.snapshot(candidate).await?;
        let progress = TransferProgress::default();
        let abort = async {
            tokio::select! {
                why = watch(run.task.limits, run.members, candidate, &progress) => why,
                why = run.wait_until_stopped() => why,
                never = progress_reporter::report("storing", &progress.received, candidate.db_size) => match never {},
            }
        };
        let encoding = Arc::clone(self.encoding);
        transfer(snapshot, upload, encoding, &run.budget, &progress, abort).await
    }

    /// Fails unless the scratch directory has space for the verification.
    fn require_scratch_space(&self, transferred: &TransferResult) -> Result<(), Failure> {
        let (scratch, snapshot) = (&self.run.scratch, transferred.encoded.checked.length);
        match self.run.task.verification {
            Verification::Checksum => Ok(()),
            Verification::Full => test_restore::require_free_space(scratch, snapshot, 0),
            Verification::Restore => test_restore::require_free_space(scratch, snapshot, 1),
        }
    }

    /// Completes the upload. It overwrites an object without a manifest.
    async fn complete(
        &self,
        object: &str,
        upload: Arc<Upload>,
        transferred: &TransferResult,
    ) -> AttemptResult<StoredObject> {
        let Some(upload) = Arc::into_inner(upload) else {
            let failure = Failure::retriable("Stopped", "a part is still being uploaded");
            return Err((failure, Residue::Possible));
        };
        let error = match upload.complete(transferred.parts.clone()).await {
            Ok(stored) if stored.size == transferred.encoded.size => return Ok(stored),
            Ok(stored) => {
                let (found, expected) = (stored.size, transferred.encoded.size);
                let message = format!("the stored object has {found} of {expected} bytes");
                let failure = Failure::retriable("VerificationFailed", message);
                return Err(self.undo(object, failure).await);
            }
            Err(error) => error,
        };
        let residue = match error.upload_remains {
            Some(UploadRemains::Complete) => return Err(self.undo(object, error.into()).await),
            Some(UploadRemains::Aborted) | None => Residue::None,
            Some(UploadRemains::Unknown) => Residue::Possible,
        };
        Err((error.into(), residue))
    }

    /// Verifies the stored object as the task requires, and returns its manifest, which is not written yet.
    async fn verify(
        &self,
        object: &str,
        transferred: &TransferResult,
        completed_at: Timestamp,
    ) -> Result<Manifest, Failure> {
        let (run, candidate, encoded) = (self.run, self.candidate, &transferred.encoded);
        let verification = match run.task.verification {
            Verification::Checksum => "Checksum",
            Verification::Full => "Full",
            Verification::Restore => "Restore",
        };
        let mut manifest = Manifest {
            version: contract::VERSION,
            object: object.to_owned(),
            owner_uid: run.order.owner_uid.clone(),
            run: run.order.run.clone(),
            cluster_id: candidate.cluster.to_string(),
            incarnation: run.task.incarnation,
            revision: 0,
            etcd_version: candidate.version.clone(),
            member: candidate.display_name(),
            snapshot_size: encoded.checked.length,
            snapshot_sha256: encoded.database.clone(),
            object_size: encoded.size,
            object_sha256: encoded.sha256.clone(),
            started_at: self.started,
            completed_at,
            compressed: self.encoding.is_compressed,
            sealing: encoded.sealing.clone(),
            frames: encoded.frames.clone(),
            verification: verification.to_owned(),
        };
        let keys = match run.task.keys.as_deref() {
            Some(directory) => settings::read_keys(Some(directory))?,
            None => KeyRing::default(),
        };
        let mut stored = Object::open(&run.store, object, Some(&manifest), keys).await?;
        let look = checks::check_ends(&mut stored, manifest.snapshot_size, &manifest.snapshot_sha256).await?;
        if look.revision < candidate.revision.0 {
            let message = format!(
                "the snapshot is of revision {}, but the member was at {} before the snapshot",
                look.revision, candidate.revision
            );
            return Err(Failure::retriable("VerificationFailed", message));
        }
        manifest.revision = look.revision;
        if run.task.verification != Verification::Checksum {
            let copy = checks::check_fully(&stored, &manifest, &run.scratch).await?;
            if run.task.verification == Verification::Restore {
                test_restore::run_test_restore(copy, &manifest, &run.tools, &run.scratch).await?;
            }
        }
        Ok(manifest)
    }

    /// Deletes an object that failed its verification, and returns the same failure. One that overwrote another object
    /// stays, as it may be usable, and the failure becomes the permanent `Unverified`.
    async fn undo(&self, object: &str, failure: Failure) -> (Failure, Residue) {
        if self.existing != &ExistingObject::WithoutManifest {
            return (failure, self.delete_object(object).await);
        }
        let message = format!(
            "{object} was replaced, but the new object is unverified: it stays there without a manifest and does not \
             count as a backup, because {failure}"
        );
        // With `allow_others` the next run may replace the object without a claim; otherwise it needs the claim to do so.
        let residue = if self.run.task.allow_others {
            Residue::None
        } else {
            Residue::Possible
        };
        (Failure::permanent("Unverified", message), residue)
    }

    /// Deletes an object that does not count.
    async fn delete_object(&self, object: &str) -> Residue {
        match catalog::delete(&self.run.store, object).await {
            Ok(()) => Residue::None,
            Err(failure) => {
                tracing::warn!(object, %failure, "cannot delete an object that does not count; the next run does");
                Residue::Possible
            }
        }
    }
}

/// Writes the manifest, which makes the backup count, unless the object was overwritten since its verification. In that
/// case it fails retriably, and the manifest is deleted again.
pub async fn commit(store: &Store, manifest: &Manifest, stored: &StoredObject) -> AttemptResult<()> {
    let name = names::manifest_name(&manifest.object);
    // The manifest may exist although the answer was lost. The next try finds it, so its object must stay.
    let uncertain = |failure: Failure| (failure, Residue::Possible);
    let created = catalog::create(store, &name, manifest).await.map_err(uncertain)?;
    let key = catalog::object_key(&manifest.object).map_err(without_residue)?;
    let is_same = match (&stored.etag, store.head(&key).await) {
        (Some(etag), Ok(Some(now))) => now.etag == *etag,
        (Some(_), Ok(None)) => false,
        _ => true,
    };
    if created == CreateOutcome::Created && is_same {
        return Ok(());
    }
    if created == CreateOutcome::Created {
        catalog::delete(store, &name).await.map_err(uncertain)?;
    }
    let message = format!("another process wrote {} at the same time", manifest.object);
    Err(without_residue(Failure::retriable("Changed", message)))
}

/// Aborts an upload, and says whether it may remain in the store.
async fn abort(upload: Arc<Upload>) -> Residue {
    match Arc::into_inner(upload) {
        Some(upload) => match upload.abort().await {
            Ok(()) => Residue::None,
            Err(error) => {
                tracing::warn!(%error, "cannot abort the upload; the next run does");
                Residue::Possible
            }
        },
        None => Residue::Possible,
    }
}

/// The size of parts in bytes for a database of this size: the default, or more if it needed too many parts.
pub fn part_size(database: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    // The database may grow during the stream, and frames that do not compress become a little larger.
    let needed = (database.saturating_mul(2) / u64::from(MAX_PARTS)).div_ceil(MIB) * MIB;
    needed.max(PART_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_default_size_until_there_would_be_too_many() {
        assert_eq!(part_size(0), PART_SIZE);
        assert_eq!(part_size(8 << 30), PART_SIZE);
        for database in [100 << 30, 1 << 40_u64] {
            assert!(database / part_size(database) < u64::from(MAX_PARTS));
        }
    }
}
