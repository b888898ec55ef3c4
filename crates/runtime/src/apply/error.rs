//! Why a write did not happen, or may not have.

use super::CALL;
use crate::error::{Class, Classified};
use crate::fence::NotLeading;
use crate::key::ObjectKey;

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process does not lead.
    #[error("not written: {0}")]
    NotLeading(#[from] NotLeading),
    /// No answer in time: it may have happened.
    #[error("{verb} {kind} {key}: no answer within {CALL:?}")]
    Timeout {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        key: ObjectKey,
    },
    /// The API server refused or could not be reached.
    #[error("{verb} {kind} {key}: {}", plain(source))]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        key: ObjectKey,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// The object cannot be written as it is; a bug of the caller.
    #[error("{kind} {key} cannot be written: {why}")]
    Unwritable {
        /// Which kind.
        kind: String,
        /// Which object.
        key: ObjectKey,
        /// What is wrong.
        why: String,
    },
}

impl Error {
    /// Whether the API server was reached and takes no such write, for what it says or for who sends it: sent again it
    /// would be refused again.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Api { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
            }
            Self::Unwritable { .. } => true,
            Self::NotLeading(_) | Self::Timeout { .. } => false,
        }
    }
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(error) => error.class(),
            Self::Timeout { .. } => Class::Transient,
            Self::Api { source, .. } => source.class(),
            Self::Unwritable { .. } => Class::Fatal,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(error) => error.reason(),
            Self::Timeout { .. } => "ApiServerTimeout",
            Self::Api { source, .. } => source.reason(),
            Self::Unwritable { .. } => self.class().reason(),
        }
    }
}

/// The API server's own words without the structure around them.
fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
