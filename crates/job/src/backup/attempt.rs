//! One member's snapshot into the store. It ends with a backup that counts, or with what was there before; if the store no
//! longer answers, with a claim by which the next run finds what is left. Only an object without a manifest, which does not
//! count, and which was said to be replaced, is gone before the new one is checked.

use std::sync::Arc;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::{self, Claim, Manifest, Naming};
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_store::error::UploadRemains;
use etcd_operator_store::upload::MAX_PARTS;
use etcd_operator_store::{CreateOutcome, Store, StoredObject, Upload};
use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::place::{Place, Replaced, busy};
use super::watch::watch;
use crate::choice::Candidate;
use crate::failure::Failure;
use crate::object::Object;
use crate::pump::{Flow, Pumped, pump};
use crate::shape::Wanted;
use crate::{catalog, check, clock, leftovers, names, rehearsal, settings, teller};

/// The size of parts: no store wants less than five, and three of them lie in memory.
const PART: u64 = 6 << 20;
/// How many names are tried: runs of one second are told apart by the next.
const NAMES: i64 = 10;

/// One try with one member.
pub struct Attempt<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// The member.
    pub candidate: &'a Candidate,
    /// What the object is to look like.
    pub wanted: &'a Arc<Wanted>,
    /// When the run started.
    pub started: Timestamp,
    /// What the object takes the place of.
    pub replaced: &'a Replaced,
}

/// What is left in the store after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Something, or nobody knows.
    Something,
}

/// What came of it, or why not and what is left.
pub type Made<T> = Result<T, (Failure, Left)>;

/// A failure after which nothing is left.
fn clean<E: Into<Failure>>(error: E) -> (Failure, Left) {
    (error.into(), Left::Nothing)
}

