//! What a restore does by an order: bringing a backup onto a member's volume. The volume is the member crate's affair and
//! the store the job crate's; here they meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use etcd_operator_api::contract::{self, FetchProgress, FetchTask, JobOrder, JobOutcome, VERSION};
use etcd_operator_api::names::METRICS_PORT;
use etcd_operator_job::fetch::{Expected, fetch_expected};
use etcd_operator_job::object::Object;
use etcd_operator_job::{Failure, catalog, settings};
use etcd_operator_member::download::{self, NotPossible, Wanted};
use etcd_operator_member::serve;
use etcd_operator_member::volume::Volume;
use etcd_operator_store::Policy;

/// Brings the backup, unless the volume needs none: then neither the network nor a Secret is touched.
pub async fn fetch(order: &JobOrder, task: &FetchTask, pod_uid: &str) -> Result<JobOutcome, Failure> {
    let volume = Volume::at(&task.volume);
    let facts = &task.object;
    let wanted = Wanted {
        restore_uid: task.restore_uid.clone(),
        incarnation: task.incarnation,
        object_sha256: facts.sha256.clone(),
        snapshot_size: facts.snapshot_size,
        cluster_uid: task.cluster_uid.clone(),
    };
    let bytes = facts.snapshot_size;
    if let Some(why) = download::is_needless(&volume, &wanted).map_err(|error| failure(&error))? {
        tracing::info!("nothing is fetched: {why}");
        return Ok(JobOutcome::Fetched { bytes });
    }
    blocking(&volume, &wanted, download::begin).await?;
    let store = settings::store(&order.store, Policy::default()).await?;
    let keys = settings::keys(task.keys.as_deref())?;
    let name = &order.store.path;
    let manifest = catalog::manifest(&store, name).await?;
    let object = Object::open(&store, name, manifest.as_ref(), keys).await?;
    if object.stored_size() != facts.size {
        let message = format!(
            "the object {name} has {} bytes, and the one that was verified had {}",
            object.stored_size(),
            facts.size
        );
        return Err(Failure::lasting("VerificationFailed", message));
    }
    let expected = Expected {
        size: facts.snapshot_size,
        sha256: &facts.snapshot_sha256,
        object_sha256: &facts.sha256,
    };
    let done = Arc::new(AtomicU64::new(0));
    let file = volume.snapshot();
    let arrived = tokio::select! {
        arrived = fetch_expected(&object, Some(expected), &file, &done) => arrived?,
        never = tell(progress(task, pod_uid, Arc::clone(&done))) => match never {},
    };
    tracing::info!(bytes, there = arrived.resumed, "the snapshot is on the volume");
    blocking(&volume, &wanted, download::end).await?;
    Ok(JobOutcome::Fetched { bytes })
}

/// How far it is, for whoever asks.
fn progress(
    task: &FetchTask,
    pod_uid: &str,
    done: Arc<AtomicU64>,
) -> impl Fn() -> Vec<u8> + Send + Sync + 'static {
    let (restore_uid, total) = (task.restore_uid.clone(), task.object.snapshot_size);
    let pod_uid = pod_uid.to_owned();
    move || {
        contract::write(&FetchProgress {
            version: VERSION,
            restore_uid: restore_uid.clone(),
            pod_uid: pod_uid.clone(),
            bytes: done.load(Ordering::Relaxed),
            total,
        })
    }
}

/// Tells it as long as there is something to tell. That nobody can ask hinders no download.
async fn tell(progress: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> std::convert::Infallible {
    match serve::listen(METRICS_PORT).await {
        Ok(listener) => serve::answer_with(listener, serve::FETCH, progress).await,
        Err(error) => tracing::warn!(%error, "nobody can be told how far the download is"),
    }
    std::future::pending().await
}

/// Disks take their time, and whoever asks the process to end is heard meanwhile.
async fn blocking(
    volume: &Volume,
    wanted: &Wanted,
    work: fn(&Volume, &Wanted) -> Result<(), NotPossible>,
) -> Result<(), Failure> {
    let (volume, wanted) = (volume.clone(), wanted.clone());
    let done = tokio::task::spawn_blocking(move || work(&volume, &wanted)).await;
    done.map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))?
        .map_err(|error| failure(&error))
}

fn failure(error: &NotPossible) -> Failure {
    let message = error.to_string();
    match error {
        NotPossible::NoRoom(_) => Failure::lasting("NoRoom", message),
        NotPossible::Unreadable(_) | NotPossible::Unwritable(_) => Failure::passing("File", message),
    }
}
