//! Queries a member by HTTP at its peer URL, as other members do. It answers there as soon as it runs, also without a quorum,
//! while clients wait until a quorum has accepted the member. The answer is what this member knows locally.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::net::TcpStream;

use super::http::{self, Answer, GetError, VERSION_PATH, Versions};
use crate::id::{ClusterId, MemberId};
use crate::membership::{Member, Role};
use crate::url::PeerUrl;
use crate::version::Version;

/// The header with the cluster ID.
const CLUSTER: &str = "x-etcd-cluster-id";

/// What a member reports at its peer URL, from what it knows locally: the members may be old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The version that it runs.
    pub version: Version,
    /// The members as it knows them locally.
    pub members: BTreeMap<MemberId, Member>,
}

/// Queries the member at this peer URL, with this limit for all of it. An https URL is an error at once: members ask
/// one another for a certificate there. The error is for logs.
pub async fn query(peer: &PeerUrl, limit: Duration) -> Result<PeerReport, String> {
    if peer.is_secure() {
        return Err(format!("{peer} answers only members with a certificate"));
    }
    let report = async {
        let version = get(peer, VERSION_PATH).await.map_err(|error| error.to_string())?;
        let members = get(peer, "/members").await.map_err(|error| error.to_string())?;
        read(&members.head, &version.body, &members.body)
    };
    match tokio::time::timeout(limit, report).await {
        Ok(report) => report.map_err(|why| format!("{peer}: {why}")),
        Err(_) => Err(format!("{peer}: no answer within {limit:?}")),
    }
}

async fn get(peer: &PeerUrl, path: &str) -> Result<Answer, GetError> {
    let address = format!("{}:{}", peer.host(), peer.port());
    let stream = TcpStream::connect(&address).await?;
    http::get(stream, &address, path).await
}

/// A member in the answer to `/members`.
#[derive(Deserialize)]
struct Listed {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "clientURLs")]
    client_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

/// Reads the head and the body of `/members` and the body of `/version`. The cluster ID is a header.
fn read(head: &str, version: &str, members: &str) -> Result<PeerReport, String> {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let cluster = headers
        .find(|(name, _)| name.eq_ignore_ascii_case(CLUSTER))
        .ok_or("it does not say of which cluster it is")?;
    let versions = Versions::read(version)?;
    let listed: Vec<Listed> = serde_json::from_str(members).map_err(|error| error.to_string())?;
    let members = listed.iter().map(|listed| {
        let role = if listed.is_learner {
            Role::Learner
        } else {
            Role::Voter
        };
        let (peer_urls, client_urls) = (&listed.peer_urls, &listed.client_urls);
        let member = Member::parse(listed.id, &listed.name, peer_urls, client_urls, role)?;
        Ok((member.id, member))
    });
    Ok(PeerReport {
        cluster: cluster.1.trim().parse().map_err(|error| format!("{error}"))?,
        version: versions.server,
        members: members.collect::<Result<_, String>>()?,
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const MEMBERS: &str = r#"[{"id":10276657743932975437,"peerURLs":["http://c-0.c.ns.svc:2380"],"name":"c-0","clientURLs":["http://c-0.c.ns.svc:2379"]},{"id":17,"peerURLs":["http://c-1.c.ns.svc:2380"],"name":""}]"#;

    /// Answers each connection as etcd does.
    async fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> PeerUrl {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut question = [0; 512];
                let length = stream.read(&mut question).await.unwrap_or_default();
                let question = String::from_utf8_lossy(&question[..length]);
                let path = question.split(' ').nth(1).unwrap_or_default();
                let _ = stream.write_all(answer(path).as_bytes()).await;
            }
        });
        url.parse().expect("an address")
    }

    fn etcd(path: &str) -> String {
        let body = if path == "/members" {
            MEMBERS
        } else {
            r#"{"etcdserver":"3.3.27","etcdcluster":"3.3.0"}"#
        };
        format!("HTTP/1.0 200 OK\r\nX-Etcd-Cluster-Id: cdf818194e3a8c32\r\nContent-Length: 9\r\n\r\n{body}")
    }

    #[tokio::test]
    async fn a_member_reports_what_it_knows_locally() {
        let peer = serve(etcd).await;
        let report = query(&peer, Duration::from_secs(5)).await.expect("an answer");
        assert_eq!(report.version.to_string(), "3.3.27");
        assert_eq!(report.cluster.to_string(), "cdf818194e3a8c32");
        let members: Vec<_> = report.members.values().collect();
        assert_eq!(members.len(), 2);
        assert_eq!(members[0].id.to_string(), "11");
        assert!(!members[0].has_started(), "{:?}", members[0]);
        assert_eq!(members[1].id.get(), 10_276_657_743_932_975_437);
        assert!(
            members[1].has_started() && members[1].is_at(&"http://c-0.c.ns.svc:2380".parse().expect("it"))
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_not_etcd_s_is_an_error() {
        for (answer, words) in [
            ("HTTP/1.0 404 Not Found\r\n\r\n", "404"),
            ("", "does not answer in full"),
            ("HTTP/1.0 200 OK\r\n\r\n{}", "of which cluster"),
            ("HTTP/1.0 200 OK\r\nX-Etcd-Cluster-ID: 1\r\n\r\nx", "expected"),
        ] {
            let peer = serve(move |_| answer.to_owned()).await;
            let why = query(&peer, Duration::from_secs(5)).await.expect_err("no answer");
            assert!(why.contains(words), "{answer}: {why}");
        }
        let secure = "https://127.0.0.1:2380".parse().expect("an address");
        assert!(query(&secure, Duration::from_secs(5)).await.is_err());
    }
}
