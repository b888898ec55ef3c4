//! An upload in parts, which ends complete or aborted. A lost answer to the completion is settled by looking at the
//! object, never by writing it a second time.

use bytes::Bytes;
use jiff::Timestamp;

use crate::clock::Moment;
use crate::error::{Class, Error, Fault, Operation, Remains};
use crate::port::{Etag, Meta, Part, Target};
use crate::store::{Store, bounded};

/// The most parts every store takes.
pub const MOST_PARTS: u32 = 10_000;

/// What stood under the object's name when the upload began.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    Absent,
    Was(Etag),
    Unknown,
}

/// An upload under way. Dropped without an end, it is aborted in the background.
#[derive(Debug)]
pub struct Upload {
    store: Store,
    target: Target,
    before: Before,
    twins_since: Option<Timestamp>,
    has_ended: bool,
}

/// An object that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its size.
    pub size: u64,
    /// Which writing it is; unknown where the identity may write and not look.
    pub etag: Option<Etag>,
}

impl Upload {
    pub(crate) fn new(store: Store, target: Target, before: Before) -> Self {
        Self {
            store,
            target,
            before,
            twins_since: None,
            has_ended: false,
        }
    }

    /// Another upload of the same object may have been begun since then by a try whose answer was lost.
    pub(crate) fn with_twins_since(mut self, since: Timestamp) -> Self {
        self.twins_since = Some(since);
        self
    }

    /// The size every part but the last must have.
    pub fn part_size(&self) -> u64 {
        self.target.part_size
    }

