//! The store as callers use it. Every operation has a timeout and is retried where a retry can help. If the
//! response of the store is lost, the operation determines what the store actually did.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::backend::{
    Backend, BackendFuture, ByteRange, Etag, ListedObject, ObjectMetadata, Page, PendingUpload,
    StoreLocation, UnfinishedUpload, UploadToken,
};
use crate::clock;
use crate::error::{Class, Error, Fault, Operation};
use crate::key::Key;
use crate::policy::Policy;
use crate::read::{self, ObjectStream};
use crate::upload::{ExistingObject, Upload};

/// A bucket, container or directory. Clones are cheap and share the backend.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) policy: Arc<Policy>,
}

/// The result of creating an object that must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The object was written.
    Created,
    /// An object with this name exists. It was not changed.
    AlreadyExists,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// The names of the objects whose uploads were aborted.
    pub aborted: Vec<String>,
    /// Uploads that could not be aborted.
    pub failed: Vec<Error>,
}

/// A value, and whether the store may have executed an earlier attempt of the same request, too.
pub(crate) struct RetryResult<T> {
    pub value: T,
    pub has_uncertain_attempt: bool,
}

/// The maximum number of pages of a listing. Together with the check for repeated pages it stops a faulty
/// store from listing forever.
const MAX_PAGES: usize = 100_000;

impl Store {
    /// Creates a store from a backend.
    pub fn new(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        Self {
            backend,
            policy: Arc::new(policy),
        }
    }

    /// Where the store is.
    pub fn location(&self) -> &StoreLocation {
        self.backend.location()
    }

    /// Begins an upload. Every part except the last must have exactly `part_size` bytes.
    pub async fn begin(&self, key: &Key, part_size: u64) -> Result<Upload, Error> {
        let existing = match self.head(key).await {
            Ok(Some(meta)) => ExistingObject::Present(meta.etag),
            Ok(None) => ExistingObject::Absent,
            Err(error) if error.class.is_worth_retrying() || error.class == Class::TlsUntrusted => {
                return Err(Error {
                    operation: Operation::Begin,
                    ..error
                });
            }
            // Some identities may write but not read metadata; then only the upload token identifies the
            // object. If something else is wrong, the next request reports it better: HEAD responses have no
            // body.
            Err(_) => ExistingObject::Unknown,
        };
        let mark = UploadToken(clock::random_token());
        let started = clock::now();
        let result = self
            .retry_tracked(
                Operation::Begin,
                key.as_str(),
                self.policy.request_timeout,
                || self.backend.begin(key, &mark),
            )
            .await;
        let (id, has_uncertain_attempt) = match result {
            Ok(tried) => (tried.value, tried.has_uncertain_attempt),
            Err((error, has_uncertain_attempt)) => {
                if has_uncertain_attempt {
                    self.abort_duplicates(key, None, started).await;
                }
                return Err(error);
            }
        };
        let target = PendingUpload {
            key: key.clone(),
            id,
            mark,
            part_size,
        };
        let upload = Upload::new(self.clone(), target, existing);
        Ok(if has_uncertain_attempt {
            upload.with_duplicates_since(started)
        } else {
            upload
        })
    }

    /// Reads the metadata of an object, or `None` if the object does not exist.
    pub async fn head(&self, key: &Key) -> Result<Option<ObjectMetadata>, Error> {
        let metadata = self
            .retry(Operation::Head, key.as_str(), self.policy.request_timeout, || {
                self.backend.head(key)
            })
            .await;
        match metadata {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.class == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens an object for reading. With an ETag, fails if the object was replaced. The bytes arrive in
    /// order. A broken connection is resumed where it broke, as long as the object is unchanged.
    pub async fn open(
        &self,
        key: &Key,
        range: ByteRange,
        etag: Option<&Etag>,
    ) -> Result<ObjectStream, Error> {
        read::open(self, key, range, etag).await
    }

    /// Reads a small object completely. Fails with `Corrupt` if the object is larger than `limit`.
    pub async fn read_small(&self, key: &Key, limit: u64) -> Result<Bytes, Error> {
        read::read_small(self, key, limit).await
    }

    /// Lists one page of the objects whose names start with `prefix`.
    pub async fn list_page(&self, prefix: &str, page: Option<&str>) -> Result<Page<ListedObject>, Error> {
        self.retry(Operation::List, prefix, self.policy.request_timeout, || {
            self.backend.list(prefix, page)
        })
        .await
    }

    /// Lists all objects whose names start with `prefix`, sorted by name.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, Error> {
        let mut entries = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.list_page(prefix, next.as_deref()).await?;
            entries.extend(page.items);
            if page.next.is_some() && page.next == next {
                break;
            }
            next = page.next;
            if next.is_none() {
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                entries.dedup_by(|a, b| a.name == b.name);
                return Ok(entries);
            }
        }
        Err(self.endless_list_error(Operation::List, prefix))
    }

