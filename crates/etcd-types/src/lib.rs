//! What is known of etcd without a connection to it. All of it is pure.
//!
//! | module | what for |
//! | --- | --- |
//! | [`id`], [`url`], [`version`] | ids, positions in the log, addresses and versions as types |
//! | [`policy`] | which versions run, which step leads from one to the next, what each can do |
//! | [`flags`] | one configuration as the flags of any minor |
//! | [`membership`], [`status`] | who the members are and how each is, as far as that is known |
//! | [`rejection`], [`error`] | what etcd refuses, and what else goes wrong |

pub mod error;
pub mod flags;
pub mod id;
pub mod membership;
pub mod policy;
pub mod rejection;
pub mod status;
pub mod url;
pub mod version;
