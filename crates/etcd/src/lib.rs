//! The port to an etcd member and its cluster. What is known of etcd without a connection stands in `etcd-types`, and is found here too.
//!
//! | module | what for |
//! | --- | --- |
//! | [`endpoint`], [`client`] | one bounded connection to one member, and the calls over it |
//! | [`tool`] | etcd's own programs: the one that restores, and a server for a while |
//! | [`port`] | the same as traits, so that a model of etcd can stand in its place |
//!
//! Nothing here knows Kubernetes.

pub mod client;
pub mod endpoint;
pub mod port;
pub mod tool;

pub use etcd_operator_etcd_types::{error, flags, id, membership, policy, rejection, status, url, version};
