//! Asking the members: each for itself, and one voter for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use etcd_operator_api::names::{CLIENT_PORT, PEER_PORT};
use etcd_operator_etcd::endpoint::{Endpoint, Limits, Tls};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{self as etcd, Member};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::status::{Alarm, AlarmKind, Status};
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_runtime::key::ObjectKey;
use futures::future::{join, join_all};

use super::secrets::Speech;
use super::{Connection, silent};
use crate::desired::Desired;
use crate::memory::Memory;
use crate::reconcile::Deps;
use crate::world::{Asked, Container, Digest, Membership, Ordinal, Pod, Seen};

/// How long a member may take to hash its keys; all of a reconcile takes no longer than a minute.
const HASHING: Duration = Duration::from_secs(20);

/// How long a member may take to say who it knows.
const ASKING: Duration = Duration::from_secs(2);

/// What became of asking the members.
#[derive(Debug)]
pub struct Reached {
    /// Who the members are.
    pub membership: Membership,
    /// The members as the only voter that there was has them by itself, where no quorum can tell.
    pub overheard: BTreeMap<MemberId, Member>,
    /// The alarms that stand.
    pub alarms: BTreeSet<Alarm>,
    /// What members have at one revision, where an alarm says that they differ.
    pub digests: BTreeMap<MemberId, Asked<Digest>>,
    /// Those that answered.
    pub connections: BTreeMap<Ordinal, Connection>,
    /// Who told who the members are.
    pub reader: Option<Ordinal>,
}

/// What one pod answered.
struct Answers {
    report: Asked<etcd_operator_api::contract::Report>,
    status: Asked<Status>,
    connection: Option<Connection>,
}

/// Asks every pod that can answer, then one voter for all of them.
pub async fn ask(
    desired: &Desired,
    key: &ObjectKey,
    seen: &mut BTreeMap<Ordinal, Seen>,
    (memory, voters): (&Memory, &BTreeSet<Ordinal>),
    speech: Speech,
    deps: &Deps,
) -> Reached {
    let speech = &speech;
    let restore = memory.restore.as_ref();
    downloads(seen, deps).await;
    let asked = seen.iter().filter_map(|(place, seen)| {
        let pod = seen
            .pod
            .as_ref()
            .filter(|pod| pod.container == Container::Running)
            .filter(|pod| restore.is_none_or(|restore| restore.hears(pod.incarnation)))?;
        let at = pod.ip?;
        Some(async move { (*place, one(desired, key, *place, pod, at, speech, deps).await) })
    });
    let answers = join_all(asked).await;
    let mut connections = BTreeMap::new();
    for (place, answer) in answers {
        let seen = seen.entry(place).or_insert(Seen::NOTHING);
        seen.report = answer.report;
        seen.status = answer.status;
        connections.extend(answer.connection.map(|connection| (place, connection)));
    }
    let (membership, reader) = membership(seen, memory, &connections, speech).await;
    let overheard = match membership {
        Membership::Known(_) => BTreeMap::new(),
        Membership::Unknown(_) => overheard(seen, (memory, voters), &connections, speech, deps).await,
    };
    let alarms = match reader.and_then(|reader| connections.get(&reader)) {
        Some(connection) if complains(seen) => connection.alarms().await.unwrap_or_default(),
        _ => BTreeSet::new(),
    };
    let digests = match &membership {
        Membership::Known(_) if alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt) => {
            digests(seen, &connections).await
        }
        _ => BTreeMap::new(),
    };
    Reached {
        membership,
        overheard,
        alarms,
        digests,
        connections,
        reader,
    }
}

/// Asks downloads how far they are.
async fn downloads(seen: &mut BTreeMap<Ordinal, Seen>, deps: &Deps) {
    let asked = seen.iter().filter_map(|(place, seen)| {
        let pod = seen.pod.as_ref()?;
        let fetch = pod.fetch.as_ref().filter(|fetch| fetch.is_running)?;
        let at = pod.ip.filter(|_| !fetch.is_done)?;
        let uid = pod.uid.clone();
        Some(async move { (*place, uid, deps.reach.reports.progress(at).await) })
    });
    for (place, uid, answer) in join_all(asked).await {
        // An address may be another pod's by now.
        let told = answer.answer().filter(|told| told.pod_uid == uid);
        let fetch = seen
            .get_mut(&place)
            .and_then(|seen| seen.pod.as_mut()?.fetch.as_mut());
        if let (Some(told), Some(fetch)) = (told, fetch) {
            fetch.arrived = Some((told.bytes, told.total));
        }
    }
}

/// Where there are no learners, the second voter that a single one has taken in leaves no quorum until it has started.
/// Nothing was ever agreed on without the first one, so that what it has by itself is all there is.
async fn overheard(
    seen: &BTreeMap<Ordinal, Seen>,
    (memory, voters): (&Memory, &BTreeSet<Ordinal>),
    connections: &BTreeMap<Ordinal, Connection>,
    speech: &Speech,
    deps: &Deps,
) -> BTreeMap<MemberId, Member> {
    let Some(only) = voters.first().filter(|_| voters.len() == 1) else {
        return BTreeMap::new();
    };
    let Some(seen) = seen.get(only) else {
        return BTreeMap::new();
    };
    match (seen.status(), connections.get(only)) {
        (Some(status), Some(connection)) if !Feature::Learners.is_in(&status.version) => {
            connection.listed().await.unwrap_or_default()
        }
        (Some(_), _) => BTreeMap::new(),
        _ => unserved(seen, memory, speech, deps).await,
    }
}

