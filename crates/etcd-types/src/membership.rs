//! Who the members are, as far as that is known. Pure. Members are matched by ID and by peer URL, never by position
//! in a list and never by a name that may be empty.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
use crate::status::{Position, Status};
use crate::url::{ClientUrl, PeerUrl};
use crate::version::Version;

/// Who the members are, or why that is not known. It is known only after a linearizable read.
#[derive(Clone, Debug)]
pub enum Membership {
    /// As one member read it when all that had been agreed before had reached it.
    Known(Known),
    /// Nobody can tell, and nothing may be done about members.
    Unknown(Unknown),
}

/// The members at the moment of a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its members.
    pub members: BTreeMap<MemberId, Member>,
    /// Who led, as the reader saw it just after; none during an election.
    pub leader: Option<MemberId>,
    /// The voter that was asked.
    pub reader: MemberId,
    /// Its version.
    pub version: Version,
    /// Its position in the log.
    pub raft_index: RaftIndex,
    /// The term of the leader.
    pub term: RaftTerm,
    /// The revision that was read.
    pub revision: Revision,
}

/// The members as one member has them by itself. They may be old: enough for a question whose answer never changes back,
/// such as whether a member has ever started, and for no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Who answered.
    pub position: Position,
    /// The members.
    pub members: BTreeMap<MemberId, Member>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its ID.
    pub id: MemberId,
    /// Its name, which it brings when it first starts.
    pub name: Option<String>,
    /// Where members find it.
    pub peer_urls: Vec<PeerUrl>,
    /// Where clients find it; none before it first starts.
    pub client_urls: Vec<ClientUrl>,
    /// Whether it votes.
    pub role: Role,
}

/// Whether a member votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It counts for the quorum.
    Voter,
    /// It only follows.
    Learner,
}

/// Why the members are not known: a call failed, or the member that was asked must not be believed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unknown {
    /// A call did not succeed.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The member asked is a learner, whose view counts for nothing.
    #[error("{0} is a learner")]
    ReaderIsLearner(ClientUrl),
    /// The member asked is not among the members: it has been removed.
    #[error("{endpoint} is member {reader}, which is no longer in its own list")]
    ReaderIsNoMember {
        /// Who was asked.
        endpoint: ClientUrl,
        /// Its ID.
        reader: MemberId,
    },
    /// Another process answered in between.
    #[error("{0} changed its identity between two questions")]
    ReaderChanged(ClientUrl),
}

impl Member {
    /// Whether it has ever started: a member that was added has no name until its first start.
    pub fn has_started(&self) -> bool {
        self.name.is_some()
    }

    /// Whether it has this peer URL, the scheme included.
    pub fn is_at(&self, url: &PeerUrl) -> bool {
        self.peer_urls.contains(url)
    }

    /// Parses the fields of a member, as every interface of etcd shows them. An empty name is `None`; an ID of 0 or a
    /// malformed URL is an error.
    pub fn parse(
        id: u64,
        name: &str,
        peer_urls: &[String],
        client_urls: &[String],
        role: Role,
    ) -> Result<Self, String> {
        let id = MemberId::new(id).ok_or("a member has the ID 0")?;
        let text = |error: &dyn std::fmt::Display| format!("member {id}: {error}");
        let peer_urls = peer_urls.iter().map(|url| url.parse::<PeerUrl>());
        let client_urls = client_urls.iter().map(|url| url.parse::<ClientUrl>());
        Ok(Self {
            id,
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            peer_urls: peer_urls
                .collect::<Result<_, _>>()
                .map_err(|error| text(&error))?,
            client_urls: client_urls
                .collect::<Result<_, _>>()
                .map_err(|error| text(&error))?,
            role,
        })
    }
}

impl Listed {
    /// The members, if the member that answered is of this cluster.
    pub fn in_cluster(self, cluster: ClusterId) -> Option<BTreeMap<MemberId, Member>> {
        (self.position.cluster == cluster).then_some(self.members)
    }
}

impl Known {
    /// Combines three answers of one member, in this order: to a linearizable read, to a list of its members, which is
    /// then at least as new as that read, and to a status. An error if another process answered one of them, or if the
    /// member is a learner or no member any more.
    pub fn judge(
        url: &ClientUrl,
        barrier: Position,
        listed: Listed,
        status: Status,
    ) -> Result<Self, Unknown> {
        let who = |position: &Position| (position.cluster, position.member);
        if who(&barrier) != who(&listed.position) || who(&barrier) != who(&status.position) {
            return Err(Unknown::ReaderChanged(url.clone()));
        }
        match listed.members.get(&barrier.member) {
            None => Err(Unknown::ReaderIsNoMember {
                endpoint: url.clone(),
                reader: barrier.member,
            }),
            Some(reader) if reader.role == Role::Learner => Err(Unknown::ReaderIsLearner(url.clone())),
            Some(_) => Ok(Self {
                cluster: barrier.cluster,
                members: listed.members,
                leader: status.leader,
                reader: barrier.member,
                version: status.version,
                raft_index: status.raft_index,
                term: barrier.term,
                revision: barrier.revision,
            }),
        }
    }

    /// The member with this peer URL, the scheme included.
    pub fn at(&self, url: &PeerUrl) -> Option<&Member> {
        self.members.values().find(|member| member.is_at(url))
    }

