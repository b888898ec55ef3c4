//! The record of requests, so that tests can count and name them.

use super::route::Verb;

/// A request that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What was to be done.
    pub verb: Verb,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name in the path, or in the body of a creation.
    pub name: String,
    /// The `User-Agent` header, or empty.
    pub user_agent: String,
    /// The field manager asked for, or empty.
    pub field_manager: String,
    /// The HTTP status answered.
    pub status: u16,
}

/// A moment in the record of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub(crate) usize);
