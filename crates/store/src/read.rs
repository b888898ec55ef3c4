//! Reads objects across broken connections. A read resumes at the byte where the connection broke, and fails
//! if the object was replaced in the meantime.

use std::fmt;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use crate::backend::{Body, ByteRange, Etag, ObjectBody};
use crate::error::{Class, Error, Fault, Operation};
use crate::key::Key;
use crate::store::{Store, with_timeout};

/// An object that is being read.
pub struct ObjectStream {
    /// The ETag of the object.
    pub etag: Etag,
    /// The number of bytes in `body`.
    pub length: u64,
    /// The bytes, in order.
    pub body: BoxStream<'static, Result<Bytes, Error>>,
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStream")
            .field("etag", &self.etag)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

struct ResumableRead {
    store: Store,
    key: Key,
    etag: Etag,
    at: u64,
    end: u64,
    body: Option<Body>,
    failures: u32,
}

pub(crate) async fn open(
    store: &Store,
    key: &Key,
    range: ByteRange,
    etag: Option<&Etag>,
) -> Result<ObjectStream, Error> {
    let ObjectBody { etag, length, body } = store
        .retry(
            Operation::Read,
            key.as_str(),
            store.policy.request_timeout,
            || store.backend.read(key, range, etag),
        )
        .await?;
    let resumable = ResumableRead {
        store: store.clone(),
        key: key.clone(),
        etag: etag.clone(),
        at: range.from,
        end: range.from.saturating_add(length),
        body: Some(body),
        failures: 0,
    };
    let body = stream::unfold(Some(resumable), |resumable| async {
        let mut resumable = resumable?;
        match resumable.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(resumable))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(ObjectStream {
        etag,
        length,
        body: body.boxed(),
    })
}

pub(crate) async fn read_small(store: &Store, key: &Key, limit: u64) -> Result<Bytes, Error> {
    let mut opened = open(store, key, ByteRange::ALL, None).await?;
    if opened.length > limit {
        let detail = format!(
            "the object has {} bytes; at most {limit} were expected",
            opened.length
        );
        let fault = Fault::new(Class::Corrupt, detail);
        return Err(Error::new(
            fault,
            Operation::Read,
            store.location(),
            key.as_str(),
            1,
        ));
    }
    let mut whole = BytesMut::new();
    while let Some(bytes) = opened.body.next().await {
        whole.extend_from_slice(&bytes?);
    }
    Ok(whole.freeze())
}

impl ResumableRead {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.at >= self.end {
                return Ok(None);
            }
            match self.next_chunk().await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.at = self
                        .at
                        .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    if self.at > self.end {
                        let fault = Fault::new(Class::Corrupt, "the store sent more bytes than announced");
                        return Err(self.error(fault));
                    }
                    self.failures = 0;
                    return Ok(Some(bytes));
                }
                Err(fault) => {
                    self.body = None;
                    self.failures += 1;
                    if self.failures >= self.store.policy.max_attempts || !fault.class.is_worth_retrying() {
                        return Err(self.error(fault));
                    }
                    self.store
                        .wait_before_retry(self.failures, fault.retry_after)
                        .await;
                }
            }
        }
    }

    /// The next chunk of the current connection, or of a new one.
    async fn next_chunk(&mut self) -> Result<Bytes, Fault> {
        let policy = &self.store.policy;
        let body = if let Some(body) = &mut self.body {
            body
        } else {
            let range = ByteRange {
                from: self.at,
                to: Some(self.end),
            };
            let reading = self.store.backend.read(&self.key, range, Some(&self.etag));
            let reading = with_timeout(policy.request_timeout, reading).await?;
            if reading.etag != self.etag {
                return Err(Fault::new(Class::Changed, "its ETag has changed"));
            }
            let left = self.end - self.at;
            if reading.length != left {
                let detail = format!("the store sends {} bytes instead of {left}", reading.length);
                return Err(Fault::new(Class::Corrupt, detail));
            }
            self.body.insert(reading.body)
        };
        match tokio::time::timeout(policy.idle_timeout, body.next()).await {
            Ok(Some(piece)) => piece,
            Ok(None) => Err(Fault::new(Class::Transient, "the response ended too early")),
            Err(_) => {
                let detail = format!("no data received for {:?}", policy.idle_timeout);
                Err(Fault::new(Class::TimedOut, detail))
            }
        }
    }

    fn error(&self, fault: Fault) -> Error {
        Error::new(
            fault,
            Operation::Read,
            self.store.location(),
            self.key.as_str(),
            self.failures.max(1),
        )
    }
}
