//! What the answers of etcd's gRPC interface say, as types. Pure. What a version does not say is none, not zero.

use std::collections::BTreeMap;

use etcd_client::{DowngradeInfo, ResponseHeader, StatusResponse};

use crate::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
use crate::membership::{Member, Role};
use crate::policy::Feature;
use crate::status::{AlarmKind, Downgrade, Position, Status};
use crate::version::Version;

/// Which member answered. An error if it does not say its ID or that of its cluster.
pub fn position(header: Option<&ResponseHeader>) -> Result<Position, String> {
    let header = header.ok_or("it has no header")?;
    Ok(Position {
        cluster: ClusterId::new(header.cluster_id()).ok_or("the cluster's ID is 0")?,
        member: MemberId::new(header.member_id()).ok_or("the member's ID is 0")?,
        revision: Revision(header.revision()),
        term: RaftTerm(header.raft_term()),
    })
}

/// A member of a list. An error as of [`Member::parse`].
pub fn member(member: &etcd_client::Member) -> Result<Member, String> {
    let role = if member.is_learner() {
        Role::Learner
    } else {
        Role::Voter
    };
    let (peer_urls, client_urls) = (member.peer_urls(), member.client_urls());
    Member::parse(member.id(), member.name(), peer_urls, client_urls, role)
}

/// The members by ID. An error if two have the same one.
pub fn members(list: &[etcd_client::Member]) -> Result<BTreeMap<MemberId, Member>, String> {
    let members: BTreeMap<_, _> = list
        .iter()
        .map(|sent| member(sent).map(|member| (member.id, member)))
        .collect::<Result<_, _>>()?;
    if members.len() == list.len() {
        Ok(members)
    } else {
        Err("two members have one ID".to_owned())
    }
}

/// The status of a member. What the member's version does not report is `None`, although the answer has a 0 there.
pub fn status(answer: &StatusResponse) -> Result<Status, String> {
    let position = position(answer.header())?;
    let version: Version = answer.version().parse().map_err(|error| format!("{error}"))?;
    let has_details = Feature::DetailedStatus.is_in(&version);
    let bytes = |bytes: i64| u64::try_from(bytes).map_err(|_| format!("{bytes} bytes"));
    Ok(Status {
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
        downgrade: answer.downgrade_info().map(downgrade),
        errors: answer.errors().to_vec(),
        position: Position {
            term: RaftTerm(answer.raft_term()),
            ..position
        },
        version,
    })
}

fn downgrade(info: &DowngradeInfo) -> Downgrade {
    if !info.enabled() {
        return Downgrade::Disabled;
    }
    Downgrade::Enabled {
        target: info.target_version().parse().ok(),
    }
}

/// What an alarm is about, by etcd's number.
pub fn alarm_kind(number: i32) -> AlarmKind {
    match number {
        1 => AlarmKind::NoSpace,
        2 => AlarmKind::Corrupt,
        other => AlarmKind::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbDowngradeInfo, PbMember, PbResponseHeader, PbStatusResponse};

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
        let old = status(&answer("3.3.27")).expect("a status");
        assert_eq!((old.db_in_use, old.applied, old.db_quota), (None, None, None));
        let new = status(&answer("3.4.44")).expect("a status");
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
            status(&answer).expect("a status").downgrade
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
        assert!(status(&nobody).is_err());
        let mut nowhere = answer("3.6.16");
        nowhere.0.header.as_mut().expect("a header").cluster_id = 0;
        assert!(status(&nowhere).is_err());
        assert!(status(&answer("next")).is_err());
    }

    #[test]
    fn a_list_that_cannot_be_is_no_list() {
        let sent = |id, name: &str, peer: &str| {
            etcd_client::Member(PbMember {
                id,
                name: name.to_owned(),
                peer_ur_ls: vec![peer.to_owned()],
                client_ur_ls: Vec::new(),
                is_learner: id > 3,
            })
        };
        for list in [
            vec![sent(0, "a", "http://a:1")],
            vec![sent(1, "a", "http://a:1"), sent(1, "b", "http://b:1")],
            vec![sent(1, "a", "unix://a:1")],
        ] {
            assert!(members(&list).is_err(), "{list:?}");
        }
        let roles = members(&[sent(1, "a", "http://a:1"), sent(4, "", "http://b:1")]).expect("members");
        assert_eq!(
            roles.values().map(|member| member.role).collect::<Vec<_>>(),
            [Role::Voter, Role::Learner]
        );
    }
}
