//! What every store must be able to do, one request at a time. Ports do not retry, do not wait longer than a request may
//! take, and say every failure as a class; [`crate::Store`] does the rest, the same for all.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::error::Fault;
use crate::key::Key;

/// An answer to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// The body of an object, piece by piece.
pub type Body = BoxStream<'static, Result<Bytes, Fault>>;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// S3 and everything that speaks its protocol.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Abs,
    /// A directory.
    Local,
}

/// Where a store is, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The protocol.
    pub kind: Kind,
    /// The bucket, container or directory.
    pub bucket: String,
    /// The endpoint without credentials; empty where there is only one.
    pub endpoint: String,
}

impl Place {
    /// An object of it, as people write addresses.
    pub fn address(&self, name: &str) -> String {
        match self.kind {
            Kind::S3 => format!("s3://{}/{name}", self.bucket),
            Kind::Oss => format!("oss://{}/{name}", self.bucket),
            Kind::Gcs => format!("gs://{}/{name}", self.bucket),
            Kind::Abs => format!("abs://{}/{name}", self.bucket),
            Kind::Local => format!("{}/{name}", self.bucket.trim_end_matches('/')),
        }
    }
}

/// What tells one writing of an object from another, as the store made it up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etag(pub String);

/// A mark that an upload leaves on its object where the store can keep one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(pub String);

/// The name a store gave an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId(pub String);

/// An upload under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The object it makes.
    pub key: Key,
    /// What the store calls the upload.
    pub id: UploadId,
    /// The mark on the object.
    pub mark: Mark,
    /// The size of every part but the last.
    pub part_size: u64,
}

/// A part the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1.
    pub number: u32,
    /// What the store calls it.
    pub tag: String,
    /// Its size.
    pub size: u64,
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its size.
    pub size: u64,
    /// Which writing of it this is.
    pub etag: Etag,
    /// The mark its upload left.
    pub mark: Option<Mark>,
    /// When it was written, by the store's clock.
    pub modified: Option<Timestamp>,
}

/// One object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name as the store has it: others may have written what we would refuse.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// When it was written, by the store's clock.
    pub modified: Option<Timestamp>,
}

/// One upload that was begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The object it would make.
    pub name: String,
    /// What the store calls it.
    pub id: UploadId,
    /// When it was begun, by the store's clock.
    pub at: Timestamp,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// How to ask for the next.
    pub next: Option<String>,
}

/// Which bytes: from the first to before the last, or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub from: u64,
    /// The byte behind the last.
    pub to: Option<u64>,
}

impl Span {
    /// Everything.
    pub const ALL: Self = Self { from: 0, to: None };

    /// The value of a `Range` header, where one is needed.
    pub fn header(self) -> Option<String> {
        match (self.from, self.to) {
            (0, None) => None,
            (from, None) => Some(format!("bytes={from}-")),
            (from, Some(to)) => Some(format!("bytes={from}-{}", to.saturating_sub(1))),
        }
    }
}

/// What a store sends of an object.
pub struct Reading {
    /// Which writing of it.
    pub etag: Etag,
    /// How many bytes come.
    pub length: u64,
    /// The bytes asked for.
    pub body: Body,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("etag", &self.etag)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// One store and one bucket of it.
pub trait Port: fmt::Debug + Send + Sync {
    /// Where it is.
    fn place(&self) -> &Place;
    /// Begins an upload; the object appears only when it is completed.
    fn begin<'a>(&'a self, key: &'a Key, mark: &'a Mark) -> Answer<'a, UploadId>;
    /// Hands over one part; the same number again replaces it.
    fn part<'a>(&'a self, target: &'a Target, number: u32, body: Bytes) -> Answer<'a, Part>;
    /// Makes the object of the parts, in their order. There is at least one.
    fn complete<'a>(&'a self, target: &'a Target, parts: &'a [Part]) -> Answer<'a, ()>;
    /// Forgets an upload and its parts.
    fn abort<'a>(&'a self, target: &'a Target) -> Answer<'a, ()>;
    /// Looks at an object.
    fn head<'a>(&'a self, key: &'a Key) -> Answer<'a, Meta>;
    /// Reads an object, of this writing only if it is given.
    fn read<'a>(&'a self, key: &'a Key, span: Span, etag: Option<&'a Etag>) -> Answer<'a, Reading>;
    /// One page of the objects whose names begin so.
    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Entry>>;
    /// Deletes an object.
    fn delete<'a>(&'a self, key: &'a Key) -> Answer<'a, ()>;
    /// Writes a small object in one piece; refuses with `Exists` if there is one of that name.
    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> Answer<'a, ()>;
    /// One page of the uploads begun and not ended, whose objects' names begin so.
    fn begun<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> Answer<'a, Page<Begun>>;
}
