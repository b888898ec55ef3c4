//! Asking the members: each for itself, and one voter for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use etcd_operator_api::names::{CLIENT_PORT, PEER_PORT};
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::observed_state::{
    CallFailure, Container, Digest, Membership, MembershipFailure, ObservedMember, Ordinal, Pod, QueryResult,
};
use etcd_operator_cluster_core::persisted_state::PersistedState;
use etcd_operator_etcd::endpoint::{Endpoint, Limits, Tls};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{self as etcd, Member, Role, Unknown};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::status::{Alarm, AlarmKind, Status};
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_etcd::version::Version;
use etcd_operator_runtime::key::ObjectKey;
use futures::future::{join, join_all};

use super::secrets::Transport;
use super::{Connection, no_answer};
use crate::reconcile::Deps;

/// How long a member may take to hash its keys; all of a reconcile takes no longer than a minute.
const HASH_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a member may take to say who it knows.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// What the members answered, and the connections to those that did.
#[derive(Debug)]
pub struct MemberProbes {
    /// Who the members are.
    pub membership: Membership,
    /// The members as the only voter that there was has them by itself, where no quorum can tell.
    pub local_membership: BTreeMap<MemberId, Member>,
    /// The alarms that stand.
    pub alarms: BTreeSet<Alarm>,
    /// Why they could not be read, although a member reports errors.
    pub alarms_failure: Option<CallFailure>,
    /// What members have at one revision, where an alarm says that they differ.
    pub digests: BTreeMap<MemberId, QueryResult<Digest>>,
    /// Those that answered.
    pub connections: BTreeMap<Ordinal, Connection>,
    /// Who told who the members are.
    pub reader: Option<Ordinal>,
}

impl MemberProbes {
    /// The cluster version of etcd, from the voter that returned the membership. `None` without such a voter, or before
    /// the members have agreed on one.
    pub async fn cluster_version(&self) -> Option<Version> {
        let connection = self.connections.get(&self.reader?)?;
        connection.cluster_version().await.ok().flatten()
    }

    /// Whether authentication is enabled in etcd, from the voter that returned the membership. `None` if it does not
    /// tell.
    pub async fn is_auth_enabled(&self) -> Option<bool> {
        let connection = self.connections.get(&self.reader?)?;
        connection.is_auth_enabled().await.ok()
    }
}

/// What a pod answered: the report of the guard, or the status of etcd and the connection to it.
struct PodAnswers {
    report: QueryResult<etcd_operator_api::contract::Report>,
    status: QueryResult<Status>,
    connection: Option<Connection>,
}

/// Asks every pod whose etcd container runs, and then one voter for the membership. Alarms are read only if a member
/// reports errors or joins, hashes only while the alarm CORRUPT is raised.
pub async fn probe_members(
    desired: &Desired,
    key: &ObjectKey,
    members: &mut BTreeMap<Ordinal, ObservedMember>,
    (persisted, voters): (&PersistedState, &BTreeSet<Ordinal>),
    transport: Transport,
    deps: &Deps,
) -> MemberProbes {
    let transport = &transport;
    let restore = persisted.restore.as_ref();
    read_download_progress(members, deps).await;
    let queries = members.iter().filter_map(|(ordinal, member)| {
        let pod = member
            .pod
            .as_ref()
            .filter(|pod| pod.container == Container::Running)
            .filter(|pod| restore.is_none_or(|restore| restore.is_queried(pod.incarnation)))?;
        let at = pod.ip?;
        Some(async move {
            (
                *ordinal,
                probe_pod(desired, key, *ordinal, pod, at, transport, deps).await,
            )
        })
    });
    let answers = join_all(queries).await;
    let mut connections = BTreeMap::new();
    for (ordinal, answer) in answers {
        let member = members.entry(ordinal).or_insert(ObservedMember::ABSENT);
        member.report = answer.report;
        member.status = answer.status;
        connections.extend(answer.connection.map(|connection| (ordinal, connection)));
    }
    let (membership, reader) = membership(members, persisted, &connections, transport).await;
    let local_membership = match membership {
        Membership::Known(_) => BTreeMap::new(),
        Membership::Unknown(_) => {
            read_local_membership(members, (persisted, voters), &connections, transport, deps).await
        }
    };
    let alarms = match reader.and_then(|reader| connections.get(&reader)) {
        Some(connection) if has_errors(members) => connection.alarms().await,
        Some(connection) if has_joining_member(&membership) => {
            Ok(connection.alarms().await.unwrap_or_default())
        }
        _ => Ok(BTreeSet::new()),
    };
    let (alarms, alarms_failure) = match alarms {
        Ok(alarms) => (alarms, None),
        Err(error) => (BTreeSet::new(), Some(CallFailure::from(&error))),
    };
    let digests = match &membership {
        Membership::Known(_) if alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt) => {
            digests(members, &connections).await
        }
        _ => BTreeMap::new(),
    };
    MemberProbes {
        membership,
        local_membership,
        alarms,
        alarms_failure,
        digests,
        connections,
        reader,
    }
}

