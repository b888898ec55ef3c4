//! Multipart uploads, which end either complete or aborted. If the response to the completion is lost, the
//! object is checked. It is never written a second time.

use bytes::Bytes;
use jiff::Timestamp;

use crate::backend::{Etag, ObjectMetadata, Part, PendingUpload};
use crate::clock::Stopwatch;
use crate::error::{Class, Error, Fault, Operation, UploadRemains};
use crate::store::{Store, with_timeout};

/// The maximum number of parts that every store accepts.
pub const MAX_PARTS: u32 = 10_000;

/// The object that existed under the name when the upload began.
#[derive(Clone, Debug)]
pub(crate) enum ExistingObject {
    Absent,
    Present(Etag),
    Unknown,
}

/// An upload in progress. If it is dropped before it is completed or aborted, it is aborted in the
/// background.
#[derive(Debug)]
pub struct Upload {
    store: Store,
    target: PendingUpload,
    existing: ExistingObject,
    duplicates_since: Option<Timestamp>,
    has_ended: bool,
}

/// An uploaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The size in bytes.
    pub size: u64,
    /// The ETag. Unknown if the identity may write but not read metadata.
    pub etag: Option<Etag>,
}

impl Upload {
    pub(crate) fn new(store: Store, target: PendingUpload, existing: ExistingObject) -> Self {
        Self {
            store,
            target,
            existing,
            duplicates_since: None,
            has_ended: false,
        }
    }

    /// Records that duplicate uploads of the same object may exist since this time: an earlier attempt to
    /// begin may have created one although its response was lost.
    pub(crate) fn with_duplicates_since(mut self, since: Timestamp) -> Self {
        self.duplicates_since = Some(since);
        self
    }

    /// The size of every part except the last.
    pub fn part_size(&self) -> u64 {
        self.target.part_size
    }

    /// Uploads a part. Parts may be uploaded concurrently and in any order.
    pub async fn upload_part(&self, number: u32, body: Bytes) -> Result<Part, Error> {
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if number == 0 || number > MAX_PARTS || size > self.target.part_size {
            let detail = format!(
                "part {number} has {size} bytes; parts are numbered 1 to {MAX_PARTS} and have at most {} bytes",
                self.target.part_size
            );
            return Err(self.error(Fault::new(Class::Unsupported, detail), Operation::Part(number), 1));
        }
        let name = self.target.key.as_str();
        self.store
            .retry(
                Operation::Part(number),
                name,
                self.store.policy.part_timeout,
                || self.store.backend.upload_part(&self.target, number, body.clone()),
            )
            .await
    }

    /// Assembles the object from its parts. An error tells what the failed upload left in the store.
    pub async fn complete(mut self, mut parts: Vec<Part>) -> Result<StoredObject, Error> {
        self.has_ended = true;
        parts.sort_by_key(|part| part.number);
        let size = parts.iter().map(|part| part.size).sum();
        let result = match self.check_parts(&parts) {
            Ok(()) => self.complete_with_retries(&parts, size).await,
            Err(error) => Err((error, false)),
        };
        let ended = match result {
            Ok(stored) => Ok(stored),
            Err((error, _)) if error.upload_remains.is_some() => Err(error),
            Err((error, may_be_complete)) => self.abort_after_failure(error, may_be_complete, size).await,
        };
        if let Some(since) = self.duplicates_since {
            self.store
                .abort_duplicates(&self.target.key, Some(&self.target), since)
                .await;
        }
        ended
    }

    /// Aborts the upload and discards its parts.
    pub async fn abort(mut self) -> Result<(), Error> {
        self.has_ended = true;
        if let Some(since) = self.duplicates_since {
            self.store
                .abort_duplicates(&self.target.key, Some(&self.target), since)
                .await;
        }
        self.store
            .abort(&self.target)
            .await
            .map_err(|error| error.with_upload_remains(UploadRemains::Unknown))
    }

