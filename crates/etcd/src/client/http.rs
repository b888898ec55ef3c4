//! What members tell by HTTP alone: one GET over a connection of its own, with a bounded answer, and the page `/version`.

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::Cause;
use crate::version::Version;

/// The most that is read of an answer.
const MOST: u64 = 1 << 18;
/// Where a member tells its version and the cluster's.
pub(super) const VERSION_PATH: &str = "/version";
/// What a member tells for the cluster's version before the members have agreed on one.
const NOT_DECIDED: &str = "not_decided";

/// An answer with status 200.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: String,
}

/// Why there is no such answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GetError {
    #[error(transparent)]
    Connection(#[from] std::io::Error),
    #[error("it does not answer in full")]
    Incomplete,
    #[error("it answers {path} with '{status}'")]
    Status { path: String, status: String },
}

impl From<GetError> for Cause {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Connection(_) | GetError::Incomplete => Self::Lost(error.to_string()),
            GetError::Status { .. } => Self::Malformed(error.to_string()),
        }
    }
}

/// Sends a GET and reads the answer up to [`MOST`] bytes, without a limit of time. An error unless the status is 200.
/// HTTP/1.0 ends the answer with the connection, so that its parts need no reading.
pub(super) async fn get(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: &str,
    path: &str,
) -> Result<Answer, GetError> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(GetError::Incomplete)?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(GetError::Status {
            path: path.to_owned(),
            status: status.to_owned(),
        });
    }
    Ok(Answer {
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// What a member tells at [`VERSION_PATH`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Versions {
    /// The version that the member runs.
    pub(super) server: Version,
    /// The cluster version, with patch 0. None before the members have agreed on one.
    pub(super) cluster: Option<Version>,
}

impl Versions {
    /// Parses the page. An error unless both versions can be parsed; that of the cluster may be undecided.
    pub(super) fn read(body: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Page {
            etcdserver: String,
            etcdcluster: String,
        }
        let page: Page = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let version = |text: &str| text.parse::<Version>().map_err(|error| error.to_string());
        Ok(Self {
            server: version(&page.etcdserver)?,
            cluster: match page.etcdcluster.as_str() {
                NOT_DECIDED => None,
                text => Some(version(text)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undecided_cluster_version_is_none_and_anything_else_a_version_or_an_error() {
        let read = |server: &str, cluster: &str| {
            let page = format!(r#"{{"etcdserver":"{server}","etcdcluster":"{cluster}","storage":"3.6.0"}}"#);
            let versions = Versions::read(&page)?;
            Ok::<_, String>((
                versions.server.to_string(),
                versions.cluster.map(|cluster| cluster.to_string()),
            ))
        };
        assert_eq!(
            read("3.6.16", "3.5.0"),
            Ok(("3.6.16".to_owned(), Some("3.5.0".to_owned())))
        );
        assert_eq!(read("3.2.25", "not_decided"), Ok(("3.2.25".to_owned(), None)));
        assert!(read("3.6.16", "").is_err());
        assert!(read("unknown", "3.5.0").is_err());
        assert!(Versions::read(r#"{"etcdserver":"3.6.16"}"#).is_err());
        assert!(Versions::read("404 page not found").is_err());
    }
}
