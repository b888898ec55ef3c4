//! Whose snapshot is taken: a follower that has caught up, so that the leader is spared; then whoever else there is. Pure.

use std::collections::BTreeSet;

use etcd_operator_etcd::id::{ClusterId, MemberId, Revision};
use etcd_operator_etcd::url::ClientUrl;

/// How many entries of the log a member may be behind and count as caught up: some are always on their way.
const BEHIND: u64 = 1000;

/// A member that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it was asked.
    pub url: ClientUrl,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its ID.
    pub member: MemberId,
    /// Its name, where it is known.
    pub name: Option<String>,
    /// The version it runs.
    pub version: String,
    /// What it does.
    pub role: Role,
    /// The revision of its data.
    pub revision: Revision,
    /// The newest entry of the log that its data hold.
    pub applied: u64,
    /// Bytes of its database.
    pub db_size: u64,
    /// The members whose data differ, as it knows.
    pub corrupt: BTreeSet<u64>,
}

impl Candidate {
    /// What it is called in messages: its name, else its ID.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.member.to_string())
    }
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It follows a leader, with a vote.
    Follower,
    /// It follows a leader, without a vote.
    Learner,
    /// It leads.
    Leader,
    /// It knows no leader: it may be cut off from the others.
    Alone,
}

/// Why there is nobody to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    /// The addresses lead to several clusters.
    #[error("the endpoints belong to different clusters: {0}")]
    Clusters(String),
    /// They lead to another cluster.
    #[error("the endpoints belong to cluster {found}, and {wanted} is to be backed up")]
    Other {
        /// Whom they lead to.
        found: ClusterId,
        /// Who is meant.
        wanted: ClusterId,
    },
    /// Nobody's data can be trusted.
    #[error("the data of every member that answers differ from those of others (alarm CORRUPT)")]
    Corrupt,
    /// Nobody answers.
    #[error("no member answers")]
    Nobody,
}

/// The members to be asked, the best first.
pub fn order(found: Vec<Candidate>, wanted: Option<ClusterId>) -> Result<Vec<Candidate>, NoChoice> {
    let clusters: BTreeSet<ClusterId> = found.iter().map(|candidate| candidate.cluster).collect();
    match (clusters.first(), wanted) {
        (None, _) => return Err(NoChoice::Nobody),
        (Some(_), None) if clusters.len() > 1 => {
            let list: Vec<String> = clusters.iter().map(ToString::to_string).collect();
            return Err(NoChoice::Clusters(list.join(", ")));
        }
        (Some(&found), Some(wanted)) if !clusters.contains(&wanted) => {
            return Err(NoChoice::Other { found, wanted });
        }
        _ => {}
    }
    let corrupt: BTreeSet<u64> = found.iter().flat_map(|c| c.corrupt.iter().copied()).collect();
    let mut seen = BTreeSet::new();
    let mut fit: Vec<Candidate> = found
        .into_iter()
        .filter(|candidate| wanted.is_none_or(|wanted| candidate.cluster == wanted))
        .filter(|candidate| !corrupt.contains(&candidate.member.get()))
        .filter(|candidate| seen.insert(candidate.member))
        .collect();
    if fit.is_empty() {
        return Err(NoChoice::Corrupt);
    }
    let newest = fit.iter().map(|candidate| candidate.applied).max().unwrap_or(0);
    fit.sort_by_key(|candidate| {
        let is_behind = candidate.applied + BEHIND < newest || candidate.role == Role::Alone;
        (
            is_behind,
            candidate.role,
            std::cmp::Reverse(candidate.applied),
            candidate.member,
        )
    });
    Ok(fit)
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

    fn chosen(found: Vec<Candidate>) -> Vec<u64> {
        let order = order(found, None).expect("somebody");
        order.iter().map(|candidate| candidate.member.get()).collect()
    }

    #[test]
    fn who_is_asked_first_is_told_by_role_and_by_how_far_it_is() {
        use Role::{Alone, Follower, Leader, Learner};
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
            (vec![(1, Alone, 5000), (2, Leader, 5000)], vec![2, 1]),
            (vec![(1, Alone, 5000)], vec![1]),
            (vec![(1, Leader, 0)], vec![1]),
        ] {
            let members = found
                .into_iter()
                .map(|(id, role, applied)| member(id, role, applied));
            assert_eq!(chosen(members.collect()), wanted);
        }
    }

    #[test]
    fn a_member_behind_two_addresses_is_asked_once() {
        let again = member(1, Role::Follower, 10);
        assert_eq!(chosen(vec![again.clone(), again]), [1]);
    }

    #[test]
    fn data_that_differ_are_never_backed_up() {
        let mut told = member(1, Role::Leader, 10);
        told.corrupt = [2].into();
        let both = vec![told.clone(), member(2, Role::Follower, 10)];
        assert_eq!(chosen(both), [1]);
        told.corrupt = [1].into();
        assert_eq!(order(vec![told], None), Err(NoChoice::Corrupt));
    }

    #[test]
    fn another_cluster_is_never_backed_up_for_the_one_that_is_meant() {
        let mut other = member(9, Role::Follower, 10);
        other.cluster = ClusterId::new(8).expect("an ID");
        let seven = ClusterId::new(7);
        let both = vec![other.clone(), member(1, Role::Leader, 10)];
        assert!(matches!(order(both.clone(), None), Err(NoChoice::Clusters(_))));
        let kept = order(both, seven).expect("one of them");
        assert_eq!(kept.len(), 1);
        assert!(matches!(order(vec![other], seven), Err(NoChoice::Other { .. })));
        assert_eq!(order(Vec::new(), seven), Err(NoChoice::Nobody));
    }
}
