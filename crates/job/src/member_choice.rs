//! Chooses the member whose snapshot is taken: first a follower that is up to date, to spare the leader, then the others. Pure.

use std::collections::BTreeSet;

use etcd_operator_etcd::id::{ClusterId, MemberId, Revision};
use etcd_operator_etcd::url::ClientUrl;

/// How many log entries a member may lag behind the most advanced one and still count as up to date. A few entries are
/// always in flight.
const MAX_LAG: u64 = 1000;

/// A member that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The client URL at which it answered.
    pub url: ClientUrl,
    /// The ID of its cluster.
    pub cluster: ClusterId,
    /// Its member ID.
    pub member: MemberId,
    /// Its name, if known.
    pub name: Option<String>,
    /// The etcd version it runs.
    pub version: String,
    /// Its role.
    pub role: Role,
    /// The revision of its data.
    pub revision: Revision,
    /// Its applied index.
    pub applied: u64,
    /// The size of its database in bytes.
    pub db_size: u64,
    /// The members with an alarm CORRUPT, as this member reports them.
    pub corrupt: BTreeSet<u64>,
}

impl Candidate {
    /// Its name in messages: the member name, else the member ID.
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.member.to_string())
    }
}

/// The role of a member, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A voter that follows a leader.
    Follower,
    /// A learner that follows a leader.
    Learner,
    /// The leader.
    Leader,
    /// A member without a leader, possibly cut off from the others.
    NoLeader,
}

/// Why no member can be backed up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUsableMember {
    /// The endpoints belong to several clusters, and the order names none.
    #[error("the endpoints belong to different clusters: {0}")]
    DifferentClusters(String),
    /// All endpoints belong to another cluster than the order names.
    #[error("the endpoints belong to cluster {found}, but cluster {wanted} is to be backed up")]
    OtherCluster {
        /// The cluster found.
        found: ClusterId,
        /// The cluster in the order.
        wanted: ClusterId,
    },
    /// Every member that answers has an alarm CORRUPT.
    #[error("every member that answers has data that differ from those of the others (alarm CORRUPT)")]
    AllCorrupt,
    /// No member answers.
    #[error("no member answers")]
    NoAnswer,
}

/// Sorts the members that can be backed up by preference, the best first. Members of another cluster than `wanted` and
/// those with an alarm CORRUPT are left out. Members that lag behind or have no leader come last.
pub fn rank(found: Vec<Candidate>, wanted: Option<ClusterId>) -> Result<Vec<Candidate>, NoUsableMember> {
    let clusters: BTreeSet<ClusterId> = found.iter().map(|candidate| candidate.cluster).collect();
    match (clusters.first(), wanted) {
        (None, _) => return Err(NoUsableMember::NoAnswer),
        (Some(_), None) if clusters.len() > 1 => {
            let list: Vec<String> = clusters.iter().map(ToString::to_string).collect();
            return Err(NoUsableMember::DifferentClusters(list.join(", ")));
        }
        (Some(&found), Some(wanted)) if !clusters.contains(&wanted) => {
            return Err(NoUsableMember::OtherCluster { found, wanted });
        }
        _ => {}
    }
    let corrupt: BTreeSet<u64> = found.iter().flat_map(|c| c.corrupt.iter().copied()).collect();
    let mut seen = BTreeSet::new();
    let mut usable: Vec<Candidate> = found
        .into_iter()
        .filter(|candidate| wanted.is_none_or(|wanted| candidate.cluster == wanted))
        .filter(|candidate| !corrupt.contains(&candidate.member.get()))
        .filter(|candidate| seen.insert(candidate.member))
        .collect();
    if usable.is_empty() {
        return Err(NoUsableMember::AllCorrupt);
    }
    let newest = usable
        .iter()
        .map(|candidate| candidate.applied)
        .max()
        .unwrap_or(0);
    usable.sort_by_key(|candidate| {
        let is_behind = candidate.applied + MAX_LAG < newest || candidate.role == Role::NoLeader;
        (
            is_behind,
            candidate.role,
            std::cmp::Reverse(candidate.applied),
            candidate.member,
        )
    });
    Ok(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, role: Role, applied: u64) -> Candidate {
        Candidate {
            url: format!("http://c-{id}:2379").parse().expect("a URL"),
            cluster: ClusterId::new(7).expect("an ID"),
            member: MemberId::new(id).expect("an ID"),
            name: None,
            version: "3.6.16".to_owned(),
            role,
            revision: Revision(1),
            applied,
            db_size: 0,
            corrupt: BTreeSet::new(),
        }
    }

    fn ranked(found: Vec<Candidate>) -> Vec<u64> {
        let ranked = rank(found, None).expect("usable members");
        ranked.iter().map(|candidate| candidate.member.get()).collect()
    }

    #[test]
    fn members_are_ranked_by_role_and_by_applied_index() {
        use Role::{Follower, Leader, Learner, NoLeader};
        for (found, wanted) in [
            (
                vec![(1, Leader, 5000), (2, Follower, 4999), (3, Follower, 5000)],
                vec![3, 2, 1],
            ),
            (
                vec![(1, Leader, 5000), (2, Follower, 10), (3, Follower, 4990)],
                vec![3, 1, 2],
            ),
            (
                vec![(1, Leader, 5000), (2, Learner, 4999), (3, Follower, 4500)],
                vec![3, 2, 1],
            ),
            (vec![(1, Leader, 5000), (2, Learner, 10)], vec![1, 2]),
            (vec![(1, NoLeader, 5000), (2, Leader, 5000)], vec![2, 1]),
            (vec![(1, NoLeader, 5000)], vec![1]),
            (vec![(1, Leader, 0)], vec![1]),
        ] {
            let members = found
                .into_iter()
                .map(|(id, role, applied)| member(id, role, applied));
            assert_eq!(ranked(members.collect()), wanted);
        }
    }

    #[test]
    fn a_member_with_two_endpoints_is_listed_once() {
        let same = member(1, Role::Follower, 10);
        assert_eq!(ranked(vec![same.clone(), same]), [1]);
    }

    #[test]
    fn a_member_with_an_alarm_corrupt_is_never_backed_up() {
        let mut reporter = member(1, Role::Leader, 10);
        reporter.corrupt = [2].into();
        let both = vec![reporter.clone(), member(2, Role::Follower, 10)];
        assert_eq!(ranked(both), [1]);
        reporter.corrupt = [1].into();
        assert_eq!(rank(vec![reporter], None), Err(NoUsableMember::AllCorrupt));
    }

    #[test]
    fn another_cluster_than_the_wanted_one_is_never_backed_up() {
        let mut other = member(9, Role::Follower, 10);
        other.cluster = ClusterId::new(8).expect("an ID");
        let seven = ClusterId::new(7);
        let both = vec![other.clone(), member(1, Role::Leader, 10)];
        assert!(matches!(
            rank(both.clone(), None),
            Err(NoUsableMember::DifferentClusters(_))
        ));
        let usable = rank(both, seven).expect("one of them");
        assert_eq!(usable.len(), 1);
        assert!(matches!(
            rank(vec![other], seven),
            Err(NoUsableMember::OtherCluster { .. })
        ));
        assert_eq!(rank(Vec::new(), seven), Err(NoUsableMember::NoAnswer));
    }
}
