//! The members of the etcd that is backed up: asking all of them at once how they are, and streaming from one. One that
//! does not answer costs only the time it is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_etcd::client::{Client, User};
use etcd_operator_etcd::endpoint::Endpoint;
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::Status;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::{self, BoxStream};

use crate::choice::{Candidate, Role};
use crate::settings::Way;

/// How long a piece of a stream may take; a member that reads from a slow disk takes some time.
const IDLE: Duration = Duration::from_secs(20);
/// What etcd says where users are not asked for.
const NO_AUTH: &str = "authentication is not enabled";

/// An answer to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A snapshot, piece by piece: the database and its hash.
pub type Pieces = BoxStream<'static, Result<Bytes, Error>>;

/// Who answered, and why others did not.
#[derive(Debug, Default)]
pub struct Survey {
    /// The members.
    pub found: Vec<Candidate>,
    /// What went wrong with others.
    pub errors: Vec<Error>,
}

/// An etcd that can be backed up.
pub trait Members: fmt::Debug + Send + Sync {
    /// Asks all members how they are.
    fn survey(&self) -> Answer<'_, Survey>;
    /// Begins a snapshot of one.
    fn snapshot<'a>(&'a self, of: &'a Candidate) -> Answer<'a, Result<Pieces, Error>>;
    /// How large its database is now.
    fn size<'a>(&'a self, of: &'a Candidate) -> Answer<'a, Option<u64>>;
}

/// Members behind a network.
#[derive(Clone, Debug)]
pub struct Network {
    way: Way,
}

impl Network {
    /// The members that are reached this way, and those they know of.
    pub fn new(way: Way) -> Self {
        Self { way }
    }

    async fn ask(&self, endpoint: &Endpoint) -> Result<(Candidate, Client), Error> {
        let client = connect(&self.way, endpoint).await?;
        let status = client.status().await?;
        Ok((candidate(endpoint, &status), client))
    }

    fn endpoint(&self, of: &Candidate) -> Endpoint {
        let like = self.way.endpoints.first();
        Endpoint {
            tls: like.and_then(|endpoint| endpoint.tls.clone()),
            ..Endpoint::plain(of.url.clone())
        }
    }

    async fn look(&self) -> Survey {
        let mut survey = Survey::default();
        let mut names: BTreeMap<MemberId, String> = BTreeMap::new();
        let mut further: BTreeSet<_> = BTreeSet::new();
        for answer in join_all(self.way.endpoints.iter().map(|endpoint| self.ask(endpoint))).await {
            match answer {
                Ok((candidate, client)) => {
                    if names.is_empty()
                        && let Ok(members) = client.listed().await
                    {
                        for member in members.into_values() {
                            further.extend(member.client_urls);
                            names.extend(member.name.map(|name| (member.id, name)));
                        }
                    }
                    survey.found.push(candidate);
                }
                Err(error) => survey.errors.push(error),
            }
        }
        // An address may stand for all members, as that of a Service does. What members say of themselves may not lead
        // anywhere from here, and is no error then.
        for known in &self.way.endpoints {
            further.remove(&known.url);
        }
        let has_all = names
            .keys()
            .all(|id| survey.found.iter().any(|c| c.member == *id));
        if !has_all {
            let endpoints: Vec<Endpoint> = further
                .into_iter()
                .map(|url| Endpoint {
                    tls: self.way.endpoints.first().and_then(|known| known.tls.clone()),
                    ..Endpoint::plain(url)
                })
                .collect();
            let answers = join_all(endpoints.iter().map(|endpoint| self.ask(endpoint))).await;
            let found = answers.into_iter().filter_map(Result::ok);
            // One address may lead to another member the next time: a member's own comes first.
            survey.found.splice(0..0, found.map(|(candidate, _)| candidate));
        }
        for candidate in &mut survey.found {
            candidate.name = names.get(&candidate.member).cloned();
        }
        survey
    }
}

/// Reaches a member as the way to it says.
pub async fn connect(way: &Way, endpoint: &Endpoint) -> Result<Client, Error> {
    let client = Client::connect(endpoint).await?;
    let Some(user) = &way.user else {
        return Ok(client);
    };
    login(client, user).await
}

async fn login(client: Client, user: &User) -> Result<Client, Error> {
    match client.clone().login(user).await {
        Err(Error {
            cause: Cause::Rejected(Rejection::Other { message, .. }),
            ..
        }) if message.contains(NO_AUTH) => Ok(client),
        other => other,
    }
}

fn candidate(endpoint: &Endpoint, status: &Status) -> Candidate {
    let role = match status.leader {
        None => Role::Alone,
        Some(leader) if leader == status.position.member => Role::Leader,
        Some(_) if status.is_learner => Role::Learner,
        Some(_) => Role::Follower,
    };
    Candidate {
        url: endpoint.url.clone(),
        cluster: status.position.cluster,
        member: status.position.member,
        name: None,
        version: status.version.to_string(),
        role,
        revision: status.position.revision,
        applied: status.applied.map_or(status.raft_index.0, |applied| applied.0),
        db_size: status.db_size,
        corrupt: status.errors.iter().filter_map(|said| corrupt(said)).collect(),
    }
}

/// The member of an alarm about corruption, as etcd writes it: `memberID:10501334649042878790 alarm:CORRUPT`.
fn corrupt(said: &str) -> Option<u64> {
    let rest = said.strip_prefix("memberID:")?;
    let (member, alarm) = rest.split_once(' ')?;
    alarm
        .trim()
        .strip_prefix("alarm:CORRUPT")
        .and_then(|_| member.parse().ok())
}

impl Members for Network {
    fn survey(&self) -> Answer<'_, Survey> {
        Box::pin(self.look())
    }

    fn snapshot<'a>(&'a self, of: &'a Candidate) -> Answer<'a, Result<Pieces, Error>> {
        Box::pin(async move {
            let client = connect(&self.way, &self.endpoint(of)).await?;
            let snapshot = client.snapshot(IDLE).await?;
            let pieces = stream::try_unfold(snapshot, |mut snapshot| async {
                let piece = snapshot.next().await?;
                Ok(piece.map(|piece| (piece.bytes, snapshot)))
            });
            Ok(pieces.boxed())
        })
    }

    fn size<'a>(&'a self, of: &'a Candidate) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let (now, _) = self.ask(&self.endpoint(of)).await.ok()?;
            // Behind an address that stands for all, it may have been another one.
            (now.member == of.member).then_some(now.db_size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_about_corruption_tells_its_member() {
        assert_eq!(
            corrupt("memberID:10501334649042878790 alarm:CORRUPT "),
            Some(10_501_334_649_042_878_790)
        );
        assert_eq!(corrupt("memberID:5 alarm:NOSPACE"), None);
        assert_eq!(corrupt("etcdserver: no leader"), None);
    }
}
