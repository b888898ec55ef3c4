//! Downloads a backup onto a member's volume for a restore. Combines the member crate (volume) and the job crate (store).

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

/// Downloads the backup. Does nothing if the volume does not need it; then neither the network nor a Secret is used.
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
    if let Some(why) = download::is_needless(&volume, &wanted).map_err(|error| to_failure(&error))? {
        tracing::info!("no download needed: {why}");
        return Ok(JobOutcome::Fetched { bytes });
    }
    run_blocking(&volume, &wanted, download::begin).await?;
    let store = settings::connect_store(&order.store, Policy::default()).await?;
    let keys = settings::read_keys(task.keys.as_deref())?;
    let name = &order.store.path;
    let manifest = catalog::read_manifest(&store, name).await?;
    let object = Object::open(&store, name, manifest.as_ref(), keys).await?;
    if object.stored_size() != facts.size {
        let message = format!(
            "the object {name} has {} bytes, but the verified one had {} bytes",
            object.stored_size(),
            facts.size
        );
        return Err(Failure::permanent("VerificationFailed", message));
    }
    let expected = Expected {
        size: facts.snapshot_size,
        sha256: &facts.snapshot_sha256,
        object_sha256: &facts.sha256,
    };
    let downloaded = Arc::new(AtomicU64::new(0));
    let file = volume.snapshot();
    let arrived = tokio::select! {
        arrived = fetch_expected(&object, Some(expected), &file, &downloaded) => arrived?,
        never = serve_progress(progress_report(task, pod_uid, Arc::clone(&downloaded))) => match never {},
    };
    tracing::info!(
        bytes,
        there = arrived.resumed,
        "downloaded the snapshot to the volume"
    );
    run_blocking(&volume, &wanted, download::end).await?;
    Ok(JobOutcome::Fetched { bytes })
}

/// Builds the report about the progress of the download.
fn progress_report(
    task: &FetchTask,
    pod_uid: &str,
    downloaded: Arc<AtomicU64>,
) -> impl Fn() -> Vec<u8> + Send + Sync + 'static {
    let (restore_uid, total) = (task.restore_uid.clone(), task.object.snapshot_size);
    let pod_uid = pod_uid.to_owned();
    move || {
        contract::write(&FetchProgress {
            version: VERSION,
            restore_uid: restore_uid.clone(),
            pod_uid: pod_uid.clone(),
            bytes: downloaded.load(Ordering::Relaxed),
            total,
        })
    }
}

/// Serves the progress report. A failure to listen does not affect the download.
async fn serve_progress(progress: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> std::convert::Infallible {
    match serve::listen(METRICS_PORT).await {
        Ok(listener) => serve::answer_with(listener, serve::FETCH, progress).await,
        Err(error) => tracing::warn!(%error, "cannot serve the progress of the download"),
    }
    std::future::pending().await
}

/// Runs slow disk operations on a blocking thread, so that the process still reacts to signals.
async fn run_blocking(
    volume: &Volume,
    wanted: &Wanted,
    work: fn(&Volume, &Wanted) -> Result<(), NotPossible>,
) -> Result<(), Failure> {
    let (volume, wanted) = (volume.clone(), wanted.clone());
    let done = tokio::task::spawn_blocking(move || work(&volume, &wanted)).await;
    done.map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))?
        .map_err(|error| to_failure(&error))
}

/// The Job's failure: permanent if the volume has no room, else retriable.
fn to_failure(error: &NotPossible) -> Failure {
    let message = error.to_string();
    match error {
        NotPossible::NoRoom(_) => Failure::permanent("NoRoom", message),
        NotPossible::Unreadable(_) | NotPossible::Unwritable(_) => Failure::retriable("File", message),
    }
}
