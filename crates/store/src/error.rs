//! What goes wrong with a store, in classes that callers act upon, and as sentences that name the setting to look at and
//! the store's own short word for it. A value of a secret never comes this far: ports censor what they quote.

use std::fmt;
use std::time::Duration;

use crate::port::{Kind, Place};

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The store failed or the connection broke; trying again may help.
    Transient,
    /// The store asks for fewer requests.
    Throttled,
    /// There was no answer in time.
    TimedOut,
    /// The store could not be reached at all.
    Unreachable,
    /// Another change to the same object was going on.
    Conflict,
    /// There is no such object.
    NotFound,
    /// There is no such bucket, container or directory.
    NoBucket,
    /// The upload does not exist (any more).
    NoUpload,
    /// The identity is known and may not do this.
    Forbidden,
    /// The identity is unknown, wrong, expired, or could not be had.
    Credentials,
    /// The clocks of the two sides are too far apart.
    Clock,
    /// The bucket lies in another region.
    WrongRegion,
    /// No room or quota is left.
    Full,
    /// The object may not be changed or deleted yet.
    Locked,
    /// The store's certificate is not trusted.
    TlsUntrusted,
    /// What answers at the endpoint is no store of this kind.
    NotAStore,
    /// An object of this name exists already.
    Exists,
    /// The object is another one than the one that was begun to be read.
    Changed,
    /// What the store holds or has sent is not what it should be.
    Corrupt,
    /// The store cannot do this, or what it was asked makes no sense to it.
    Unsupported,
}

impl Class {
    /// Whether the same request may succeed a little later.
    pub fn is_worth_retrying(self) -> bool {
        matches!(
            self,
            Self::Transient | Self::Throttled | Self::TimedOut | Self::Unreachable | Self::Conflict
        )
    }

    /// Whether the store may have done what it was asked although it did not say so.
    pub fn is_uncertain(self) -> bool {
        matches!(self, Self::Transient | Self::Throttled | Self::TimedOut)
    }

    /// One word, for labels of metrics and reasons of conditions.
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
            Self::Throttled => "the store asks for fewer requests",
            Self::TimedOut => "the store did not answer in time",
            Self::Unreachable => "the store could not be reached",
            Self::Conflict => "another change to the same object was going on",
            Self::NotFound => "there is no such object",
            Self::NoBucket => "there is no such bucket, container or directory",
            Self::NoUpload => "the upload does not exist any more",
            Self::Forbidden => "the identity may not do this",
            Self::Credentials => "the credentials are wrong, expired or missing",
            Self::Clock => "the clocks of this machine and of the store are too far apart",
            Self::WrongRegion => "the bucket lies in another region",
            Self::Full => "no room or quota is left",
            Self::Locked => "the object is protected against changes",
            Self::TlsUntrusted => "the certificate of the store is not trusted",
            Self::NotAStore => "what answers there does not look like a store of this kind",
            Self::Exists => "an object of this name exists already",
            Self::Changed => "the object was replaced meanwhile",
            Self::Corrupt => "what the store holds or sent is not what it should be",
            Self::Unsupported => "the store refuses the request as such",
        }
    }

    /// The setting to look at.
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
                "s3.endpoint: is that the port of the store's interface for programs?",
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

/// What a port says about one failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of trouble.
    pub class: Class,
    /// The store's own short word, censored.
    pub said: String,
    /// How long the store wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl Fault {
    /// A fault with the store's word for it, which must be censored already.
    pub fn new(class: Class, said: impl Into<String>) -> Self {
        Self {
            class,
            said: said.into(),
            retry_after: None,
        }
    }
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Beginning an upload.
    Begin,
    /// Uploading the part of this number.
    Part(u32),
    /// Completing an upload.
    Complete,
    /// Aborting an upload.
    Abort,
    /// Looking at an object.
    Head,
    /// Reading an object.
    Read,
    /// Listing objects.
    List,
    /// Deleting an object.
    Delete,
    /// Writing a small object that must not exist.
    Create,
    /// Looking for uploads that were left behind.
    Sweep,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("begin the upload of"),
            Self::Part(number) => write!(f, "upload part {number} of"),
            Self::Complete => f.write_str("complete the upload of"),
            Self::Abort => f.write_str("abort the upload of"),
            Self::Head => f.write_str("look at"),
            Self::Read => f.write_str("read"),
            Self::List => f.write_str("list"),
            Self::Delete => f.write_str("delete"),
            Self::Create => f.write_str("write"),
            Self::Sweep => f.write_str("find uploads left behind in"),
        }
    }
}

/// What became of an upload that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing is left of it.
    Aborted,
    /// The object is there and whole; only a check of it failed.
    Complete,
    /// The store did not answer: the next sweep finds what is left.
    Unknown,
}

/// A failed operation on a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was being done.
    pub operation: Operation,
    /// The kind of trouble.
    pub class: Class,
    /// The object, as an address.
    pub object: String,
    /// The store's endpoint.
    pub endpoint: String,
    /// The store's own short word.
    pub said: String,
    /// The setting to look at.
    pub setting: Option<&'static str>,
    /// How often it was tried.
    pub attempts: u32,
    /// What became of the upload, if it was one.
    pub remains: Option<Remains>,
}

impl Error {
    /// Says what was being done when a fault came up.
    pub fn of(fault: Fault, operation: Operation, place: &Place, name: &str, attempts: u32) -> Self {
        Self {
            operation,
            class: fault.class,
            object: place.address(name),
            endpoint: place.endpoint.clone(),
            said: fault.said,
            setting: fault.class.setting(place.kind),
            attempts,
            remains: None,
        }
    }

    /// The same with what became of the upload.
    #[must_use]
    pub fn with_remains(self, remains: Remains) -> Self {
        Self {
            remains: Some(remains),
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
        write!(f, ": {}", self.class.sentence())?;
        if !self.said.is_empty() {
            write!(f, " ({})", self.said)?;
        }
        if let Some(setting) = self.setting {
            write!(f, "; look at {setting}")?;
        }
        if self.attempts > 1 {
            write!(f, "; tried {} times", self.attempts)?;
        }
        match self.remains {
            Some(Remains::Unknown) => f.write_str("; parts of it may be left, which the next sweep removes"),
            Some(Remains::Complete) => f.write_str("; the object itself is complete"),
            Some(Remains::Aborted) | None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
