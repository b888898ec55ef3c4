//! The interface of a store backend: one method per request. Backends do not retry and enforce no timeouts.
//! They report every failure as a [`Fault`] with a class; [`crate::Store`] does the rest for all of them.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::error::Fault;
use crate::key::Key;

/// The future of a response.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// The body of an object, as a stream of chunks.
pub type Body = BoxStream<'static, Result<Bytes, Fault>>;

/// The type of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// S3 or an S3-compatible store.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Abs,
    /// A local directory.
    Local,
}

/// Where a store is. Error messages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    /// The type of the store.
    pub kind: Kind,
    /// The bucket, container or directory.
    pub bucket: String,
    /// The endpoint without credentials. Empty if it is the default endpoint of the provider.
    pub endpoint: String,
}

impl StoreLocation {
    /// The address of an object, such as `s3://bucket/name`.
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

/// The ETag of an object: the store assigns a new one whenever the object is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etag(pub String);

/// A unique token of an upload, stored in the metadata of the object if the store supports that. It
/// identifies the object as written by this upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadToken(pub String);

/// The ID that the store assigned to an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId(pub String);

/// An upload in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUpload {
    /// The object that the upload creates.
    pub key: Key,
    /// The upload ID of the store.
    pub id: UploadId,
    /// The token stored with the object.
    pub mark: UploadToken,
    /// The size of every part except the last.
    pub part_size: u64,
}

/// An uploaded part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part number, starting at 1.
    pub number: u32,
    /// The ETag or block ID of the part.
    pub tag: String,
    /// The size in bytes.
    pub size: u64,
}

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMetadata {
    /// The size in bytes.
    pub size: u64,
    /// The ETag.
    pub etag: Etag,
    /// The token of the upload that wrote the object.
    pub mark: Option<UploadToken>,
    /// When the object was written, by the clock of the store.
    pub modified: Option<Timestamp>,
}

/// An object in a listing; its name need not be a valid [`Key`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The name as the store reports it. Other programs may have written objects with names that [`Key`]
    /// rejects.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// When the object was written, by the clock of the store.
    pub modified: Option<Timestamp>,
}

/// An upload that was neither completed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The name of the object that the upload would create.
    pub name: String,
    /// The upload ID of the store.
    pub id: UploadId,
    /// When the upload began, by the clock of the store.
    pub began_at: Timestamp,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// The token that requests the next page, if there is one.
    pub next: Option<String>,
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub from: u64,
    /// The end of the range (exclusive), or `None` for the end of the object.
    pub to: Option<u64>,
}

impl ByteRange {
    /// The whole object.
    pub const ALL: Self = Self { from: 0, to: None };

    /// The value of the `Range` header, or `None` for the whole object.
    pub fn header(self) -> Option<String> {
        match (self.from, self.to) {
            (0, None) => None,
            (from, None) => Some(format!("bytes={from}-")),
            (from, Some(to)) => Some(format!("bytes={from}-{}", to.saturating_sub(1))),
        }
    }
}

/// The response to a read request.
pub struct ObjectBody {
    /// The ETag of the object.
    pub etag: Etag,
    /// The number of bytes in `body`.
    pub length: u64,
    /// The requested bytes.
    pub body: Body,
}

impl fmt::Debug for ObjectBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectBody")
            .field("etag", &self.etag)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// A store backend, bound to one bucket, container or directory.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Where the store is.
    fn location(&self) -> &StoreLocation;
    /// Begins an upload. The object becomes visible only when the upload is completed.
    fn begin<'a>(&'a self, key: &'a Key, mark: &'a UploadToken) -> BackendFuture<'a, UploadId>;
    /// Uploads one part. A second part with the same number replaces the first.
    fn upload_part<'a>(
        &'a self,
        target: &'a PendingUpload,
        number: u32,
        body: Bytes,
    ) -> BackendFuture<'a, Part>;
    /// Assembles the object from its parts, in order. There is at least one part.
    fn complete<'a>(&'a self, target: &'a PendingUpload, parts: &'a [Part]) -> BackendFuture<'a, ()>;
    /// Aborts an upload and discards its parts. Fails with `NoUpload` if there is none.
    fn abort<'a>(&'a self, target: &'a PendingUpload) -> BackendFuture<'a, ()>;
    /// Reads the metadata of an object.
    fn head<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ObjectMetadata>;
    /// Reads an object. With an ETag, fails with `Changed` if the object was replaced.
    fn read<'a>(
        &'a self,
        key: &'a Key,
        range: ByteRange,
        etag: Option<&'a Etag>,
    ) -> BackendFuture<'a, ObjectBody>;
    /// Lists one page of the objects whose names start with `prefix`.
    fn list<'a>(&'a self, prefix: &'a str, page: Option<&'a str>) -> BackendFuture<'a, Page<ListedObject>>;
    /// Deletes an object.
    fn delete<'a>(&'a self, key: &'a Key) -> BackendFuture<'a, ()>;
    /// Writes a small object in one request. Fails with `Exists` if the object exists.
    fn create<'a>(&'a self, key: &'a Key, body: Bytes) -> BackendFuture<'a, ()>;
    /// Lists one page of the unfinished uploads of objects whose names start with `prefix`.
    fn list_uploads<'a>(
        &'a self,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BackendFuture<'a, Page<UnfinishedUpload>>;
}
