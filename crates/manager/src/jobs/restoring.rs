//! What a restore does by an order: bringing a backup onto a member's volume. The volume is the member crate's affair and
//! the store the job crate's; here they meet.

use etcd_operator_api::contract::{FetchTask, JobOrder, JobOutcome};
use etcd_operator_job::fetch::{Expected, fetch_expected};
use etcd_operator_job::object::Object;
use etcd_operator_job::{Failure, catalog, settings};
use etcd_operator_member::download::{self, NotPossible, Wanted};
use etcd_operator_member::volume::Volume;
use etcd_operator_store::Policy;

/// Brings the backup, unless the volume needs none: then neither the network nor a Secret is touched.
pub async fn fetch(order: &JobOrder, task: &FetchTask) -> Result<JobOutcome, Failure> {
    let volume = Volume::at(&task.volume);
    let facts = &task.object;
    let wanted = Wanted {
        restore_uid: task.restore_uid.clone(),
        incarnation: task.incarnation,
        object_sha256: facts.sha256.clone(),
        snapshot_size: facts.snapshot_size,
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
    };
    let (_, there) = fetch_expected(&object, Some(expected), &volume.snapshot()).await?;
    tracing::info!(bytes, there, "the snapshot is on the volume");
    blocking(&volume, &wanted, download::end).await?;
    Ok(JobOutcome::Fetched { bytes })
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