impl Attempt<'_> {
    /// Makes the backup.
    pub async fn make(&self, place: &Place) -> Result<Manifest, Failure> {
        let claim = self.claim(place).await?;
        let made = self.store(&claim.object).await;
        let (result, left) = match made {
            Ok(manifest) => (Ok(manifest), Left::Nothing),
            Err((failure, left)) => (Err(failure), left),
        };
        if left == Left::Nothing {
            // One that stays is found by the next run, and does no harm to a backup that counts.
            if let Err(failure) = catalog::delete(&self.run.store, &names::claim(&claim.object)).await {
                tracing::warn!(object = claim.object, %failure, "the claim stays until the next run");
            }
        }
        result
    }

    /// How the object is named: what is there and good keeps the name of a single backup.
    fn naming(&self) -> Naming {
        match self.replaced {
            Replaced::Beside => Naming::Periodic,
            _ => self.run.task.naming,
        }
    }

    /// Writes down whose the object is, before there is one.
    async fn claim(&self, place: &Place) -> Result<Claim, Failure> {
        let (store, order, task) = (&self.run.store, self.run.order, self.run.task);
        let (now, naming) = (clock::now(), self.naming());
        for later in 0..NAMES {
            let at = now
                .saturating_add(SignedDuration::from_secs(later))
                .unwrap_or(now);
            let object = names::object(&order.store.path, naming, self.candidate.revision.0, at);
            if naming == Naming::Periodic && place.catalog.contains_key(&object) {
                continue;
            }
            let claim = Claim {
                version: contract::VERSION,
                object,
                owner_uid: order.owner_uid.clone(),
                run: order.run.clone(),
                until: task.deadline,
                replaces: self.replaced == &Replaced::Bare,
            };
            let created = catalog::create(store, &names::claim(&claim.object), &claim).await?;
            match (created, naming) {
                (CreateOutcome::Created, _) => return Ok(claim),
                (CreateOutcome::AlreadyExists, Naming::Periodic) => {}
                (CreateOutcome::AlreadyExists, Naming::OneShot) => {
                    match catalog::claim(store, &claim.object).await? {
                        // What the try with another member could not take away.
                        Some(found) if found.run == order.run && found.owner_uid == order.owner_uid => {
                            leftovers::finish(store, &found).await?;
                        }
                        found => return Err(busy(&claim.object, found.as_ref())),
                    }
                }
            }
        }
        Err(busy(&order.store.path, None))
    }

    async fn store(&self, object: &str) -> Made<Manifest> {
        let (run, candidate) = (self.run, self.candidate);
        tracing::info!(
            object,
            member = candidate.title(),
            role = ?candidate.role,
            revision = candidate.revision.0,
            bytes = candidate.db_size,
            "storing a snapshot"
        );
        let key = catalog::key(object).map_err(clean)?;
        let part_size = part_size(candidate.db_size);
        let upload = run.store.begin(&key, part_size).await.map_err(|error| {
            let is_doubtful = error.class.is_uncertain();
            let left = if is_doubtful {
                Left::Something
            } else {
                Left::Nothing
            };
            (error.into(), left)
        })?;
        let upload = Arc::new(upload);
        let begun = clock::Moment::now();
        let pumped = match self.pump(&upload).await {
            Ok(pumped) => pumped,
            Err(failure) => return Err((failure, abort(upload).await)),
        };
        // Before anything is replaced.
        if let Err(failure) = self.room(&pumped) {
            return Err((failure, abort(upload).await));
        }
        let stored = self.complete(object, upload, &pumped).await?;
        let completed = clock::now();
        let storing = begun.age();
        let manifest = tokio::select! {
            checked = self.check(object, &pumped, completed) => checked,
            why = run.halted() => Err(why),
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
            checking_seconds = begun.age().saturating_sub(storing).as_secs_f64(),
            "the backup is stored"
        );
        Ok(manifest)
    }

    async fn pump(&self, upload: &Arc<Upload>) -> Result<Pumped, Failure> {
        let (run, candidate) = (self.run, self.candidate);
        let pieces = run.members.snapshot(candidate).await?;
        let flow = Flow::default();
        let halt = async {
            tokio::select! {
                why = watch(run.task.limits, run.members, candidate, &flow) => why,
                why = run.halted() => why,
                never = teller::tell("storing", &flow.received, candidate.db_size) => match never {},
            }
        };
        pump(pieces, upload, Arc::clone(self.wanted), &run.budget, &flow, halt).await
    }

    /// Whether there is room for what is laid out to be checked.
    fn room(&self, pumped: &Pumped) -> Result<(), Failure> {
        let (scratch, snapshot) = (&self.run.scratch, pumped.shaped.checked.length);
        match self.run.task.verification {
            Verification::Checksum => Ok(()),
            Verification::Full => rehearsal::room(scratch, snapshot, 0),
            Verification::Restore => rehearsal::room(scratch, snapshot, 1),
        }
    }

    /// Makes the object of its parts. From here on what was there without a manifest is no more.
    async fn complete(&self, object: &str, upload: Arc<Upload>, pumped: &Pumped) -> Made<StoredObject> {
        let Some(upload) = Arc::into_inner(upload) else {
            let failure = Failure::passing("Stopped", "a part is still on its way");
            return Err((failure, Left::Something));
        };
        let error = match upload.complete(pumped.parts.clone()).await {
            Ok(stored) if stored.size == pumped.shaped.size => return Ok(stored),
            Ok(stored) => {
                let message = format!("the object has {} of {} bytes", stored.size, pumped.shaped.size);
                let failure = Failure::passing("VerificationFailed", message);
                return Err(self.undo(object, failure).await);
            }
            Err(error) => error,
        };
        let left = match error.upload_remains {
            Some(UploadRemains::Complete) => return Err(self.undo(object, error.into()).await),
            Some(UploadRemains::Aborted) | None => Left::Nothing,
            Some(UploadRemains::Unknown) => Left::Something,
        };
        Err((error.into(), left))
    }

    async fn check(
        &self,
        object: &str,
        pumped: &Pumped,
        completed_at: Timestamp,
    ) -> Result<Manifest, Failure> {
        let (run, candidate, shaped) = (self.run, self.candidate, &pumped.shaped);
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
            member: candidate.title(),
            snapshot_size: shaped.checked.length,
            snapshot_sha256: shaped.database.clone(),
            object_size: shaped.size,
            object_sha256: shaped.sha256.clone(),
            started_at: self.started,
            completed_at,
            compressed: self.wanted.is_compressed,
            sealing: shaped.sealing.clone(),
            frames: shaped.frames.clone(),
            verification: verification.to_owned(),
        };
        let keys = match run.task.keys.as_deref() {
            Some(directory) => settings::keys(Some(directory))?,
            None => KeyRing::default(),
        };
        let mut stored = Object::open(&run.store, object, Some(&manifest), keys).await?;
        let look = check::ends(&mut stored, manifest.snapshot_size, &manifest.snapshot_sha256).await?;
        if look.revision < candidate.revision.0 {
            let message = format!(
                "the snapshot is of revision {}, and the member was at {} before it was taken",
                look.revision, candidate.revision
            );
            return Err(Failure::passing("VerificationFailed", message));
        }
        manifest.revision = look.revision;
        if run.task.verification != Verification::Checksum {
            let copied = check::full(&stored, &manifest, &run.scratch).await?;
            if run.task.verification == Verification::Restore {
                rehearsal::rehearse(copied, &manifest, &run.tools, &run.scratch).await?;
            }
        }
        Ok(manifest)
    }

    /// Takes back an object that does not count, unless another one is gone for it: then it is better than none.
    async fn undo(&self, object: &str, failure: Failure) -> (Failure, Left) {
        if self.replaced != &Replaced::Bare {
            return (failure, self.remove(object).await);
        }
        let message = format!(
            "{object} was replaced, but the new object is unverified: it stays there without a manifest and does not \
             count as a backup, because {failure}"
        );
        // Nobody but who asked for it may replace an object that has neither manifest nor claim.
        let left = if self.run.task.allow_others {
            Left::Nothing
        } else {
            Left::Something
        };
        (Failure::lasting("Unverified", message), left)
    }

    /// Deletes an object that does not count.
    async fn remove(&self, object: &str) -> Left {
        let removed = catalog::delete(&self.run.store, object).await;
        match removed {
            Ok(()) => Left::Nothing,
            Err(failure) => {
                tracing::warn!(object, %failure, "what was stored and does not count stays until the next run");
                Left::Something
            }
        }
    }
}

