//! Whether a cluster serves what a backup holds: every key as it was at the backup's revision, by a digest.

use etcd_operator_api::contract::{CompareTask, JobOutcome};
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::id::{ClusterId, Revision};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_snapshot::content::Digest;

use crate::failure::Failure;
use crate::members;
use crate::served::{Pages, digest};
use crate::settings::{self, Way};

/// How long a page may take.
const PAGE: std::time::Duration = std::time::Duration::from_secs(30);

/// Compares with the first member that can be read to the end.
pub async fn compare(task: &CompareTask) -> Result<JobOutcome, Failure> {
    let way = settings::way(&task.source)?;
    let cluster: ClusterId = task
        .cluster_id
        .parse()
        .map_err(|error| Failure::order(format!("clusterID: {error}")))?;
    let mut last = None;
    for endpoint in &way.endpoints {
        match read(&way, endpoint, cluster, Revision(task.revision)).await {
            Ok((at, found)) => return judge(task, at, found),
            Err(Unread::Other(found)) => {
                let url = &endpoint.url;
                let message = format!("{url} is of cluster {found}, and {cluster} was to be compared");
                return Err(Failure::lasting("OtherCluster", message));
            }
            Err(Unread::Failed(error)) if error.rejection() == Some(&Rejection::Compacted) => {
                // So it is on every other member, now or in a moment, and for good.
                let message = format!("the revision {} was compacted meanwhile: {error}", task.revision);
                return Err(Failure::lasting("Compacted", message));
            }
            Err(Unread::Failed(error)) => {
                tracing::warn!(endpoint = %endpoint.url, %error, "this member cannot be read to the end");
                last = Some(error);
            }
        }
    }
    Err(match last {
        Some(error) => Failure {
            is_retriable: true,
            ..Failure::from(error)
        },
        None => Failure::order("etcdEndpoints is empty"),
    })
}

fn judge(task: &CompareTask, at: Revision, found: Digest) -> Result<JobOutcome, Failure> {
    let digest = found.to_string();
    if digest == task.digest {
        return Ok(JobOutcome::Compared {
            revision: at.0,
            keys: found.keys(),
            digest,
        });
    }
    let message = format!(
        "at revision {} the cluster serves keys with digest {digest}, and the backup has {}",
        at.0, task.digest
    );
    Err(Failure::lasting("DataDiffer", message))
}

/// Why a member was not read.
enum Unread {
    /// It is of another cluster.
    Other(ClusterId),
    /// It does not answer, or no longer.
    Failed(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

async fn read(
    way: &Way,
    endpoint: &Endpoint,
    cluster: ClusterId,
    wanted: Revision,
) -> Result<(Revision, Digest), Unread> {
    let endpoint = Endpoint {
        limits: Limits {
            call: PAGE,
            ..endpoint.limits
        },
        ..endpoint.clone()
    };
    let client = members::connect(way, &endpoint).await?;
    // It has caught up with all that was agreed before, and with the revision that is read from here on.
    let position = client.position().await?;
    if position.cluster != cluster {
        return Err(Unread::Other(position.cluster));
    }
    // What was written since then is not looked at. A cluster that is not yet there has written nothing since it was
    // restored: all that it serves counts, and whether that is everything the digest tells.
    let at = wanted.min(position.revision);
    Ok((at, digest(&client, at, Pages::careful()).await?))
}