    /// Deletes an object. Succeeds if the object does not exist.
    pub async fn delete(&self, key: &Key) -> Result<(), Error> {
        let deleted = self
            .retry(
                Operation::Delete,
                key.as_str(),
                self.policy.request_timeout,
                || self.backend.delete(key),
            )
            .await;
        match deleted {
            Err(error) if error.class == Class::NotFound => Ok(()),
            other => other,
        }
    }

    /// Writes a small object unless an object with this name exists.
    pub async fn create(&self, key: &Key, body: Bytes) -> Result<CreateOutcome, Error> {
        let created = self
            .retry_tracked(Operation::Create, key.as_str(), self.policy.part_timeout, || {
                self.backend.create(key, body.clone())
            })
            .await;
        match created {
            Ok(_) => Ok(CreateOutcome::Created),
            // If the response to an earlier attempt was lost, the existing object may be the one this call
            // wrote.
            Err((error, has_uncertain_attempt)) if error.class == Class::Exists => {
                if has_uncertain_attempt {
                    self.compare_with_existing(key, &body).await
                } else {
                    Ok(CreateOutcome::AlreadyExists)
                }
            }
            Err((error, _)) => Err(error),
        }
    }

    /// Compares the existing object with the sent body. If the object cannot be read, the result is an error
    /// and not `AlreadyExists`.
    async fn compare_with_existing(&self, key: &Key, body: &Bytes) -> Result<CreateOutcome, Error> {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        match self.read_small(key, length).await {
            Ok(existing) if existing == *body => Ok(CreateOutcome::Created),
            Ok(_) => Ok(CreateOutcome::AlreadyExists),
            // The object is longer than the body.
            Err(error) if error.class == Class::Corrupt => Ok(CreateOutcome::AlreadyExists),
            Err(error) => Err(Error {
                operation: Operation::Create,
                ..error
            }),
        }
    }

    /// Aborts uploads that began before `deadline` (by the clock of the store). Only uploads count whose
    /// object name starts with `prefix` and for which `is_ours` returns true.
    pub async fn sweep(
        &self,
        prefix: &str,
        deadline: Timestamp,
        is_ours: impl Fn(&str) -> bool + Send,
    ) -> Result<SweepResult, Error> {
        let mut swept = SweepResult::default();
        for upload in self.list_unfinished(prefix).await? {
            if upload.began_at >= deadline || !upload.name.starts_with(prefix) || !is_ours(&upload.name) {
                continue;
            }
            match self.abort_unfinished(&upload).await {
                Ok(()) => swept.aborted.push(upload.name),
                Err(error) => swept.failed.push(error),
            }
        }
        Ok(swept)
    }

    /// Aborts duplicate uploads of the same object. An earlier attempt to begin the upload may have created
    /// one although its response was lost.
    pub(crate) async fn abort_duplicates(&self, key: &Key, keep: Option<&PendingUpload>, since: Timestamp) {
        let Ok(all) = self.list_unfinished(key.as_str()).await else {
            return;
        };
        // Tolerates clocks that differ by up to a minute. No run retries the same object within less than a
        // minute.
        let since = since
            .saturating_sub(jiff::SignedDuration::from_mins(1))
            .unwrap_or(since);
        for upload in all {
            let is_kept = keep.is_some_and(|target| target.id == upload.id);
            if upload.name == key.as_str() && !is_kept && upload.began_at >= since {
                // What cannot be aborted now is left to the next sweep.
                let _ = self.abort_unfinished(&upload).await;
            }
        }
    }