    /// Hands over a part; parts may go side by side and in any order.
    pub async fn part(&self, number: u32, body: Bytes) -> Result<Part, Error> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if number == 0 || number > MOST_PARTS || size > self.target.part_size {
            let said = format!(
                "part {number} of {size} bytes, where parts are 1 to {MOST_PARTS} of at most {} bytes",
                self.target.part_size
            );
            return Err(self.error(Fault::new(Class::Unsupported, said), Operation::Part(number), 1));
        }
        let name = self.target.key.as_str();
        self.store
            .retried(Operation::Part(number), name, self.store.policy.part, || {
                self.store.port.part(&self.target, number, body.clone())
            })
            .await
    }

    /// Makes the object of its parts. A failure says what is left of the upload.
    pub async fn complete(mut self, mut parts: Vec<Part>) -> Result<Stored, Error> {
        self.has_ended = true;
        parts.sort_by_key(|part| part.number);
        let size = parts.iter().map(|part| part.size).sum();
        let result = match self.check(&parts) {
            Ok(()) => self.make(&parts, size).await,
            Err(error) => Err((error, false)),
        };
        let ended = match result {
            Ok(stored) => Ok(stored),
            Err((error, _)) if error.remains.is_some() => Err(error),
            Err((error, may_be_done)) => self.give_up(error, may_be_done, size).await,
        };
        if let Some(since) = self.twins_since {
            self.store
                .forget_twins(&self.target.key, Some(&self.target), since)
                .await;
        }
        ended
    }

    /// Forgets the upload and its parts.
    pub async fn abort(mut self) -> Result<(), Error> {
        self.has_ended = true;
        if let Some(since) = self.twins_since {
            self.store
                .forget_twins(&self.target.key, Some(&self.target), since)
                .await;
        }
        self.store
            .abort(&self.target)
            .await
            .map_err(|error| error.with_remains(Remains::Unknown))
    }

    /// Parts must be there from the first to the last, and all but the last of one size.
    fn check(&self, parts: &[Part]) -> Result<(), Error> {
        let is_gapless = parts.iter().zip(1..).all(|(part, number)| part.number == number);
        let is_even = parts
            .split_last()
            .is_some_and(|(_, rest)| rest.iter().all(|part| part.size == self.target.part_size));
        if is_gapless && is_even {
            return Ok(());
        }
        let said = format!(
            "{} parts, which must be numbered from 1 without gaps, and of {} bytes but the last",
            parts.len(),
            self.target.part_size
        );
        Err(self.error(Fault::new(Class::Unsupported, said), Operation::Complete, 1))
    }

    /// Completes it. A failure comes with whether any try may have been carried out.
    async fn make(&self, parts: &[Part], size: u64) -> Result<Stored, (Error, bool)> {
        let policy = &self.store.policy;
        let mut attempt = 1;
        let mut may_be_done = false;
        loop {
            let fault = match bounded(policy.complete, self.store.port.complete(&self.target, parts)).await {
                Ok(()) => return self.verify(size).await.map_err(|error| (error, true)),
                Err(fault) => fault,
            };
            // What an earlier try began, this one may have met under way or done.
            may_be_done |= fault.class.is_uncertain() || fault.class == Class::NoUpload;
            if may_be_done && let Some(stored) = self.find(size).await {
                return Ok(stored);
            }
            if attempt >= policy.attempts || !fault.class.is_worth_retrying() {
                return Err((self.error(fault, Operation::Complete, attempt), may_be_done));
            }
            self.store.pause(attempt, fault.retry_after).await;
            attempt += 1;
        }
    }

    /// The store says it is complete: so it must be there, of this size and by us.
    async fn verify(&self, size: u64) -> Result<Stored, Error> {
        match self.store.look(&self.target.key).await {
            Ok(Some(meta))
                if meta.size == size && meta.mark.as_ref().is_none_or(|mark| *mark == self.target.mark) =>
            {
                Ok(Stored {
                    size,
                    etag: Some(meta.etag),
                })
            }
            Ok(found) => {
                let said = match found {
                    None => "the store says complete and has no such object".to_owned(),
                    Some(meta) if meta.size != size => {
                        format!("the object has {} bytes instead of {size}", meta.size)
                    }
                    Some(_) => "another upload has replaced the object".to_owned(),
                };
                let error = self.error(Fault::new(Class::Corrupt, said), Operation::Complete, 1);
                Err(error.with_remains(Remains::Unknown))
            }
            Err(error) if error.class == Class::Forbidden => Ok(Stored { size, etag: None }),
            Err(error) => Err(error.with_remains(Remains::Complete)),
        }
    }

    /// The object, if it is there and ours.
    async fn find(&self, size: u64) -> Option<Stored> {
        let meta = self.store.look(&self.target.key).await.ok()??;
        let is_found = meta.size == size && self.is_ours(&meta);
        is_found.then_some(Stored {
            size,
            etag: Some(meta.etag),
        })
    }

    fn is_ours(&self, meta: &Meta) -> bool {
        match (&meta.mark, &self.before) {
            (Some(mark), _) => *mark == self.target.mark,
            (None, Before::Absent) => true,
            (None, Before::Was(etag)) => meta.etag != *etag,
            (None, Before::Unknown) => false,
        }
    }

    /// Aborts after a failure. A completion that was carried out after all, slowly, is found here at the latest.
    async fn give_up(&self, error: Error, may_be_done: bool, size: u64) -> Result<Stored, Error> {
        let aborted = self.store.abort(&self.target).await;
        if may_be_done && let Some(stored) = self.find(size).await {
            return Ok(stored);
        }
        let remains = match aborted {
            Ok(()) => Remains::Aborted,
            Err(_) => Remains::Unknown,
        };
        Err(error.with_remains(remains))
    }

    fn error(&self, fault: Fault, operation: Operation, attempts: u32) -> Error {
        Error::of(
            fault,
            operation,
            self.store.place(),
            self.target.key.as_str(),
            attempts,
        )
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (store, target) = (self.store.clone(), self.target.clone());
        let dropped = Moment::now();
        runtime.spawn(async move {
            if let Err(error) = store.abort(&target).await {
                let waited = dropped.age();
                tracing::warn!(%error, ?waited, "an upload that nobody finished could not be aborted");
            }
        });
    }
}
