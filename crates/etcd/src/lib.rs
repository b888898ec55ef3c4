//! The port to an etcd member and its cluster, and what is known of etcd's versions.
//!
//! | module | what for |
//! | --- | --- |
//! | [`id`], [`url`], [`version`] | ids, positions in the log, addresses and versions as types |
//! | [`policy`] | which versions run, which step leads from one to the next, what each can do |
//! | [`flags`] | one configuration as the flags of any minor |
//!
//! Nothing here knows Kubernetes. All of these are pure.

pub mod flags;
pub mod id;
pub mod policy;
pub mod url;
pub mod version;
