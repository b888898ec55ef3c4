//! Reading and changing who the members are.

use std::collections::BTreeMap;

use etcd_client::{MemberAddOptions, MemberListResponse};

use super::Client;
use crate::error::{Cause, Error};
use crate::id::MemberId;
use crate::membership::{Known, Member, Membership, Role, Unknown};
use crate::policy::Feature;
use crate::rejection::Rejection;
use crate::status::Position;
use crate::url::PeerUrl;

const ADD: &str = "MemberAdd";
const REMOVE: &str = "MemberRemove";
const UPDATE: &str = "MemberUpdate";
const LIST: &str = "MemberList";
const PROMOTE: &str = "MemberPromote";

/// A member just added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Who answered.
    pub position: Position,
    /// The member, which has not started.
    pub member: Member,
}

type Members = BTreeMap<MemberId, Member>;

impl Client {
    /// Who the members are, from a linearizable read by this member. Its own list alone would not do: etcd-client asks for
    /// the list as the member has it, which may be old.
    pub async fn membership(&self) -> Membership {
        match self.read_membership().await {
            Ok(known) => Membership::Known(known),
            Err(why) => Membership::Unknown(why),
        }
    }

    async fn read_membership(&self) -> Result<Known, Unknown> {
        let barrier = match self.position().await {
            Err(error) if error.rejection() == Some(&Rejection::NotForLearners) => {
                return Err(Unknown::ReaderIsLearner(self.url().clone()));
            }
            other => other?,
        };
        // The list is not linearizable by itself, on no version. After the barrier it is at least as new as the barrier.
        let answer = self.list().await?;
        let listed = Position::read(answer.header()).map_err(|what| self.malformed(LIST, what))?;
        let members = self.read_all(LIST, answer.members())?;
        let status = self.status().await?;
        let who = |position: &Position| (position.cluster, position.member);
        if who(&barrier) != who(&listed) || who(&barrier) != who(&status.position) {
            return Err(Unknown::ReaderChanged(self.url().clone()));
        }
        match members.get(&barrier.member) {
            None => Err(Unknown::ReaderIsNoMember {
                endpoint: self.url().clone(),
                reader: barrier.member,
            }),
            Some(reader) if reader.role == Role::Learner => Err(Unknown::ReaderIsLearner(self.url().clone())),
            Some(_) => Ok(Known {
                cluster: barrier.cluster,
                members,
                leader: status.leader,
                reader: barrier.member,
                version: status.version,
                raft_index: status.raft_index,
                term: barrier.term,
                revision: barrier.revision,
            }),
        }
    }

    /// The members as this one has them by itself. They may be old: enough for a question whose answer never changes
    /// back, such as whether a member has ever started, and for no step.
    pub async fn listed(&self) -> Result<Members, Error> {
        let answer = self.list().await?;
        self.read_all(LIST, answer.members())
    }

    async fn list(&self) -> Result<MemberListResponse, Error> {
        let mut cluster = self.etcd.cluster_client();
        self.call(LIST, cluster.member_list()).await
    }

    /// Adds a member that has a vote from the start and raises the quorum before it has any data.
    pub async fn add_voter(&self, urls: &[PeerUrl]) -> Result<Added, Error> {
        self.add(urls, Role::Voter).await
    }

    /// Adds a member without a vote. A version without learners is not asked: it would add a voter.
    pub async fn add_learner(&self, urls: &[PeerUrl]) -> Result<Added, Error> {
        self.require(ADD, Feature::Learners, "it would add a voter")
            .await?;
        self.add(urls, Role::Learner).await
    }

    async fn add(&self, urls: &[PeerUrl], role: Role) -> Result<Added, Error> {
        let options = match role {
            Role::Voter => MemberAddOptions::new(),
            Role::Learner => MemberAddOptions::new().with_is_learner(),
        };
        let mut cluster = self.etcd.cluster_client();
        let answer = self
            .call(ADD, cluster.member_add(texts(urls), Some(options)))
            .await?;
        let malformed = |what: String| self.malformed(ADD, what);
        let position = Position::read(answer.header()).map_err(malformed)?;
        let member = answer.member().ok_or_else(|| malformed("no member".to_owned()))?;
        let member = Member::read(member).map_err(malformed)?;
        if member.role != role {
            return Err(malformed(format!(
                "asked for a {role:?}, it is {:?}",
                member.role
            )));
        }
        Ok(Added { position, member })
    }

    /// Gives a learner its vote; gives the members after that.
    pub async fn promote(&self, learner: MemberId) -> Result<Members, Error> {
        let mut cluster = self.etcd.cluster_client();
        let answer = self.call(PROMOTE, cluster.member_promote(learner.get())).await?;
        self.read_all(PROMOTE, answer.members())
    }

    /// Removes a member for good; gives the members after that.
    pub async fn remove(&self, member: MemberId) -> Result<Members, Error> {
        let mut cluster = self.etcd.cluster_client();
        let answer = self.call(REMOVE, cluster.member_remove(member.get())).await?;
        self.read_all(REMOVE, answer.members())
    }

    /// Gives a member other peer URLs; gives the members after that. For a learner a version is not asked if it would
    /// promote it by the way.
    pub async fn update(&self, member: &Member, urls: &[PeerUrl]) -> Result<Members, Error> {
        if member.role == Role::Learner {
            self.require(UPDATE, Feature::UpdateLearner, "it would promote the learner")
                .await?;
        }
        let mut cluster = self.etcd.cluster_client();
        let changed = cluster.member_update(member.id.get(), texts(urls));
        let answer = self.call(UPDATE, changed).await?;
        self.read_all(UPDATE, answer.members())
    }

    fn read_all(&self, call: &'static str, members: &[etcd_client::Member]) -> Result<Members, Error> {
        Member::read_all(members).map_err(|what| self.malformed(call, what))
    }

    async fn require(&self, call: &'static str, feature: Feature, why: &'static str) -> Result<(), Error> {
        let version = self.status().await?.version;
        if feature.is_in(&version) {
            return Ok(());
        }
        let version = version.to_string();
        Err(self.failed(call, Cause::Unsupported { version, why }))
    }
}

fn texts(urls: &[PeerUrl]) -> Vec<String> {
    urls.iter().map(ToString::to_string).collect()
}
