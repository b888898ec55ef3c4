//! What the network must say before a first start: that the member's own name leads to it, and that those it joins know
//! it as one that has never started. Nothing is changed anywhere.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etcd_operator_etcd::client::{Client, peer_http};
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::membership::{Member, Membership};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::Port as _;
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::certificates::Certificates;

/// For one name, and for one connection.
const LIMIT: Duration = Duration::from_secs(2);

/// How the other members serve clients.
#[derive(Clone, Debug)]
pub struct Door {
    /// Whether they speak TLS.
    pub is_secure: bool,
    /// At which port.
    pub port: u16,
    /// With which certificates they are asked.
    pub certificates: Certificates,
}

/// Whether the member's own peer URL resolves to this pod, if its address is known, and something listens there.
/// Otherwise other members could not reach it. The error says why not.
pub async fn is_reachable(own: &PeerUrl, pod: Option<IpAddr>) -> Result<(), String> {
    let addresses = resolve(own).await?;
    if let Some(pod) = pod.filter(|pod| !addresses.iter().any(|address| address.ip() == *pod)) {
        let found: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        return Err(format!(
            "{} leads to {}, not yet to this pod's {pod}",
            own.host(),
            found.join(", ")
        ));
    }
    match timeout(LIMIT, TcpStream::connect(addresses.as_slice())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{own} does not answer: {error}")),
        Err(_) => Err(format!("{own} does not answer within {LIMIT:?}")),
    }
}

/// The addresses of a URL's host. An error also if it has none yet.
async fn resolve(url: &PeerUrl) -> Result<Vec<SocketAddr>, String> {
    let host = format!("{}:{}", url.host(), url.port());
    match timeout(LIMIT, lookup_host(&host)).await {
        Ok(Ok(found)) => {
            let found: Vec<_> = found.collect();
            if found.is_empty() {
                return Err(format!("{} has no address yet", url.host()));
            }
            Ok(found)
        }
        Ok(Err(error)) => Err(format!("{} does not resolve: {error}", url.host())),
        Err(_) => Err(format!("{} does not resolve within {LIMIT:?}", url.host())),
    }
}

/// What the others say of a member that is about to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has a place and never took it.
    Unstarted,
    /// It must not start: why.
    No(String),
    /// Nobody can tell yet: why.
    Unknown(String),
}

/// Asks the other members, one after the other, whether this one is expected and has never started. The first that can
/// tell decides; `Unknown` if none can.
pub async fn ask(first: &First, own_name: &str, who: (ClusterId, MemberId), door: &Door) -> Answer {
    let mut reasons = Vec::new();
    let own = first
        .members
        .iter()
        .find(|(name, _)| name == own_name)
        .map(|(_, url)| url);
    for (_, peer) in first.members.iter().filter(|(name, _)| name != own_name) {
        match ask_one(peer, who, own, door).await {
            Answer::Unknown(why) => reasons.push(why),
            told => return told,
        }
    }
    Answer::Unknown(reasons.join("; "))
}

/// Asks one member, by a linearizable read if it has a quorum. The cluster that answers must be the one of the permit.
async fn ask_one(peer: &PeerUrl, who: (ClusterId, MemberId), own: Option<&PeerUrl>, door: &Door) -> Answer {
    let scheme = if door.is_secure { "https" } else { "http" };
    let url: ClientUrl = match format!("{scheme}://{}:{}", peer.host(), door.port).parse() {
        Ok(url) => url,
        Err(error) => return Answer::Unknown(format!("{error}")),
    };
    let tls = match door.certificates.read() {
        Ok(tls) => tls,
        Err(why) => return Answer::Unknown(why),
    };
    let endpoint = Endpoint {
        url,
        tls,
        limits: Limits::default(),
    };
    let why = match Client::connect(&endpoint).await {
        Ok(client) => match client.membership().await {
            Membership::Known(known) if known.cluster != who.0 => {
                return Answer::No(format!(
                    "{} is of cluster {}, not of {}",
                    endpoint.url, known.cluster, who.0
                ));
            }
            Membership::Known(known) => return judge(known.members.get(&who.1), who.1, own),
            Membership::Unknown(why) => {
                if let Some(listed) = without_quorum(&client, who.0).await {
                    return judge(listed.get(&who.1), who.1, own);
                }
                why.to_string()
            }
        },
        Err(error) => error.to_string(),
    };
    match unserved(peer, who.0).await {
        Some(listed) => judge(listed.get(&who.1), who.1, own),
        None => Answer::Unknown(why),
    }
}

/// The members as this one knows them locally, if its version has no learners: a member joins as a voter there, and
/// without it there may be no quorum for a linearizable read. `None` since 3.4 or if it is of another cluster.
async fn without_quorum(client: &Client, cluster: ClusterId) -> Option<BTreeMap<MemberId, Member>> {
    let version = client.status().await.ok()?.version;
    if Feature::Learners.is_in(&version) {
        return None;
    }
    client.listed().await.ok()?.in_cluster(cluster)
}

/// The same at a peer URL, where a member answers also before it has a quorum. One that has restarted serves no clients
/// until then.
async fn unserved(peer: &PeerUrl, cluster: ClusterId) -> Option<BTreeMap<MemberId, Member>> {
    let report = peer_http::query(peer, LIMIT).await.ok()?;
    let is_old = report.cluster == cluster && !Feature::Learners.is_in(&report.version);
    is_old.then_some(report.members)
}

/// Whether this member may start without data: it is a member at its own peer URL, and has never started.
fn judge(member: Option<&Member>, id: MemberId, own: Option<&PeerUrl>) -> Answer {
    let Some(member) = member else {
        return Answer::No(format!("member {id} is not among the members"));
    };
    if member.has_started() {
        return Answer::No(format!(
            "member {id} has started before, and this disk has nothing of that"
        ));
    }
    match own {
        Some(own) if !member.is_at(own) => Answer::No(format!("member {id} is not expected at {own}")),
        _ => Answer::Unstarted,
    }
}