/// Reads the progress of running downloads from their init containers. The answer of another pod is ignored.
async fn read_download_progress(members: &mut BTreeMap<Ordinal, ObservedMember>, deps: &Deps) {
    let queries = members.iter().filter_map(|(ordinal, member)| {
        let pod = member.pod.as_ref()?;
        let fetch = pod.fetch.as_ref().filter(|fetch| fetch.is_running)?;
        let at = pod.ip.filter(|_| !fetch.is_done)?;
        let uid = pod.uid.clone();
        Some(async move { (*ordinal, uid, deps.member_clients.reports.read_progress(at).await) })
    });
    for (ordinal, uid, answer) in join_all(queries).await {
        // An address may be another pod's by now.
        let answered = answer.answer().filter(|answered| answered.pod_uid == uid);
        let fetch = members
            .get_mut(&ordinal)
            .and_then(|member| member.pod.as_mut()?.fetch.as_mut());
        if let (Some(answered), Some(fetch)) = (answered, fetch) {
            fetch.progress = Some((answered.bytes, answered.total));
        }
    }
}

/// The members as the only recorded voter knows them locally, for versions without learners; else none. There, the
/// second voter that a single one has added leaves no quorum until it has started. Nothing was ever committed without
/// the first one, so what it knows is complete.
async fn read_local_membership(
    members: &BTreeMap<Ordinal, ObservedMember>,
    (persisted, voters): (&PersistedState, &BTreeSet<Ordinal>),
    connections: &BTreeMap<Ordinal, Connection>,
    transport: &Transport,
    deps: &Deps,
) -> BTreeMap<MemberId, Member> {
    let Some(only) = voters.first().filter(|_| voters.len() == 1) else {
        return BTreeMap::new();
    };
    let Some(member) = members.get(only) else {
        return BTreeMap::new();
    };
    match (member.status(), connections.get(only)) {
        (Some(status), Some(connection)) if !Feature::Learners.is_in(&status.version) => {
            let listed = connection.listed().await.ok().zip(persisted.cluster);
            let members = listed.and_then(|(listed, cluster)| listed.in_cluster(cluster));
            members.unwrap_or_default()
        }
        (Some(_), _) => BTreeMap::new(),
        _ => read_from_peer_port(member, persisted, transport, deps).await,
    }
}

/// The same from the peer port, if that voter has restarted since: before it has a quorum again, it serves other
/// members and no clients. Only without TLS.
async fn read_from_peer_port(
    member: &ObservedMember,
    persisted: &PersistedState,
    transport: &Transport,
    deps: &Deps,
) -> BTreeMap<MemberId, Member> {
    let running = member
        .pod
        .as_ref()
        .filter(|pod| pod.container == Container::Running && member.report().is_none());
    let Some(at) = running
        .and_then(|pod| pod.ip)
        .filter(|_| matches!(transport, Transport::Plain))
    else {
        return BTreeMap::new();
    };
    let Ok(peer) = format!("http://{}:{PEER_PORT}", host(at)).parse() else {
        return BTreeMap::new();
    };
    match deps.member_clients.etcd.query_as_peer(&peer, PEER_TIMEOUT).await {
        Ok(answered)
            if Some(answered.cluster) == persisted.cluster && !Feature::Learners.is_in(&answered.version) =>
        {
            answered.members
        }
        _ => BTreeMap::new(),
    }
}

