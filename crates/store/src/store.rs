//! What callers have of a store: every operation bounded in time, tried again where that can help, and answered by what
//! really is, whatever the store managed to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::clock;
use crate::error::{Class, Error, Fault, Operation};
use crate::key::Key;
use crate::policy::Policy;
use crate::port::{Answer, Begun, Entry, Etag, Mark, Meta, Page, Place, Port, Span, Target};
use crate::read::{self, Opened};
use crate::upload::{Before, Upload};

/// One bucket or directory, ready to be used; a cheap handle.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) port: Arc<dyn Port>,
    pub(crate) policy: Arc<Policy>,
}

/// What became of writing an object that must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It was written.
    Created,
    /// There was one of that name, which is untouched.
    Existed,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The objects whose uploads were aborted.
    pub aborted: Vec<String>,
    /// What could not be aborted.
    pub failed: Vec<Error>,
}

/// A value, and whether an earlier try of the same may have been carried out too.
pub(crate) struct Tried<T> {
    pub value: T,
    pub is_doubtful: bool,
}

/// No list is followed for more pages than this, nor to the same page twice in a row: a store that repeats itself must
/// not hold a run for ever.
const MOST_PAGES: usize = 100_000;

impl Store {
    /// A store behind a port.
    pub fn new(port: Arc<dyn Port>, policy: Policy) -> Self {
        Self {
            port,
            policy: Arc::new(policy),
        }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        self.port.place()
    }

    /// Begins an upload. Every part but the last must have exactly `part_size` bytes.
    pub async fn begin(&self, key: &Key, part_size: u64) -> Result<Upload, Error> {
        let before = match self.look(key).await {
            Ok(Some(meta)) => Before::Was(meta.etag),
            Ok(None) => Before::Absent,
            Err(error) if error.class.is_worth_retrying() || error.class == Class::TlsUntrusted => {
                return Err(Error {
                    operation: Operation::Begin,
                    ..error
                });
            }
            // Some identities may write and not look; for them only the mark tells. What is wrong otherwise, the next
            // request says better: answers to this one have no body.
            Err(_) => Before::Unknown,
        };
        let mark = Mark(clock::token());
        let started = clock::now();
        let begun = self
            .tried(Operation::Begin, key.as_str(), self.policy.request, || {
                self.port.begin(key, &mark)
            })
            .await;
        let (id, is_doubtful) = match begun {
            Ok(tried) => (tried.value, tried.is_doubtful),
            Err((error, is_doubtful)) => {
                if is_doubtful {
                    self.forget_twins(key, None, started).await;
                }
                return Err(error);
            }
        };
        let target = Target {
            key: key.clone(),
            id,
            mark,
            part_size,
        };
        let upload = Upload::new(self.clone(), target, before);
        Ok(if is_doubtful {
            upload.with_twins_since(started)
        } else {
            upload
        })
    }

    /// Looks at an object; `None` if there is none.
    pub async fn look(&self, key: &Key) -> Result<Option<Meta>, Error> {
        let looked = self
            .retried(Operation::Head, key.as_str(), self.policy.request, || {
                self.port.head(key)
            })
            .await;
        match looked {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.class == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens an object for reading, of this writing only if it is given. The bytes come in order; a broken connection is
    /// taken up again where it broke, as long as the object is the same.
    pub async fn open(&self, key: &Key, span: Span, etag: Option<&Etag>) -> Result<Opened, Error> {
        read::open(self, key, span, etag).await
    }

    /// Reads a small object whole, or refuses with `Corrupt` if it is larger than `limit`.
    pub async fn read_small(&self, key: &Key, limit: u64) -> Result<Bytes, Error> {
        read::small(self, key, limit).await
    }

    /// One page of the objects whose names begin so.
    pub async fn page(&self, prefix: &str, page: Option<&str>) -> Result<Page<Entry>, Error> {
        self.retried(Operation::List, prefix, self.policy.request, || {
            self.port.list(prefix, page)
        })
        .await
    }

    /// All objects whose names begin so, in the order of their names.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = self.page(prefix, next.as_deref()).await?;
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
        Err(self.endless(Operation::List, prefix))
    }

    /// Deletes an object; one that is not there counts as deleted.
    pub async fn delete(&self, key: &Key) -> Result<(), Error> {
        let deleted = self
            .retried(Operation::Delete, key.as_str(), self.policy.request, || {
                self.port.delete(key)
            })
            .await;
        match deleted {
            Err(error) if error.class == Class::NotFound => Ok(()),
            other => other,
        }
    }

    /// Writes a small object if there is none of its name.
    pub async fn create(&self, key: &Key, body: Bytes) -> Result<Creation, Error> {
        let created = self
            .tried(Operation::Create, key.as_str(), self.policy.part, || {
                self.port.create(key, body.clone())
            })
            .await;
        match created {
            Ok(_) => Ok(Creation::Created),
            // A lost answer to our own first try looks like somebody else's object.
            Err((error, is_doubtful)) if error.class == Class::Exists => {
                if is_doubtful {
                    self.whose(key, &body).await
                } else {
                    Ok(Creation::Existed)
                }
            }
            Err((error, _)) => Err(error),
        }
    }

    /// Whether what is there is what we sent. What cannot be read is not called somebody else's.
    async fn whose(&self, key: &Key, body: &Bytes) -> Result<Creation, Error> {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        match self.read_small(key, length).await {
            Ok(there) if there == *body => Ok(Creation::Created),
            Ok(_) => Ok(Creation::Existed),
            // It is longer.
            Err(error) if error.class == Class::Corrupt => Ok(Creation::Existed),
            Err(error) => Err(Error {
                operation: Operation::Create,
                ..error
            }),
        }
    }

    /// Aborts uploads that were begun before `deadline`, by the store's clock, for objects whose names begin with
    /// `prefix` and which `is_ours` knows. Nothing else is touched.
    pub async fn sweep(
        &self,
        prefix: &str,
        deadline: Timestamp,
        is_ours: impl Fn(&str) -> bool + Send,
    ) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        for begun in self.all_begun(prefix).await? {
            if begun.at >= deadline || !begun.name.starts_with(prefix) || !is_ours(&begun.name) {
                continue;
            }
            match self.forget(&begun).await {
                Ok(()) => swept.aborted.push(begun.name),
                Err(error) => swept.failed.push(error),
            }
        }
        Ok(swept)
    }

