//! Errors of stores: a class that callers act upon, and a message that names the setting to check and quotes
//! the store. Messages contain no values of Secrets: backends redact what they quote.

use std::fmt;
use std::time::Duration;

use crate::backend::{Kind, StoreLocation};

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The store failed or the connection broke. A retry may succeed.
    Transient,
    /// The store throttles requests.
    Throttled,
    /// The store did not respond within the timeout.
    TimedOut,
    /// No connection to the store could be established.
    Unreachable,
    /// Another change to the same object was in progress.
    Conflict,
    /// The object does not exist.
    NotFound,
    /// The bucket, container or directory does not exist.
    NoBucket,
    /// The upload does not exist (any more).
    NoUpload,
    /// The identity is valid but missing the permission.
    Forbidden,
    /// The credentials are unknown, wrong, expired, or could not be obtained.
    Credentials,
    /// The clocks of this machine and of the store differ too much.
    Clock,
    /// The bucket is in another region.
    WrongRegion,
    /// No space or quota is left.
    Full,
    /// The object is protected against changes and deletion, for example by a retention policy.
    Locked,
    /// The certificate of the store is not trusted.
    TlsUntrusted,
    /// The server at the endpoint is not a store of this type.
    NotAStore,
    /// An object with this name already exists.
    Exists,
    /// The object was replaced while it was being read.
    Changed,
    /// The stored object or the response of the store is invalid.
    Corrupt,
    /// The store does not support the request, or rejects it as invalid.
    Unsupported,
}

impl Class {
    /// Whether the same request may succeed when it is retried.
    pub fn is_worth_retrying(self) -> bool {
        matches!(
            self,
            Self::Transient | Self::Throttled | Self::TimedOut | Self::Unreachable | Self::Conflict
        )
    }

    /// Whether the store may have executed the request although it did not confirm it.
    pub fn is_uncertain(self) -> bool {
        matches!(self, Self::Transient | Self::Throttled | Self::TimedOut)
    }

    /// The class as one word, for metric labels and condition reasons.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "Transient",
            Self::Throttled => "Throttled",
            Self::TimedOut => "TimedOut",
            Self::Unreachable => "Unreachable",
            Self::Conflict => "Conflict",
            Self::NotFound => "NotFound",
            Self::NoBucket => "NoBucket",
            Self::NoUpload => "NoUpload",
            Self::Forbidden => "Forbidden",
            Self::Credentials => "Credentials",
            Self::Clock => "Clock",
            Self::WrongRegion => "WrongRegion",
            Self::Full => "Full",
            Self::Locked => "Locked",
            Self::TlsUntrusted => "TlsUntrusted",
            Self::NotAStore => "NotAStore",
            Self::Exists => "Exists",
            Self::Changed => "Changed",
            Self::Corrupt => "Corrupt",
            Self::Unsupported => "Unsupported",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Transient => "the store failed or the connection broke",
            Self::Throttled => "the store throttles requests",
            Self::TimedOut => "the store did not answer in time",
            Self::Unreachable => "the store could not be reached",
            Self::Conflict => "another change to the same object was in progress",
            Self::NotFound => "the object does not exist",
            Self::NoBucket => "the bucket, container or directory does not exist",
            Self::NoUpload => "the upload no longer exists",
            Self::Forbidden => "the identity missing the permission",
            Self::Credentials => "the credentials are wrong, expired or missing",
            Self::Clock => "the clocks of this machine and of the store differ too much",
            Self::WrongRegion => "the bucket is in another region",
            Self::Full => "no space or quota is left",
            Self::Locked => "the object is protected against changes",
            Self::TlsUntrusted => "the certificate of the store is not trusted",
            Self::NotAStore => "the server at the endpoint does not look like a store of this type",
            Self::Exists => "an object with this name already exists",
            Self::Changed => "the object was replaced in the meantime",
            Self::Corrupt => "the stored object or the response of the store is invalid",
            Self::Unsupported => "the store rejects the request as invalid or unsupported",
        }
    }

    /// The setting that the user should check.
    fn setting(self, kind: Kind) -> Option<&'static str> {
        let by_kind = |s3, oss, gcs, abs, local| {
            Some(match kind {
                Kind::S3 => s3,
                Kind::Oss => oss,
                Kind::Gcs => gcs,
                Kind::Abs => abs,
                Kind::Local => local,
            })
        };
        match self {
            Self::Credentials | Self::Forbidden => by_kind(
                "s3.awsSecret",
                "oss.ossSecret",
                "gcs.gcpSecret",
                "abs.absSecret",
                "the owner and mode of local.path",
            ),
            Self::NoBucket => by_kind("s3.path", "oss.path", "gcs.path", "abs.path", "local.path"),
            Self::WrongRegion => by_kind(
                "s3.region",
                "oss.region and oss.endpoint",
                "gcs.path",
                "abs.absSecret (key cloud)",
                "local.path",
            ),
            Self::Unreachable => by_kind(
                "s3.endpoint and s3.forcePathStyle",
                "oss.endpoint",
                "gcs.endpoint",
                "abs.endpoint and abs.absSecret (keys storage-account and cloud)",
                "local.persistentVolumeClaim",
            ),
            Self::NotAStore => by_kind(
                "s3.endpoint: is that the port of the S3 API, and not of the web console?",
                "oss.endpoint",
                "gcs.endpoint",
                "abs.endpoint",
                "local.path",
            ),
            Self::TlsUntrusted => by_kind(
                "s3.caSecret and s3.endpoint",
                "oss.caSecret and oss.endpoint",
                "gcs.caSecret and gcs.endpoint",
                "abs.caSecret and abs.endpoint",
                "local.path",
            ),
            Self::Full => by_kind(
                "the quota of the bucket",
                "the quota of the bucket",
                "the quota of the bucket",
                "the quota of the account",
                "local.persistentVolumeClaim",
            ),
            _ => None,
        }
    }
}