/// The same of one that was started anew since: it serves no client before there is a quorum, and members all the same.
async fn unserved(seen: &Seen, memory: &Memory, speech: &Speech, deps: &Deps) -> BTreeMap<MemberId, Member> {
    let running = seen
        .pod
        .as_ref()
        .filter(|pod| pod.container == Container::Running && seen.report().is_none());
    let Some(at) = running
        .and_then(|pod| pod.ip)
        .filter(|_| matches!(speech, Speech::Plain))
    else {
        return BTreeMap::new();
    };
    let Ok(peer) = format!("http://{}:{PEER_PORT}", host(at)).parse() else {
        return BTreeMap::new();
    };
    match deps.reach.etcd.ask_as_peer(&peer, ASKING).await {
        Ok(told) if Some(told.cluster) == memory.cluster && !Feature::Learners.is_in(&told.version) => {
            told.members
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

/// What every member that answers has at the last revision that all of them have: only so can they be compared.
async fn digests(
    seen: &BTreeMap<Ordinal, Seen>,
    connections: &BTreeMap<Ordinal, Connection>,
) -> BTreeMap<MemberId, Asked<Digest>> {
    let answering = connections.iter().filter_map(|(place, connection)| {
        let position = seen.get(place)?.status()?.position;
        Some((position, connection))
    });
    let answering: Vec<_> = answering.collect();
    let Some(revision) = answering.iter().map(|(position, _)| position.revision).min() else {
        return BTreeMap::new();
    };
    let asked = answering.into_iter().map(|(position, connection)| async move {
        let digest = match connection.hash_keys(Some(revision), HASHING).await {
            Ok(hash) if hash.position.member == position.member => Asked::Answer(Digest {
                hash: hash.hash,
                compacted: hash.compacted,
            }),
            Ok(_) => Asked::Elsewhere,
            Err(error) => silent(&error),
        };
        (position.member, digest)
    });
    join_all(asked).await.into_iter().collect()
}

/// Asks one pod: a member that serves is etcd; another one may be a process that waits.
async fn one(
    desired: &Desired,
    key: &ObjectKey,
    place: Ordinal,
    pod: &Pod,
    at: IpAddr,
    speech: &Speech,
    deps: &Deps,
) -> Answers {
    let report = async {
        if pod.ready {
            Asked::Elsewhere
        } else {
            deps.reach.reports.ask(at).await
        }
    };
    let serving = async {
        let dialed = match endpoint(desired, key, place, at, speech) {
            Ok(endpoint) => {
                let dialed = deps.reach.etcd.dial(&endpoint).await;
                dialed.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        match dialed {
            Ok(connection) => match connection.status().await {
                Ok(status) => (Asked::Answer(status), Some(Connection::from(connection))),
                Err(error) => (silent(&error), None),
            },
            Err(why) => (Asked::Silent(why), None),
        }
    };
    // Both at once: whoever is on a node that is gone keeps the clusters of others waiting only once.
    let (report, (status, connection)) = join(report, serving).await;
    if report.answer().is_some() {
        return Answers {
            report,
            status: Asked::Not,
            connection: None,
        };
    }
    Answers {
        report,
        status,
        connection,
    }
}

/// A member by the address of its pod: names may not resolve yet, and a name could lead to another pod.
fn endpoint(
    desired: &Desired,
    key: &ObjectKey,
    place: Ordinal,
    at: IpAddr,
    speech: &Speech,
) -> Result<Endpoint, String> {
    let (scheme, tls) = match speech {
        Speech::Plain => ("http", None),
        Speech::Tls(tls) => {
            let tls = Tls {
                server_name: Some(place.host(&desired.name, &key.namespace)),
                ..tls.clone()
            };
            ("https", Some(tls))
        }
        Speech::Mute(why) => return Err(why.clone()),
    };
    let url: ClientUrl = format!("{scheme}://{}:{CLIENT_PORT}", host(at))
        .parse()
        .map_err(|error| format!("{error}"))?;
    Ok(Endpoint {
        url,
        tls,
        limits: Limits::default(),
    })
}

/// Who the members are: the first voter that can tell, the leader before the others.
async fn membership(
    seen: &BTreeMap<Ordinal, Seen>,
    memory: &Memory,
    connections: &BTreeMap<Ordinal, Connection>,
    speech: &Speech,
) -> (Membership, Option<Ordinal>) {
    let leads = |place: &Ordinal| {
        let status = seen.get(place).and_then(Seen::status);
        status.is_some_and(|status| status.leader == Some(status.position.member))
    };
    let is_learner = |place: &Ordinal| {
        seen.get(place)
            .and_then(Seen::status)
            .is_some_and(|status| status.is_learner)
    };
    let mut readers: Vec<_> = connections
        .keys()
        .filter(|place| !is_learner(place))
        .copied()
        .collect();
    readers.sort_by_key(|place| (!leads(place), *place));
    let mut why = Vec::new();
    if let Speech::Mute(mute) = speech {
        why.push(mute.clone());
    }
    for place in readers {
        match connections[&place].membership().await {
            etcd::Membership::Known(known) if memory.cluster.is_none_or(|id| id == known.cluster) => {
                return (Membership::Known(known), Some(place));
            }
            etcd::Membership::Known(known) => why.push(format!(
                "{} answers as a member of another etcd cluster, {}",
                connections[&place].url(),
                known.cluster
            )),
            etcd::Membership::Unknown(unknown) => why.push(unknown.to_string()),
        }
    }
    (Membership::Unknown(why), None)
}

/// Whether a member complains of anything; those that cannot are asked about alarms always.
fn complains(seen: &BTreeMap<Ordinal, Seen>) -> bool {
    seen.values()
        .filter_map(Seen::status)
        .any(|status| !status.errors.is_empty() || !Feature::DetailedStatus.is_in(&status.version))
}