    /// Checks that the parts are numbered without gaps and that all but the last have the part size.
    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        let is_gapless = parts.iter().zip(1..).all(|(part, number)| part.number == number);
        let is_even = parts
            .split_last()
            .is_some_and(|(_, rest)| rest.iter().all(|part| part.size == self.target.part_size));
        if is_gapless && is_even {
            return Ok(());
        }
        let detail = format!(
            "{} parts; parts must be numbered from 1 without gaps, and all but the last must have {} bytes",
            parts.len(),
            self.target.part_size
        );
        Err(self.error(Fault::new(Class::Unsupported, detail), Operation::Complete, 1))
    }

    /// Completes the upload with retries. An error comes with whether the store may have executed any of the
    /// attempts.
    async fn complete_with_retries(&self, parts: &[Part], size: u64) -> Result<StoredObject, (Error, bool)> {
        let policy = &self.store.policy;
        let mut attempt = 1;
        let mut may_be_complete = false;
        loop {
            let fault = match with_timeout(
                policy.complete_timeout,
                self.store.backend.complete(&self.target, parts),
            )
            .await
            {
                Ok(()) => return self.verify(size).await.map_err(|error| (error, true)),
                Err(fault) => fault,
            };
            // `NoUpload` may mean that an earlier attempt completed the upload, or is still doing so.
            may_be_complete |= fault.class.is_uncertain() || fault.class == Class::NoUpload;
            if may_be_complete && let Some(stored) = self.find_own_object(size).await {
                return Ok(stored);
            }
            if attempt >= policy.max_attempts || !fault.class.is_worth_retrying() {
                return Err((self.error(fault, Operation::Complete, attempt), may_be_complete));
            }
            self.store.wait_before_retry(attempt, fault.retry_after).await;
            attempt += 1;
        }
    }

    /// Verifies a completion that the store confirmed: the object must exist, have this size, and come from
    /// this upload.
    async fn verify(&self, size: u64) -> Result<StoredObject, Error> {
        match self.store.head(&self.target.key).await {
            Ok(Some(meta))
                if meta.size == size && meta.mark.as_ref().is_none_or(|mark| *mark == self.target.mark) =>
            {
                Ok(StoredObject {
                    size,
                    etag: Some(meta.etag),
                })
            }
            Ok(found) => {
                let detail = match found {
                    None => "the store confirmed the completion, but the object does not exist".to_owned(),
                    Some(meta) if meta.size != size => {
                        format!("the object has {} bytes instead of {size}", meta.size)
                    }
                    Some(_) => "another upload has replaced the object".to_owned(),
                };
                let error = self.error(Fault::new(Class::Corrupt, detail), Operation::Complete, 1);
                Err(error.with_upload_remains(UploadRemains::Unknown))
            }
            Err(error) if error.class == Class::Forbidden => Ok(StoredObject { size, etag: None }),
            Err(error) => Err(error.with_upload_remains(UploadRemains::Complete)),
        }
    }

    /// The object, if it exists and comes from this upload.
    async fn find_own_object(&self, size: u64) -> Option<StoredObject> {
        let meta = self.store.head(&self.target.key).await.ok()??;
        let is_found = meta.size == size && self.is_own_object(&meta);
        is_found.then_some(StoredObject {
            size,
            etag: Some(meta.etag),
        })
    }

    fn is_own_object(&self, meta: &ObjectMetadata) -> bool {
        match (&meta.mark, &self.existing) {
            (Some(mark), _) => *mark == self.target.mark,
            (None, ExistingObject::Absent) => true,
            (None, ExistingObject::Present(etag)) => meta.etag != *etag,
            (None, ExistingObject::Unknown) => false,
        }
    }

    /// Aborts the upload after a failure. A completion that the store executed late is still found here.
    async fn abort_after_failure(
        &self,
        error: Error,
        may_be_complete: bool,
        size: u64,
    ) -> Result<StoredObject, Error> {
        let aborted = self.store.abort(&self.target).await;
        if may_be_complete && let Some(stored) = self.find_own_object(size).await {
            return Ok(stored);
        }
        let remains = match aborted {
            Ok(()) => UploadRemains::Aborted,
            Err(_) => UploadRemains::Unknown,
        };
        Err(error.with_upload_remains(remains))
    }

    fn error(&self, fault: Fault, operation: Operation, attempts: u32) -> Error {
        Error::new(
            fault,
            operation,
            self.store.location(),
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
        let dropped = Stopwatch::start();
        runtime.spawn(async move {
            if let Err(error) = store.abort(&target).await {
                let waited = dropped.elapsed();
                tracing::warn!(%error, ?waited, "could not abort an unfinished upload");
            }
        });
    }
}