/// The service that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The store.
    Store,
    /// The service of the platform that issues credentials, before a request was sent to the store.
    Identity,
}

/// The failure of a single request, as reported by a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The class of the error.
    pub class: Class,
    /// The error text of the store, redacted.
    pub detail: String,
    /// How long the store asks clients to wait before the next request.
    pub retry_after: Option<Duration>,
    /// The service that failed.
    pub origin: Origin,
}

impl Fault {
    /// Creates a fault with the error text of the store, which must already be redacted.
    pub fn new(class: Class, detail: impl Into<String>) -> Self {
        Self {
            class,
            detail: detail.into(),
            retry_after: None,
            origin: Origin::Store,
        }
    }

    /// Converts the failure of a service that issues credentials. It keeps its class if a retry may succeed. The other
    /// classes describe a store.
    pub(crate) fn into_identity_fault(self) -> Self {
        let class = if self.class.is_worth_retrying() {
            self.class
        } else {
            Class::Credentials
        };
        Self {
            class,
            origin: Origin::Identity,
            ..self
        }
    }
}

/// An operation on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Begin an upload.
    Begin,
    /// Upload the part with this number.
    Part(u32),
    /// Complete an upload.
    Complete,
    /// Abort an upload.
    Abort,
    /// Read the metadata of an object.
    Head,
    /// Read an object.
    Read,
    /// List objects.
    List,
    /// Delete an object.
    Delete,
    /// Write a small object unless it exists.
    Create,
    /// List uploads that were neither completed nor aborted.
    Sweep,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("begin the upload of"),
            Self::Part(number) => write!(f, "upload part {number} of"),
            Self::Complete => f.write_str("complete the upload of"),
            Self::Abort => f.write_str("abort the upload of"),
            Self::Head => f.write_str("read the metadata of"),
            Self::Read => f.write_str("read"),
            Self::List => f.write_str("list"),
            Self::Delete => f.write_str("delete"),
            Self::Create => f.write_str("write"),
            Self::Sweep => f.write_str("list unfinished uploads in"),
        }
    }
}

/// What a failed upload left in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadRemains {
    /// Nothing.
    Aborted,
    /// The whole object. Only a later check failed.
    Complete,
    /// Unknown, because the store did not respond. The next sweep removes leftover parts.
    Unknown,
}

/// A failed operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The operation.
    pub operation: Operation,
    /// The class of the error.
    pub class: Class,
    /// The service that failed.
    pub origin: Origin,
    /// The address of the object.
    pub object: String,
    /// The endpoint of the store.
    pub endpoint: String,
    /// The error text of the store, redacted.
    pub detail: String,
    /// The setting that the user should check.
    pub setting: Option<&'static str>,
    /// The number of attempts.
    pub attempts: u32,
    /// What the upload left in the store, if the operation was part of an upload.
    pub upload_remains: Option<UploadRemains>,
}

impl Error {
    /// Adds the operation, the object and the number of attempts to a fault.
    pub fn new(
        fault: Fault,
        operation: Operation,
        location: &StoreLocation,
        name: &str,
        attempts: u32,
    ) -> Self {
        Self {
            operation,
            class: fault.class,
            origin: fault.origin,
            object: location.address(name),
            endpoint: location.endpoint.clone(),
            detail: fault.detail,
            setting: match fault.origin {
                Origin::Store => fault.class.setting(location.kind),
                Origin::Identity => Class::Credentials.setting(location.kind),
            },
            attempts,
            upload_remains: None,
        }
    }

    /// Adds what the upload left in the store.
    #[must_use]
    pub fn with_upload_remains(self, remains: UploadRemains) -> Self {
        Self {
            upload_remains: Some(remains),
            ..self
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, self.object)?;
        if !self.endpoint.is_empty() {
            write!(f, " at {}", self.endpoint)?;
        }
        let sentence = match self.origin {
            Origin::Store => self.class.sentence(),
            Origin::Identity => "cannot obtain credentials from the platform",
        };
        write!(f, ": {sentence}")?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        if let Some(setting) = self.setting {
            write!(f, "; look at {setting}")?;
        }
        if self.attempts > 1 {
            write!(f, "; tried {} times", self.attempts)?;
        }
        match self.upload_remains {
            Some(UploadRemains::Unknown) => {
                f.write_str("; uploaded parts may remain until the next sweep removes them")
            }
            Some(UploadRemains::Complete) => f.write_str("; the object is complete"),
            Some(UploadRemains::Aborted) | None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