    async fn abort_unfinished(&self, upload: &UnfinishedUpload) -> Result<(), Error> {
        let key = Key::new(upload.name.clone()).map_err(|invalid| {
            let fault = Fault::new(Class::Unsupported, invalid.to_string());
            Error::new(fault, Operation::Abort, self.location(), &upload.name, 1)
        })?;
        let target = PendingUpload {
            key,
            id: upload.id.clone(),
            mark: UploadToken(String::new()),
            part_size: 0,
        };
        self.abort(&target).await
    }

    /// Aborts an upload. Succeeds if the upload does not exist.
    pub(crate) async fn abort(&self, target: &PendingUpload) -> Result<(), Error> {
        let aborted = self
            .retry(
                Operation::Abort,
                target.key.as_str(),
                self.policy.request_timeout,
                || self.backend.abort(target),
            )
            .await;
        match aborted {
            Err(error) if matches!(error.class, Class::NoUpload | Class::NotFound) => Ok(()),
            other => other,
        }
    }

    /// Lists all unfinished uploads of objects whose names start with `prefix`.
    pub(crate) async fn list_unfinished(&self, prefix: &str) -> Result<Vec<UnfinishedUpload>, Error> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self
                .retry(Operation::Sweep, prefix, self.policy.request_timeout, || {
                    self.backend.list_uploads(prefix, next.as_deref())
                })
                .await?;
            all.extend(page.items);
            if page.next.is_some() && page.next == next {
                break;
            }
            next = page.next;
            if next.is_none() {
                return Ok(all);
            }
        }
        Err(self.endless_list_error(Operation::Sweep, prefix))
    }

    fn endless_list_error(&self, operation: Operation, name: &str) -> Error {
        let fault = Fault::new(Class::Corrupt, "the listing does not end");
        Error::new(fault, operation, self.location(), name, 1)
    }

    pub(crate) async fn retry<'a, T>(
        &'a self,
        operation: Operation,
        name: &str,
        limit: Duration,
        request: impl Fn() -> BackendFuture<'a, T>,
    ) -> Result<T, Error> {
        match self.retry_tracked(operation, name, limit, request).await {
            Ok(tried) => Ok(tried.value),
            Err((error, _)) => Err(error),
        }
    }

    /// Sends the request until it succeeds, fails with an error that a retry cannot help, or reaches the
    /// maximum number of attempts.
    pub(crate) async fn retry_tracked<'a, T>(
        &'a self,
        operation: Operation,
        name: &str,
        limit: Duration,
        request: impl Fn() -> BackendFuture<'a, T>,
    ) -> Result<RetryResult<T>, (Error, bool)> {
        let mut has_uncertain_attempt = false;
        let mut attempt = 1;
        loop {
            let fault = match with_timeout(limit, request()).await {
                Ok(value) => {
                    return Ok(RetryResult {
                        value,
                        has_uncertain_attempt,
                    });
                }
                Err(fault) => fault,
            };
            has_uncertain_attempt |= fault.class.is_uncertain();
            if attempt >= self.policy.max_attempts || !fault.class.is_worth_retrying() {
                let error = Error::new(fault, operation, self.location(), name, attempt);
                return Err((error, has_uncertain_attempt));
            }
            tracing::debug!(%operation, name, attempt, class = fault.class.as_str(), origin = ?fault.origin, detail = fault.detail, "retrying");
            self.wait_before_retry(attempt, fault.retry_after).await;
            attempt += 1;
        }
    }

    pub(crate) async fn wait_before_retry(&self, failures: u32, retry_after: Option<Duration>) {
        tokio::time::sleep(
            self.policy
                .backoff(failures, clock::random_fraction(), retry_after),
        )
        .await;
    }
}

/// Waits for a response, or fails with `TimedOut`.
pub(crate) async fn with_timeout<T>(limit: Duration, answer: BackendFuture<'_, T>) -> Result<T, Fault> {
    match tokio::time::timeout(limit, answer).await {
        Ok(result) => result,
        Err(_) => Err(Fault::new(
            Class::TimedOut,
            format!("no response within {limit:?}"),
        )),
    }
}
