//! Why a permit is refused, in words that the report of the waiting process shows.

use etcd_operator_api::contract::{Mode, Verdict};
use etcd_operator_etcd::id::MemberId;

/// Why a permit is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is another pod's.
    #[error("it is for the pod with UID {0}")]
    OtherPod(String),
    /// It is another cluster's.
    #[error("it is of the EtcdCluster with UID {0}")]
    OtherCluster(String),
    /// It is an earlier process's of this pod.
    #[error("it is for another process of this pod")]
    OtherProcess,
    /// It is for another life of the data than the pod.
    #[error("it is for incarnation {permitted}, and the pod for {expected}")]
    OtherIncarnation {
        /// What the permit says.
        permitted: i64,
        /// What the pod expects.
        expected: i64,
    },
    /// It came too late, or was used before.
    #[error("it answers a nonce that is no longer the present one")]
    OtherNonce,
    /// What it permits is not part of this version.
    #[error("this version cannot do what it permits: {0:?}")]
    NotBuilt(Mode),
    /// What it permits is not for such a disk.
    #[error("{mode:?} is not for a disk that is {verdict}")]
    Forbidden {
        /// What it permits.
        mode: Mode,
        /// What the disk is.
        verdict: String,
    },
    /// It leaves something open.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// It holds something that cannot be understood.
    #[error("its {0} cannot be understood: '{1}'")]
    Malformed(&'static str, String),
    /// Its cluster does not have this member.
    #[error("its initialCluster does not have {0}")]
    NotInCluster(String),
    /// It lets a member join nobody.
    #[error("its initialCluster has nobody to join")]
    NoPeers,
    /// A new beginning would forget what clients wrote.
    #[error("the write-ahead log may hold what clients wrote, which a new beginning would forget")]
    ClientEntries,
    /// There is nothing to start with.
    #[error("the disk has no data to start with")]
    NoData,
    /// The data cannot be started with.
    #[error("the data is not whole: {0}")]
    NotWhole(String),
    /// It is for other data.
    #[error("it is for {what} {permitted}, and the data is of {found}")]
    OtherIds {
        /// Of a cluster, or of a member.
        what: &'static str,
        /// What the permit says.
        permitted: String,
        /// What the log says.
        found: String,
    },
    /// The disk is another member's.
    #[error("the disk is that of member {0}")]
    OtherMember(String),
    /// The disk is of another life than the permit.
    #[error("it is for incarnation {permitted}, and the disk has {found}")]
    DiskIncarnation {
        /// What the permit says.
        permitted: i64,
        /// What the disk says.
        found: i64,
    },
    /// The disk is not the very one that was kept.
    #[error("the volume is not the one that was kept: its {0} differs")]
    Copy(String),
    /// The data does not know its own member.
    #[error("the database does not list member {0}, whose log it is")]
    NotListed(MemberId),
    /// What is to be restored is not there.
    #[error("nothing that was downloaded for restore {0} with this object is on the disk")]
    NoDownload(String),
    /// What was restored is of another restore.
    #[error("it is for restore {permitted}, and what is on the disk is of {found}")]
    OtherRestore {
        /// What the permit says.
        permitted: String,
        /// What the mark on the disk says.
        found: String,
    },
    /// What was restored is not there.
    #[error("{0}, which was restored, is neither beside the data nor in its place")]
    NotRestored(String),
    /// It permits no start.
    #[error("it permits no start, but to {0:?}")]
    NoStart(Mode),
    /// The data knows members elsewhere.
    #[error("the database lists {0}, which is not this cluster's, or not that member's")]
    StrangePeer(String),
}

impl Refusal {
    /// What the permit permits is not for a disk of this verdict. The text names both, and nothing that would do.
    pub(super) fn forbidden(mode: Mode, verdict: &Verdict) -> Self {
        Self::Forbidden {
            mode,
            verdict: words(verdict).to_owned(),
        }
    }
}

fn words(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Empty => "empty",
        Verdict::Unborn => "unborn",
        Verdict::Whole => "whole",
        Verdict::Damaged => "damaged",
        Verdict::Prepared { .. } => "prepared",
        Verdict::Foreign => "foreign",
        Verdict::OtherIncarnation { .. } => "of another incarnation",
        Verdict::Moved => "moved",
        Verdict::Unreadable => "unreadable",
    }
}
