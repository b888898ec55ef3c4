//! Reading and changing who the members are.

use std::collections::BTreeMap;

use etcd_client::MemberAddOptions;

use super::{Client, answers};
use crate::error::{Cause, Error};
use crate::id::MemberId;
use crate::membership::{Listed, Member, Role};
use crate::policy::Feature;
use crate::status::Position;
use crate::url::PeerUrl;

const ADD: &str = "MemberAdd";
const REMOVE: &str = "MemberRemove";
const UPDATE: &str = "MemberUpdate";
const LIST: &str = "MemberList";
const PROMOTE: &str = "MemberPromote";

/// A member that was just added and has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// Who answered.
    pub position: Position,
    /// The member, which has not started.
    pub member: Member,
}

type Members = BTreeMap<MemberId, Member>;

impl Client {
    /// The members as this one knows them locally, which may be old: etcd-client does not ask for a linearizable list.
    /// `Port::membership` checks it against a linearizable read.
    pub async fn listed(&self) -> Result<Listed, Error> {
        let mut cluster = self.etcd.cluster_client();
        let answer = self.call(LIST, cluster.member_list()).await?;
        Ok(Listed {
            position: answers::position(answer.header()).map_err(|what| self.malformed(LIST, what))?,
            members: self.read_all(LIST, answer.members())?,
        })
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

    /// Adds a member. If etcd answers with another role, that is an error, although the member has been added.
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
        let position = answers::position(answer.header()).map_err(malformed)?;
        let member = answer.member().ok_or_else(|| malformed("no member".to_owned()))?;
        let member = answers::member(member).map_err(malformed)?;
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
        answers::members(members).map_err(|what| self.malformed(call, what))
    }

    /// Fails with [`Cause::Unsupported`] if the version that this member runs does not have the feature. `why` says
    /// what the call would do there.
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