    /// The members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.with(Role::Voter)
    }

    /// The members that do not vote yet.
    pub fn learners(&self) -> impl Iterator<Item = &Member> {
        self.with(Role::Learner)
    }

    /// How many voters are a majority. Learners do not count.
    pub fn quorum(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    fn with(&self, role: Role) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |member| member.role == role)
    }
}

impl Membership {
    /// The members, if a linearizable read returned them. Where this is `None`, no member may be added, promoted or
    /// removed. The caller compares the cluster ID.
    pub fn known(&self) -> Option<&Known> {
        match self {
            Self::Known(known) => Some(known),
            Self::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, peer: &str) -> Member {
        let role = if id > 3 { Role::Learner } else { Role::Voter };
        Member::parse(id, name, &[peer.to_owned()], &[], role).expect("a member")
    }

    fn by_id(list: &[Member]) -> BTreeMap<MemberId, Member> {
        list.iter().map(|member| (member.id, member.clone())).collect()
    }

    fn known(list: &[Member]) -> Known {
        Known {
            cluster: ClusterId::new(1).expect("an ID"),
            members: by_id(list),
            leader: None,
            reader: MemberId::new(1).expect("an ID"),
            version: "3.6.16".parse().expect("a version"),
            raft_index: RaftIndex(9),
            term: RaftTerm(2),
            revision: Revision(1),
        }
    }

    #[test]
    fn members_are_found_by_peer_url_even_while_they_have_no_name() {
        let known = known(&[
            member(2, "", "http://c-1:2380"),
            member(4, "", "http://c-2:2380"),
            member(1, "c-0", "http://c-0:2380"),
        ]);
        let url: PeerUrl = "http://C-2:2380".parse().expect("a URL");
        let member = known.at(&url).expect("the member");
        assert_eq!(
            (member.id.get(), member.has_started(), member.role),
            (4, false, Role::Learner)
        );
        let elsewhere: PeerUrl = "http://c-2:2381".parse().expect("a URL");
        assert_eq!(known.at(&elsewhere), None);
    }

    #[test]
    fn learners_do_not_count_for_the_quorum() {
        let mut list: Vec<_> = (1..=3)
            .map(|id| member(id, "x", &format!("http://c-{id}:2380")))
            .collect();
        assert_eq!(known(&list).quorum(), 2);
        list.push(member(4, "x", "http://c-4:2380"));
        let known = known(&list);
        assert_eq!(
            (known.quorum(), known.voters().count(), known.learners().count()),
            (2, 3, 1)
        );
    }

    fn listed(cluster: u64) -> Listed {
        let list = [
            member(1, "c-0", "http://c-0:2380"),
            member(4, "c-1", "http://c-1:2380"),
        ];
        Listed {
            position: position(cluster, 1),
            members: by_id(&list),
        }
    }

    fn position(cluster: u64, member: u64) -> Position {
        Position {
            cluster: ClusterId::new(cluster).expect("an ID"),
            member: MemberId::new(member).expect("an ID"),
            revision: Revision(0),
            term: RaftTerm(0),
        }
    }

    fn status(cluster: u64, member: u64) -> Status {
        Status {
            position: position(cluster, member),
            version: "3.6.16".parse().expect("a version"),
            leader: None,
            raft_index: RaftIndex(0),
            applied: None,
            is_learner: false,
            db_size: 0,
            db_in_use: None,
            db_quota: None,
            storage_version: None,
            downgrade: None,
            errors: Vec::new(),
        }
    }

    #[test]
    fn members_are_known_only_from_one_voter_of_one_cluster() {
        let url: ClientUrl = "http://c-0:2379".parse().expect("a URL");
        let judge = |barrier, listed, status| Known::judge(&url, barrier, listed, status);
        let known = judge(position(1, 1), listed(1), status(1, 1)).expect("members");
        assert_eq!((known.reader.get(), known.members.len()), (1, 2));
        for (barrier, listed, status) in [
            (position(2, 1), listed(1), status(1, 1)),
            (position(1, 1), listed(2), status(1, 1)),
            (position(1, 1), listed(1), status(2, 1)),
            (position(1, 1), listed(1), status(1, 4)),
        ] {
            let why = judge(barrier, listed, status).expect_err("two processes answered");
            assert!(matches!(why, Unknown::ReaderChanged(_)), "{why}");
        }
        let by = |member: u64| {
            let mut listed = listed(1);
            listed.position = position(1, member);
            judge(position(1, member), listed, status(1, member))
        };
        assert!(matches!(by(4), Err(Unknown::ReaderIsLearner(_))));
        assert!(matches!(by(5), Err(Unknown::ReaderIsNoMember { .. })));
    }

    #[test]
    fn a_list_of_another_cluster_tells_nothing() {
        let cluster = |id| ClusterId::new(id).expect("an ID");
        assert_eq!(listed(2).in_cluster(cluster(1)), None);
        let members = listed(2).in_cluster(cluster(2)).expect("members");
        assert_eq!(members.len(), 2);
    }

    #[test]
    fn a_member_without_an_id_or_with_a_url_of_another_kind_is_none() {
        let parse = |id, peer: &str| Member::parse(id, "a", &[peer.to_owned()], &[], Role::Voter);
        assert!(parse(1, "http://a:1").is_ok());
        assert!(parse(0, "http://a:1").is_err());
        assert!(parse(1, "unix://a:1").is_err());
    }
}
