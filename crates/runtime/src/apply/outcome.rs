//! How a write ended: its success, or why it did not happen or may not have happened.

use std::time::Duration;

use kube::core::Status;

use crate::error::{Class, Classified};
use crate::fence::NotLeading;
use crate::key::ObjectKey;

/// The result of a write that is skipped if nothing would change.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<K> {
    /// Nothing was sent: the stored object already matches.
    Unchanged,
    /// The write was sent; this is the stored object now.
    Changed(K),
}

impl<K> Written<K> {
    /// The new state of the object, if it changed.
    pub fn changed(self) -> Option<K> {
        match self {
            Self::Unchanged => None,
            Self::Changed(object) => Some(object),
        }
    }
}

/// The result of creating an object that may exist already.
#[derive(Clone, Debug, PartialEq)]
pub enum Introduced<K> {
    /// The object was created; this is its stored state.
    Created(K),
    /// An object of this name existed already and was not touched; this is its stored state.
    There(K),
}

/// Why a write did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process is not the leader. If leadership ended during the call, the write may have happened.
    #[error("not written: {0}")]
    NotLeading(#[from] NotLeading),
    /// The API server did not answer in time. The write may have happened.
    #[error("{verb} {kind} {key}: no answer within {limit:?}")]
    Timeout {
        /// The attempted operation.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        key: ObjectKey,
        /// How long the answer was waited for.
        limit: Duration,
    },
    /// The API server refused the call or could not be reached.
    #[error("{verb} {kind} {key}: {}", api_message(source))]
    Api {
        /// The attempted operation.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        key: ObjectKey,
        /// The client's error.
        source: Box<kube::Error>,
    },
    /// The object cannot be written in this form. This is a bug of the caller.
    #[error("{kind} {key} cannot be written: {why}")]
    Unwritable {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        key: ObjectKey,
        /// What is wrong with the object.
        why: String,
    },
}

impl Error {
    /// Whether the API server rejects this write for its content or its sender. Sent again, it would be rejected again.
    pub fn is_refusal(&self) -> bool {
        let is_rejected = |status: &Status| matches!(status.code, 400 | 403 | 422);
        matches!(self, Self::Unwritable { .. }) || self.status().is_some_and(is_rejected)
    }

    /// Whether the API server does not evict a pod now: a budget does not allow it, or more than one applies to the pod.
    pub fn is_eviction_refused(&self) -> bool {
        let is_eviction = matches!(self, Self::Api { verb, .. } if *verb == "evict");
        is_eviction
            && self
                .status()
                .is_some_and(|status| matches!(status.code, 429 | 500))
    }

    /// Whether another object of this name exists.
    pub(super) fn is_already_exists(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// The answer of the API server, if it gave one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the API server answered 409: the object has changed or was replaced since it was observed, or one of
    /// this name exists already.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409)
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

/// The message of the API server without the client's wrapping. Of a refused eviction the causes name the budget.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 429 && !status.message.is_empty() => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let texts = causes.map(|cause| cause.message.as_str());
            [status.message.as_str()]
                .into_iter()
                .chain(texts)
                .collect::<Vec<_>>()
                .join(" ")
        }
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