fn host(at: IpAddr) -> String {
    match at {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The hash of each connected member, at the last revision that all of them have: only so can they be compared.
async fn digests(
    members: &BTreeMap<Ordinal, ObservedMember>,
    connections: &BTreeMap<Ordinal, Connection>,
) -> BTreeMap<MemberId, QueryResult<Digest>> {
    let answering = connections.iter().filter_map(|(ordinal, connection)| {
        let position = members.get(ordinal)?.status()?.position;
        Some((position, connection))
    });
    let answering: Vec<_> = answering.collect();
    let Some(revision) = answering.iter().map(|(position, _)| position.revision).min() else {
        return BTreeMap::new();
    };
    let queries = answering.into_iter().map(|(position, connection)| async move {
        let digest = match connection.hash_keys(Some(revision), HASH_TIMEOUT).await {
            Ok(hash) if hash.position.member == position.member => QueryResult::Answer(Digest {
                hash: hash.hash,
                compacted: hash.compacted,
            }),
            Ok(_) => QueryResult::OtherResponder,
            Err(error) => no_answer(&error),
        };
        (position.member, digest)
    });
    join_all(queries).await.into_iter().collect()
}

/// Asks a pod for the report of the guard and for the status of etcd, both at once. A ready pod is not asked for a report.
async fn probe_pod(
    desired: &Desired,
    key: &ObjectKey,
    ordinal: Ordinal,
    pod: &Pod,
    at: IpAddr,
    transport: &Transport,
    deps: &Deps,
) -> PodAnswers {
    let report = async {
        if pod.ready {
            QueryResult::OtherResponder
        } else {
            deps.member_clients.reports.read_report(at).await
        }
    };
    let serving = async {
        let dialed = match endpoint(desired, key, ordinal, at, transport) {
            Ok(endpoint) => {
                let dialed = deps.member_clients.etcd.dial(&endpoint).await;
                dialed.map_err(|error| CallFailure::from(&error))
            }
            Err(failure) => Err(failure),
        };
        match dialed {
            Ok(connection) => match connection.status().await {
                Ok(status) => (QueryResult::Answer(status), Some(Connection::from(connection))),
                Err(error) => (no_answer(&error), None),
            },
            Err(failure) => (QueryResult::NoAnswer(failure), None),
        }
    };
    // Both at once: whoever is on a node that is gone keeps the clusters of others waiting only once.
    let (report, (status, connection)) = join(report, serving).await;
    let status = match report.answer() {
        Some(_) => beside_report(status),
        None => status,
    };
    PodAnswers {
        report,
        status,
        connection,
    }
}

/// What counts of the call to etcd where a report was read, too. A failed call counts as none, as etcd does not run while the
/// guard waits. After an answer the report is not believed.
fn beside_report<T>(status: QueryResult<T>) -> QueryResult<T> {
    match status {
        QueryResult::Answer(answer) => QueryResult::Answer(answer),
        _ => QueryResult::NotQueried,
    }
}

/// A member at the IP of its pod: names may not resolve yet, and a name could lead to another pod. TLS still verifies
/// the name.
fn endpoint(
    desired: &Desired,
    key: &ObjectKey,
    ordinal: Ordinal,
    at: IpAddr,
    transport: &Transport,
) -> Result<Endpoint, CallFailure> {
    let (scheme, tls) = match transport {
        Transport::Plain => ("http", None),
        Transport::Tls(tls) => {
            let tls = Tls {
                server_name: Some(ordinal.host(&desired.name, &key.namespace)),
                ..tls.clone()
            };
            ("https", Some(tls))
        }
        Transport::Unavailable(why) => return Err(CallFailure::no_transport(why)),
    };
    let url: ClientUrl = format!("{scheme}://{}:{CLIENT_PORT}", host(at))
        .parse()
        .map_err(|error| CallFailure::from_text(format!("{error}")))?;
    Ok(Endpoint {
        url,
        tls,
        limits: Limits::default(),
    })
}

/// The membership, and the voter that returned it by a linearizable read: the first one that can, the leader before the
/// others. A member without a leader is not asked, and the answer of another cluster does not count.
async fn membership(
    members: &BTreeMap<Ordinal, ObservedMember>,
    persisted: &PersistedState,
    connections: &BTreeMap<Ordinal, Connection>,
    transport: &Transport,
) -> (Membership, Option<Ordinal>) {
    let status = |ordinal: &Ordinal| members.get(ordinal).and_then(ObservedMember::status);
    let leads = |ordinal: &Ordinal| {
        status(ordinal).is_some_and(|status| status.leader == Some(status.position.member))
    };
    let is_learner = |ordinal: &Ordinal| status(ordinal).is_some_and(|status| status.is_learner);
    let has_leader = |ordinal: &Ordinal| status(ordinal).is_some_and(|status| status.leader.is_some());
    let mut readers: Vec<_> = connections
        .keys()
        .filter(|ordinal| !is_learner(ordinal))
        .copied()
        .collect();
    readers.sort_by_key(|ordinal| (!leads(ordinal), *ordinal));
    let mut why = Vec::new();
    if let Transport::Unavailable(unavailable) = transport {
        why.push(MembershipFailure::NoTransport(unavailable.clone()));
    }
    for ordinal in readers {
        // It would answer only after the whole timeout, in every pass, and other clusters would wait for that.
        if !has_leader(&ordinal) {
            let url = connections[&ordinal].url().to_string();
            why.push(MembershipFailure::NoLeader { url });
            continue;
        }
        match connections[&ordinal].membership().await {
            etcd::Membership::Known(known) if persisted.cluster.is_none_or(|id| id == known.cluster) => {
                return (Membership::Known(known), Some(ordinal));
            }
            etcd::Membership::Known(known) => why.push(MembershipFailure::OtherCluster {
                url: connections[&ordinal].url().to_string(),
                cluster: known.cluster,
            }),
            etcd::Membership::Unknown(Unknown::Failed(error)) => {
                why.push(MembershipFailure::Call(CallFailure::from(&error)));
            }
            etcd::Membership::Unknown(unknown) => {
                why.push(MembershipFailure::Call(CallFailure::from_text(
                    unknown.to_string(),
                )));
            }
        }
    }
    (Membership::Unknown(why), None)
}

/// Whether a member was added and may still need the data; then alarms are listed, which writes an entry to the raft
/// log. From etcd 3.6 on, a member that got the data as a snapshot serves only after another entry, which in a quiet
/// cluster may never come.
fn has_joining_member(membership: &Membership) -> bool {
    let Membership::Known(known) = membership else {
        return false;
    };
    let mut members = known.members.values();
    members.any(|member| member.role == Role::Learner || !member.has_started())
}

/// Whether alarms must be read: a member reports errors, or its version cannot report any.
fn has_errors(members: &BTreeMap<Ordinal, ObservedMember>) -> bool {
    members
        .values()
        .filter_map(ObservedMember::status)
        .any(|status| !status.errors.is_empty() || !Feature::DetailedStatus.is_in(&status.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_does_not_hide_an_etcd_that_answers() {
        let failed = QueryResult::NoAnswer(CallFailure::connection_refused("connection refused"));
        assert_eq!(beside_report::<()>(failed), QueryResult::NotQueried);
        assert_eq!(beside_report(QueryResult::Answer(())), QueryResult::Answer(()));
    }
}
