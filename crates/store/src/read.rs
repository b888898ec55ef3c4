//! Reading that survives broken connections: it goes on at the byte where it broke, of the same writing of the object, or
//! says that the object is another one now.

use std::fmt;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use crate::error::{Class, Error, Fault, Operation};
use crate::key::Key;
use crate::port::{Body, Etag, Reading, Span};
use crate::store::{Store, bounded};

/// An object that is being read.
pub struct Opened {
    /// Which writing of it.
    pub etag: Etag,
    /// How many bytes come.
    pub length: u64,
    /// The bytes, in order.
    pub body: BoxStream<'static, Result<Bytes, Error>>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("etag", &self.etag)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

struct Position {
    store: Store,
    key: Key,
    etag: Etag,
    at: u64,
    end: u64,
    body: Option<Body>,
    failed: u32,
}

pub(crate) async fn open(store: &Store, key: &Key, span: Span, etag: Option<&Etag>) -> Result<Opened, Error> {
    let Reading { etag, length, body } = store
        .retried(Operation::Read, key.as_str(), store.policy.request, || {
            store.port.read(key, span, etag)
        })
        .await?;
    let position = Position {
        store: store.clone(),
        key: key.clone(),
        etag: etag.clone(),
        at: span.from,
        end: span.from.saturating_add(length),
        body: Some(body),
        failed: 0,
    };
    let body = stream::unfold(Some(position), |position| async {
        let mut position = position?;
        match position.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(position))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Opened {
        etag,
        length,
        body: body.boxed(),
    })
}

pub(crate) async fn small(store: &Store, key: &Key, limit: u64) -> Result<Bytes, Error> {
    let mut opened = open(store, key, Span::ALL, None).await?;
    if opened.length > limit {
        let said = format!("it has {} bytes, at most {limit} were expected", opened.length);
        let fault = Fault::new(Class::Corrupt, said);
        return Err(Error::of(fault, Operation::Read, store.place(), key.as_str(), 1));
    }
    let mut whole = BytesMut::new();
    while let Some(bytes) = opened.body.next().await {
        whole.extend_from_slice(&bytes?);
    }
    Ok(whole.freeze())
}

impl Position {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.at >= self.end {
                return Ok(None);
            }
            match self.piece().await {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.at = self
                        .at
                        .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                    if self.at > self.end {
                        let fault = Fault::new(Class::Corrupt, "more bytes came than were announced");
                        return Err(self.error(fault));
                    }
                    self.failed = 0;
                    return Ok(Some(bytes));
                }
                Err(fault) => {
                    self.body = None;
                    self.failed += 1;
                    if self.failed >= self.store.policy.attempts || !fault.class.is_worth_retrying() {
                        return Err(self.error(fault));
                    }
                    self.store.pause(self.failed, fault.retry_after).await;
                }
            }
        }
    }

    /// The next piece of the present connection, or of a new one.
    async fn piece(&mut self) -> Result<Bytes, Fault> {
        let policy = &self.store.policy;
        let body = if let Some(body) = &mut self.body {
            body
        } else {
            let span = Span {
                from: self.at,
                to: Some(self.end),
            };
            let reading = self.store.port.read(&self.key, span, Some(&self.etag));
            let reading = bounded(policy.request, reading).await?;
            if reading.etag != self.etag {
                return Err(Fault::new(Class::Changed, "its ETag is another one"));
            }
            let left = self.end - self.at;
            if reading.length != left {
                let said = format!("{} bytes come where {left} are missing", reading.length);
                return Err(Fault::new(Class::Corrupt, said));
            }
            self.body.insert(reading.body)
        };
        match tokio::time::timeout(policy.idle, body.next()).await {
            Ok(Some(piece)) => piece,
            Ok(None) => Err(Fault::new(Class::Transient, "the body ended too early")),
            Err(_) => {
                let said = format!("no byte came for {:?}", policy.idle);
                Err(Fault::new(Class::TimedOut, said))
            }
        }
    }

    fn error(&self, fault: Fault) -> Error {
        Error::of(
            fault,
            Operation::Read,
            self.store.place(),
            self.key.as_str(),
            self.failed.max(1),
        )
    }
}
