//! How a member is: what it says of itself and of its data. Pure. What its version does not say is none, not zero.

use std::fmt;

use etcd_client::{DowngradeInfo, ResponseHeader, StatusResponse};

use crate::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
use crate::policy::Feature;
use crate::version::Version;

/// Which member answered, and its revision and term when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The member itself.
    pub member: MemberId,
    /// The revision of its data.
    pub revision: Revision,
    /// Its term.
    pub term: RaftTerm,
}

/// The status of a member, from what it knows locally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who it is and where.
    pub position: Position,
    /// What it runs.
    pub version: Version,
    /// Whom it follows; none during an election.
    pub leader: Option<MemberId>,
    /// The newest entry of the log that it knows to be agreed.
    pub raft_index: RaftIndex,
    /// The newest entry that its data holds; since 3.4.
    pub applied: Option<RaftIndex>,
    /// Whether it only follows.
    pub is_learner: bool,
    /// Bytes of its database file.
    pub db_size: u64,
    /// Bytes of that in use; since 3.4.
    pub db_in_use: Option<u64>,
    /// Bytes that it may have; since 3.6.
    pub db_quota: Option<u64>,
    /// The version of its files; since 3.6, and only when that is settled.
    pub storage_version: Option<String>,
    /// Whether a downgrade of the cluster is enabled, as this member has it; since 3.6.
    pub downgrade: Option<Downgrade>,
    /// What it complains of, in its own words: alarms and a missing leader; since 3.4.
    pub errors: Vec<String>,
}

/// Whether a downgrade of the cluster is enabled. etcd ends it once every member runs the target's minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// None is.
    Disabled,
    /// One is: the leader lowers the cluster version, and each member the version of its files.
    Enabled {
        /// The cluster version that members go down to, with patch 0, if it can be read.
        target: Option<Version>,
    },
}

/// An active alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// Whose it is. Older versions do not always know.
    pub member: Option<MemberId>,
    /// What it is about.
    pub kind: AlarmKind,
}

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// The database is as large as its quota: nothing can be written.
    NoSpace,
    /// Its data differ from the others'.
    Corrupt,
    /// An alarm that a newer version has, by its number.
    Other(i32),
}

/// A hash of all keys, comparable with that of another member only where `compacted` is equal, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysHash {
    /// Who computed it.
    pub position: Position,
    /// The hash.
    pub hash: u32,
    /// The revision up to which history is gone.
    pub compacted: Revision,
    /// The revision that was hashed, where the version says it; since 3.6.
    pub revision: Option<Revision>,
}

impl Position {
    pub(crate) fn read(header: Option<&ResponseHeader>) -> Result<Self, String> {
        let header = header.ok_or("it has no header")?;
        Ok(Self {
            cluster: ClusterId::new(header.cluster_id()).ok_or("the cluster's ID is 0")?,
            member: MemberId::new(header.member_id()).ok_or("the member's ID is 0")?,
            revision: Revision(header.revision()),
            term: RaftTerm(header.raft_term()),
        })
    }
}

impl Status {
    /// Reads etcd's answer. What the member's version does not report is `None`, although the answer has a 0 there.
    pub(crate) fn read(answer: &StatusResponse) -> Result<Self, String> {
        let position = Position::read(answer.header())?;
        let version: Version = answer.version().parse().map_err(|error| format!("{error}"))?;
        let has_details = Feature::DetailedStatus.is_in(&version);
        let bytes = |bytes: i64| u64::try_from(bytes).map_err(|_| format!("{bytes} bytes"));
        Ok(Self {
            leader: MemberId::new(answer.leader()),
            raft_index: RaftIndex(answer.raft_index()),
            applied: has_details.then_some(RaftIndex(answer.raft_applied_index())),
            is_learner: answer.is_learner(),
            db_size: bytes(answer.db_size())?,
            db_in_use: if has_details {
                Some(bytes(answer.raft_used_db_size())?)
            } else {
                None
            },
            db_quota: Some(bytes(answer.db_size_quota())?).filter(|bytes| *bytes > 0),
            storage_version: Some(answer.storage_version().to_owned()).filter(|version| !version.is_empty()),
            downgrade: answer.downgrade_info().map(Downgrade::read),
            errors: answer.errors().to_vec(),
            position: Position {
                term: RaftTerm(answer.raft_term()),
                ..position
            },
            version,
        })
    }
}

impl Downgrade {
    fn read(info: &DowngradeInfo) -> Self {
        if !info.enabled() {
            return Self::Disabled;
        }
        Self::Enabled {
            target: info.target_version().parse().ok(),
        }
    }
}

impl fmt::Display for AlarmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("NOSPACE"),
            Self::Corrupt => f.write_str("CORRUPT"),
            Self::Other(number) => write!(f, "{number}"),
        }
    }
}

impl AlarmKind {
    pub(crate) fn read(number: i32) -> Self {
        match number {
            1 => Self::NoSpace,
            2 => Self::Corrupt,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbDowngradeInfo, PbResponseHeader, PbStatusResponse};

    use super::*;

    fn answer(version: &str) -> StatusResponse {
        StatusResponse(PbStatusResponse {
            header: Some(PbResponseHeader {
                cluster_id: 1,
                member_id: 2,
                revision: 3,
                raft_term: 4,
            }),
            version: version.to_owned(),
            db_size: 20_480,
            raft_term: 4,
            ..PbStatusResponse::default()
        })
    }

    #[test]
    fn what_a_version_does_not_say_is_not_zero() {
        let old = Status::read(&answer("3.3.27")).expect("a status");
        assert_eq!((old.db_in_use, old.applied, old.db_quota), (None, None, None));
        let new = Status::read(&answer("3.4.44")).expect("a status");
        assert_eq!((new.db_in_use, new.applied), (Some(0), Some(RaftIndex(0))));
        assert_eq!((new.leader, new.storage_version), (None, None));
    }

    #[test]
    fn a_downgrade_is_enabled_disabled_or_not_told() {
        let told = |info: Option<(bool, &str)>| {
            let mut answer = answer("3.6.16");
            answer.0.downgrade_info = info.map(|(enabled, target)| PbDowngradeInfo {
                enabled,
                target_version: target.to_owned(),
            });
            Status::read(&answer).expect("a status").downgrade
        };
        assert_eq!(told(None), None);
        assert_eq!(told(Some((false, ""))), Some(Downgrade::Disabled));
        let target = Version::of(crate::version::Minor::V3_5, 0);
        let target = Some(target);
        assert_eq!(told(Some((true, "3.5.0"))), Some(Downgrade::Enabled { target }));
        assert_eq!(told(Some((true, ""))), Some(Downgrade::Enabled { target: None }));
    }

    #[test]
    fn an_answer_without_an_identity_is_none() {
        let mut nobody = answer("3.6.16");
        nobody.0.header = None;
        assert!(Status::read(&nobody).is_err());
        let mut nowhere = answer("3.6.16");
        nowhere.0.header.as_mut().expect("a header").cluster_id = 0;
        assert!(Status::read(&nowhere).is_err());
        assert!(Status::read(&answer("next")).is_err());
    }
}
