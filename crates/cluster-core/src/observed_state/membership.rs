//! What members say of the whole cluster: who the members are, a hash of the keys, and whose certificate they reject.

use etcd_operator_etcd_types::error::OwnCertificateError;
use etcd_operator_etcd_types::id::{ClusterId, Revision};
use etcd_operator_etcd_types::membership::Known;

use super::CallFailure;

/// Why members do not accept the certificate of one of them as that of a client: none can join the others then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCertificateFault {
    /// The Secret that members serve clients with.
    pub secret: String,
    /// What is wrong with the certificate in it.
    pub error: OwnCertificateError,
}

/// A hash of all keys that a member has at a revision; comparable only where both have dropped the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    /// The hash.
    pub hash: u32,
    /// The revision up to which history is gone.
    pub compacted: Revision,
}

/// The members, as a voter returned them by a linearizable read, or why none did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// As a voter read it.
    Known(Known),
    /// No voter returned it, so membership must not change. The failures of those that were asked.
    Unknown(Vec<MembershipFailure>),
}

/// Why a voter did not return the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipFailure {
    /// The operator cannot build a connection: a certificate is missing or invalid.
    NoTransport(String),
    /// The call failed.
    Call(CallFailure),
    /// The member has no leader: a majority of the voters is away, or an election is under way.
    NoLeader {
        /// Where.
        url: String,
    },
    /// A member of another etcd cluster answered.
    OtherCluster {
        /// Where.
        url: String,
        /// Whose member it is.
        cluster: ClusterId,
    },
}