/// Makes the backup count, if the object is still the one that was checked.
pub async fn commit(store: &Store, manifest: &Manifest, stored: &StoredObject) -> Made<()> {
    let name = names::manifest(&manifest.object);
    // After a lost answer the manifest may be there: then the next try finds it, and its object must stay.
    let unsure = |failure: Failure| (failure, Left::Something);
    let created = catalog::create(store, &name, manifest).await.map_err(unsure)?;
    let key = catalog::key(&manifest.object).map_err(clean)?;
    let is_same = match (&stored.etag, store.head(&key).await) {
        (Some(etag), Ok(Some(now))) => now.etag == *etag,
        (Some(_), Ok(None)) => false,
        _ => true,
    };
    if created == CreateOutcome::Created && is_same {
        return Ok(());
    }
    if created == CreateOutcome::Created {
        catalog::delete(store, &name).await.map_err(unsure)?;
    }
    let message = format!(
        "{} was written by somebody else at the same time",
        manifest.object
    );
    Err(clean(Failure::passing("Changed", message)))
}

async fn abort(upload: Arc<Upload>) -> Left {
    match Arc::into_inner(upload) {
        Some(upload) => match upload.abort().await {
            Ok(()) => Left::Nothing,
            Err(error) => {
                tracing::warn!(%error, "what was begun stays until the next run");
                Left::Something
            }
        },
        None => Left::Something,
    }
}

/// The usual size, unless the database is so large that its parts could not be counted.
pub fn part_size(database: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    // It may grow meanwhile, and what does not compress becomes a little longer.
    let needed = (database.saturating_mul(2) / u64::from(MAX_PARTS)).div_ceil(MIB) * MIB;
    needed.max(PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_one_size_until_there_would_be_too_many() {
        assert_eq!(part_size(0), PART);
        assert_eq!(part_size(8 << 30), PART);
        for database in [100 << 30, 1 << 40_u64] {
            assert!(database / part_size(database) < u64::from(MAX_PARTS));
        }
    }
}
