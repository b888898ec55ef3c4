//! The members of the etcd cluster that is backed up: queries the status of all of them at once, and streams a snapshot from
//! one. A member that does not answer delays the others only until its call times out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_etcd::client::{Client, User};
use etcd_operator_etcd::endpoint::{Endpoint, Tls};
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::Status;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::{self, BoxStream};

use crate::member_choice::{Candidate, Role};
use crate::settings::EtcdAccess;

/// The timeout for one piece of a snapshot stream: a member that reads from a slow disk needs some time.
const PIECE_TIMEOUT: Duration = Duration::from_secs(20);

/// The future of a call to members.
pub type MemberFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A snapshot, piece by piece: the database, then its SHA-256.
pub type SnapshotStream = BoxStream<'static, Result<Bytes, Error>>;

/// The result of a status query to all members.
#[derive(Debug, Default)]
pub struct Survey {
    /// The members that answered.
    pub found: Vec<Candidate>,
    /// Why other endpoints did not answer.
    pub errors: Vec<Error>,
}

/// The members of an etcd cluster that can be backed up.
pub trait Members: fmt::Debug + Send + Sync {
    /// Queries the status of all members.
    fn survey(&self) -> MemberFuture<'_, Survey>;
    /// Starts a snapshot of a member.
    fn snapshot<'a>(&'a self, member: &'a Candidate) -> MemberFuture<'a, Result<SnapshotStream, Error>>;
    /// Queries the present size of a member's database in bytes; `None` if the member does not answer.
    fn database_size<'a>(&'a self, member: &'a Candidate) -> MemberFuture<'a, Option<u64>>;
}

/// Members that are reached over the network.
#[derive(Clone, Debug)]
pub struct NetworkMembers {
    access: EtcdAccess,
}

impl NetworkMembers {
    /// The members at the given endpoints, and the other members that these list.
    pub fn new(access: EtcdAccess) -> Self {
        Self { access }
    }

    async fn query_status(&self, endpoint: &Endpoint) -> Result<(Candidate, Client), Error> {
        let client = connect(&self.access, endpoint).await?;
        let status = client.status().await?;
        Ok((candidate(endpoint, &status), client))
    }

    /// The endpoint of a member, with the same TLS settings as the given endpoints.
    fn endpoint_of(&self, member: &Candidate) -> Endpoint {
        Endpoint {
            tls: self.tls(),
            ..Endpoint::plain(member.url.clone())
        }
    }

    fn tls(&self) -> Option<Tls> {
        let first = self.access.endpoints.first()?;
        first.tls.clone()
    }

    /// Queries the given endpoints. If members are missing among the answers, it also queries the client URLs that one
    /// of the members lists.
    async fn query_all(&self) -> Survey {
        let mut survey = Survey::default();
        let mut names: BTreeMap<MemberId, String> = BTreeMap::new();
        let mut listed_urls: BTreeSet<_> = BTreeSet::new();
        let queries = self
            .access
            .endpoints
            .iter()
            .map(|endpoint| self.query_status(endpoint));
        for answer in join_all(queries).await {
            match answer {
                Ok((candidate, client)) => {
                    if names.is_empty() {
                        match client.listed().await {
                            Ok(listed) => {
                                for member in listed.members.into_values() {
                                    listed_urls.extend(member.client_urls);
                                    names.extend(member.name.map(|name| (member.id, name)));
                                }
                            }
                            Err(error) => {
                                tracing::warn!(%error, "cannot list the members; only the given endpoints are used");
                            }
                        }
                    }
                    survey.found.push(candidate);
                }
                Err(error) => survey.errors.push(error),
            }
        }
        // An endpoint may stand for all members, as the URL of a Service does, so their advertised URLs are queried as well.
        // These may be unreachable from here, which is no error.
        for known in &self.access.endpoints {
            listed_urls.remove(&known.url);
        }
        let has_all = names
            .keys()
            .all(|id| survey.found.iter().any(|c| c.member == *id));
        if !has_all {
            let endpoints: Vec<Endpoint> = listed_urls
                .into_iter()
                .map(|url| Endpoint {
                    tls: self.tls(),
                    ..Endpoint::plain(url)
                })
                .collect();
            let answers = join_all(endpoints.iter().map(|endpoint| self.query_status(endpoint))).await;
            let found = answers.into_iter().filter_map(Result::ok);
            // The URL of a Service may reach another member next time, so a member's own URL comes first.
            survey.found.splice(0..0, found.map(|(candidate, _)| candidate));
        }
        for candidate in &mut survey.found {
            candidate.name = names.get(&candidate.member).cloned();
        }
        survey
    }
}

/// Connects to a member, and logs in if the access has a user.
pub async fn connect(access: &EtcdAccess, endpoint: &Endpoint) -> Result<Client, Error> {
    let client = Client::connect(endpoint).await?;
    let Some(user) = &access.user else {
        return Ok(client);
    };
    login(client, user).await
}

/// Logs in. If authentication is disabled in etcd, the client is used without.
async fn login(client: Client, user: &User) -> Result<Client, Error> {
    match client.clone().login(user).await {
        Err(Error {
            cause: Cause::Rejected(Rejection::AuthenticationDisabled),
            ..
        }) => Ok(client),
        other => other,
    }
}

fn candidate(endpoint: &Endpoint, status: &Status) -> Candidate {
    let role = match status.leader {
        None => Role::NoLeader,
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
        corrupt: status
            .errors
            .iter()
            .filter_map(|error| parse_corrupt_alarm(error))
            .collect(),
    }
}

/// The member of an alarm CORRUPT in an error of etcd's status: `memberID:10501334649042878790 alarm:CORRUPT`.
fn parse_corrupt_alarm(error: &str) -> Option<u64> {
    let rest = error.strip_prefix("memberID:")?;
    let (member, alarm) = rest.split_once(' ')?;
    alarm
        .trim()
        .strip_prefix("alarm:CORRUPT")
        .and_then(|_| member.parse().ok())
}

impl Members for NetworkMembers {
    fn survey(&self) -> MemberFuture<'_, Survey> {
        Box::pin(self.query_all())
    }

    fn snapshot<'a>(&'a self, member: &'a Candidate) -> MemberFuture<'a, Result<SnapshotStream, Error>> {
        Box::pin(async move {
            let client = connect(&self.access, &self.endpoint_of(member)).await?;
            let snapshot = client.snapshot(PIECE_TIMEOUT).await?;
            let pieces = stream::try_unfold(snapshot, |mut snapshot| async {
                let piece = snapshot.next().await?;
                Ok(piece.map(|piece| (piece, snapshot)))
            });
            Ok(pieces.boxed())
        })
    }

    fn database_size<'a>(&'a self, member: &'a Candidate) -> MemberFuture<'a, Option<u64>> {
        Box::pin(async move {
            let (now, _) = self.query_status(&self.endpoint_of(member)).await.ok()?;
            // The URL of a Service may have reached another member.
            (now.member == member.member).then_some(now.db_size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_of_an_alarm_corrupt_is_parsed() {
        assert_eq!(
            parse_corrupt_alarm("memberID:10501334649042878790 alarm:CORRUPT "),
            Some(10_501_334_649_042_878_790)
        );
        assert_eq!(parse_corrupt_alarm("memberID:5 alarm:NOSPACE"), None);
        assert_eq!(parse_corrupt_alarm("etcdserver: no leader"), None);
    }
}