    /// Aborts other uploads of the same object that a lost answer to our own beginning may have left.
    pub(crate) async fn forget_twins(&self, key: &Key, keep: Option<&Target>, since: Timestamp) {
        let Ok(all) = self.all_begun(key.as_str()).await else {
            return;
        };
        // Clocks differ; a minute is less than any run waits before it tries the same object again.
        let since = since
            .saturating_sub(jiff::SignedDuration::from_mins(1))
            .unwrap_or(since);
        for begun in all {
            let is_kept = keep.is_some_and(|target| target.id == begun.id);
            if begun.name == key.as_str() && !is_kept && begun.at >= since {
                // What cannot be aborted now is left to the next sweep.
                let _ = self.forget(&begun).await;
            }
        }
    }

    async fn forget(&self, begun: &Begun) -> Result<(), Error> {
        let key = Key::new(begun.name.clone()).map_err(|bad| {
            let fault = Fault::new(Class::Unsupported, bad.to_string());
            Error::of(fault, Operation::Abort, self.place(), &begun.name, 1)
        })?;
        let target = Target {
            key,
            id: begun.id.clone(),
            mark: Mark(String::new()),
            part_size: 0,
        };
        self.abort(&target).await
    }

    /// Aborts an upload; one that is not there counts as aborted.
    pub(crate) async fn abort(&self, target: &Target) -> Result<(), Error> {
        let aborted = self
            .retried(Operation::Abort, target.key.as_str(), self.policy.request, || {
                self.port.abort(target)
            })
            .await;
        match aborted {
            Err(error) if matches!(error.class, Class::NoUpload | Class::NotFound) => Ok(()),
            other => other,
        }
    }

    /// Every upload under way whose object's name begins so.
    pub(crate) async fn all_begun(&self, prefix: &str) -> Result<Vec<Begun>, Error> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = self
                .retried(Operation::Sweep, prefix, self.policy.request, || {
                    self.port.begun(prefix, next.as_deref())
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
        Err(self.endless(Operation::Sweep, prefix))
    }

    fn endless(&self, operation: Operation, name: &str) -> Error {
        let fault = Fault::new(Class::Corrupt, "the list has no end");
        Error::of(fault, operation, self.place(), name, 1)
    }

    pub(crate) async fn retried<'a, T>(
        &'a self,
        operation: Operation,
        name: &str,
        limit: Duration,
        request: impl Fn() -> Answer<'a, T>,
    ) -> Result<T, Error> {
        match self.tried(operation, name, limit, request).await {
            Ok(tried) => Ok(tried.value),
            Err((error, _)) => Err(error),
        }
    }

    /// Tries until it is done, cannot be done, or was tried often enough.
    pub(crate) async fn tried<'a, T>(
        &'a self,
        operation: Operation,
        name: &str,
        limit: Duration,
        request: impl Fn() -> Answer<'a, T>,
    ) -> Result<Tried<T>, (Error, bool)> {
        let mut is_doubtful = false;
        let mut attempt = 1;
        loop {
            let fault = match bounded(limit, request()).await {
                Ok(value) => return Ok(Tried { value, is_doubtful }),
                Err(fault) => fault,
            };
            is_doubtful |= fault.class.is_uncertain();
            if attempt >= self.policy.attempts || !fault.class.is_worth_retrying() {
                let error = Error::of(fault, operation, self.place(), name, attempt);
                return Err((error, is_doubtful));
            }
            tracing::debug!(%operation, name, attempt, class = fault.class.as_str(), said = fault.said, "trying again");
            self.pause(attempt, fault.retry_after).await;
            attempt += 1;
        }
    }

    pub(crate) async fn pause(&self, failed: u32, asked: Option<Duration>) {
        tokio::time::sleep(self.policy.wait(failed, clock::fraction(), asked)).await;
    }
}

/// The answer, or that there was none in time.
pub(crate) async fn bounded<T>(limit: Duration, answer: Answer<'_, T>) -> Result<T, Fault> {
    match tokio::time::timeout(limit, answer).await {
        Ok(result) => result,
        Err(_) => Err(Fault::new(Class::TimedOut, format!("no answer within {limit:?}"))),
    }
}
