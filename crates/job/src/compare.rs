//! Compares what a cluster serves with what a backup holds: a digest over every key at the backup's revision.

use etcd_operator_api::contract::{CompareTask, JobOutcome};
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::id::{ClusterId, Revision};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_snapshot::content::Digest;

use crate::failure::Failure;
use crate::live_digest::{PageLimits, read_digest};
use crate::members;
use crate::settings::{self, EtcdAccess};

/// The timeout of one page of keys.
const PAGE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Compares with the first member whose keys can all be read. Another cluster, a compacted revision and different data
/// are permanent failures.
pub async fn compare(task: &CompareTask) -> Result<JobOutcome, Failure> {
    let access = settings::read_etcd_access(&task.source)?;
    let cluster: ClusterId = task
        .cluster_id
        .parse()
        .map_err(|error| Failure::bad_order(format!("clusterID: {error}")))?;
    let mut last = None;
    for endpoint in &access.endpoints {
        match read(&access, endpoint, cluster, Revision(task.revision)).await {
            Ok((at, found)) => return compare_digest(task, at, found),
            Err(ReadError::OtherCluster(found)) => {
                let url = &endpoint.url;
                let message =
                    format!("{url} belongs to cluster {found}, but the order names cluster {cluster}");
                return Err(Failure::permanent("OtherCluster", message));
            }
            Err(ReadError::Failed(error)) if error.rejection() == Some(&Rejection::Compacted) => {
                // The revision is compacted on every member, or soon will be, so a retry does not help.
                let message = format!(
                    "revision {} was compacted before it could be compared: {error}",
                    task.revision
                );
                return Err(Failure::permanent("Compacted", message));
            }
            Err(ReadError::Failed(error)) => {
                tracing::warn!(endpoint = %endpoint.url, %error, "the keys of this member cannot be read");
                last = Some(error);
            }
        }
    }
    Err(match last {
        Some(error) => Failure {
            is_retriable: true,
            ..Failure::from(error)
        },
        None => Failure::bad_order("etcdEndpoints is empty"),
    })
}

fn compare_digest(task: &CompareTask, at: Revision, found: Digest) -> Result<JobOutcome, Failure> {
    let digest = found.to_string();
    if digest == task.digest {
        return Ok(JobOutcome::Compared {
            revision: at.0,
            keys: found.keys(),
            digest,
        });
    }
    let message = format!(
        "at revision {} the cluster serves keys with digest {digest}, but the backup has digest {}",
        at.0, task.digest
    );
    Err(Failure::permanent("DataDiffer", message))
}

/// Why the keys of a member could not be read.
enum ReadError {
    /// The member belongs to another cluster.
    OtherCluster(ClusterId),
    /// A call failed.
    Failed(Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The digest of the keys that a member serves, and the revision at which they were read: the wanted one, or the
/// member's own if that is lower.
async fn read(
    access: &EtcdAccess,
    endpoint: &Endpoint,
    cluster: ClusterId,
    wanted: Revision,
) -> Result<(Revision, Digest), ReadError> {
    let endpoint = Endpoint {
        limits: Limits {
            call: PAGE_TIMEOUT,
            ..endpoint.limits
        },
        ..endpoint.clone()
    };
    let client = members::connect(access, &endpoint).await?;
    // After this linearizable read the member has applied every write that was committed before.
    let position = client.position().await?;
    if position.cluster != cluster {
        return Err(ReadError::OtherCluster(position.cluster));
    }
    // Later writes are excluded. A cluster below the wanted revision has no writes since its restore: all its keys count, and
    // the digest shows whether any are missing.
    let at = wanted.min(position.revision);
    Ok((at, read_digest(&client, at, PageLimits::conservative()).await?))
}
