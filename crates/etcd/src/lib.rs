//! The port to an etcd member and its cluster, and what is known of etcd's versions.
//!
//! | module | what for |
//! | --- | --- |
//! | [`id`], [`url`], [`version`] | ids, positions in the log, addresses and versions as types |
//! | [`policy`] | which versions run, which step leads from one to the next, what each can do |
//! | [`flags`] | one configuration as the flags of any minor |
//! | [`membership`], [`status`] | who the members are and how each is, as far as that is known |
//! | [`rejection`], [`error`] | what etcd refuses, and what else goes wrong |
//! | [`endpoint`], [`client`] | one bounded connection to one member, and the calls over it |
//! | [`tool`] | etcd's own programs: the one that restores, and a server for a while |
//! | [`port`] | the same as traits, so that a model of etcd can stand in its place |
//!
//! Nothing here knows Kubernetes. All but [`client`], [`port`] and the running of [`tool`] are pure.

pub mod client;
pub mod endpoint;
pub mod error;
pub mod flags;
pub mod id;
pub mod membership;
pub mod policy;
pub mod port;
pub mod rejection;
pub mod status;
pub mod tool;
pub mod url;
pub mod version;
