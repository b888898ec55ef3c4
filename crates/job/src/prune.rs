//! Deletes backups: those that a retention policy no longer keeps, or all of an `EtcdBackup`. The manifest names the owner;
//! backups of other owners are never touched.

use std::collections::BTreeSet;

use etcd_operator_api::contract::{JobOrder, JobOutcome, Skipped};
use etcd_operator_api::retention::{self, Keep};
use etcd_operator_store::Store;

use crate::catalog::{self, Catalog, NameFilter};
use crate::clock;
use crate::failure::Failure;
use crate::leftovers::{self, Deletion, RunIdentity};
use crate::list;

/// Deletes the backups of the order's `EtcdBackup` that the retention policy no longer keeps. If the time zone of `keep` is
/// unknown, it fails and deletes nothing.
///
/// Two listings must agree: a newer backup, because of which an older one is surplus, may disappear after the first one.
pub async fn prune(store: &Store, order: &JobOrder, keep: &Keep) -> Result<JobOutcome, Failure> {
    let Some(policy) = keep.policy() else {
        let zone = keep.zone.as_deref().unwrap_or_default();
        let message = format!("the time zone {zone:?} is unknown; nothing was deleted");
        return Err(Failure::bad_order(message));
    };
    let catalog = sweep_and_list(store, order, identity(order)).await?;
    let listed = list::own_backups(store, &catalog, &order.owner_uid).await?;
    let first: BTreeSet<&str> = retention::prune(&listed, &order.owner_uid, &policy, clock::now())
        .into_iter()
        .collect();
    if first.is_empty() {
        return delete_objects(store, order, &[], listed.len()).await;
    }
    let catalog = catalog::read(store, NameFilter::Path(&order.store.path)).await?;
    let all = list::own_backups(store, &catalog, &order.owner_uid).await?;
    let mut expired = retention::prune(&all, &order.owner_uid, &policy, clock::now());
    expired.retain(|object| first.contains(object));
    delete_objects(store, order, &expired, all.len()).await
}

/// Deletes every backup of the order's `EtcdBackup`, and what its interrupted runs left behind. A backup that the store refuses
/// to delete is reported as skipped.
pub async fn erase(store: &Store, order: &JobOrder) -> Result<JobOutcome, Failure> {
    let last = RunIdentity {
        is_last: true,
        ..identity(order)
    };
    let catalog = sweep_and_list(store, order, last).await?;
    // Including manifests whose object no longer exists.
    let with_manifest = catalog.iter().filter(|(_, entry)| entry.manifest.is_some());
    let all: Vec<&str> = with_manifest.map(|(object, _)| object.as_str()).collect();
    let own = list::own_backups(store, &catalog, &order.owner_uid).await?;
    delete_objects(store, order, &all, own.len()).await
}

fn identity(order: &JobOrder) -> RunIdentity<'_> {
    RunIdentity {
        owner: &order.owner_uid,
        run: &order.run,
        now: clock::now(),
        is_last: false,
    }
}

/// Cleans up after interrupted runs, and returns what remains at the path.
async fn sweep_and_list(
    store: &Store,
    order: &JobOrder,
    identity: RunIdentity<'_>,
) -> Result<Catalog, Failure> {
    let mut catalog = catalog::read(store, NameFilter::Path(&order.store.path)).await?;
    leftovers::sweep(store, &mut catalog, identity).await?;
    Ok(catalog)
}

/// Deletes objects one after the other; `total` backups count before. An object that cannot be deleted does not stop
/// the others, and one of another owner is left alone.
async fn delete_objects(
    store: &Store,
    order: &JobOrder,
    objects: &[&str],
    total: usize,
) -> Result<JobOutcome, Failure> {
    let (mut deleted, mut skipped) = (0, Vec::new());
    for object in objects {
        match leftovers::delete(store, object, identity(order)).await? {
            Deletion::Done => {
                deleted += 1;
                tracing::info!(object, "deleted a backup");
            }
            Deletion::NotOwned => {}
            Deletion::Kept(why, message) => {
                tracing::warn!(object, why, message, "cannot delete a backup");
                skipped.push(Skipped {
                    object: (*object).to_owned(),
                    why: why.to_owned(),
                });
            }
        }
    }
    Ok(JobOutcome::Pruned {
        deleted,
        kept: (total as u64).saturating_sub(deleted),
        skipped,
        more_skipped: 0,
    })
}
