//! Deleting backups: what a policy no longer keeps, or all that an `EtcdBackup` made. Another's are never touched: the
//! manifest decides whose one is.

use etcd_operator_api::contract::{JobOrder, JobOutcome, Skipped};
use etcd_operator_api::retention::{self, Keep};
use etcd_operator_store::Store;

use crate::catalog::{self, Catalog, Reach};
use crate::clock;
use crate::failure::Failure;
use crate::leftovers::{self, Actor, Deletion};
use crate::list;

/// Deletes what is not kept of the backups that the `EtcdBackup` of the order made.
pub async fn prune(store: &Store, order: &JobOrder, keep: &Keep) -> Result<JobOutcome, Failure> {
    let Some(policy) = keep.policy() else {
        let zone = keep.zone.as_deref().unwrap_or_default();
        let message = format!("the time zone {zone:?} is not known here, so nothing was deleted");
        return Err(Failure::order(message));
    };
    let catalog = swept(store, order).await?;
    let all = list::own(store, &catalog, &order.owner_uid).await?;
    let gone = retention::prune(&all, &order.owner_uid, &policy, clock::now());
    go(store, order, &gone, all.len()).await
}

/// Deletes every backup that the `EtcdBackup` of the order made.
pub async fn erase(store: &Store, order: &JobOrder) -> Result<JobOutcome, Failure> {
    let catalog = swept(store, order).await?;
    // Also those whose object somebody has deleted: what is left of them goes, too.
    let with_manifest = catalog.iter().filter(|(_, entry)| entry.manifest.is_some());
    let all: Vec<&str> = with_manifest.map(|(object, _)| object.as_str()).collect();
    let own = list::own(store, &catalog, &order.owner_uid).await?;
    go(store, order, &all, own.len()).await
}

fn actor(order: &JobOrder) -> Actor<'_> {
    Actor {
        owner: &order.owner_uid,
        run: &order.run,
        now: clock::now(),
    }
}

/// What is there once leftovers are gone.
async fn swept(store: &Store, order: &JobOrder) -> Result<Catalog, Failure> {
    let mut catalog = catalog::read(store, Reach::Path(&order.store.path)).await?;
    leftovers::sweep(store, &mut catalog, actor(order)).await?;
    Ok(catalog)
}

/// Deletes one after the other, of `good` that count. One that stays does not hold up the others.
async fn go(store: &Store, order: &JobOrder, objects: &[&str], good: usize) -> Result<JobOutcome, Failure> {
    let (mut deleted, mut skipped) = (0, Vec::new());
    for object in objects {
        match leftovers::delete(store, object, actor(order)).await? {
            Deletion::Done => {
                deleted += 1;
                tracing::info!(object, "deleted");
            }
            Deletion::NotOurs => {}
            Deletion::Kept(why, message) => {
                tracing::warn!(object, why, message, "not deleted");
                skipped.push(Skipped {
                    object: (*object).to_owned(),
                    why: why.to_owned(),
                });
            }
        }
    }
    Ok(JobOutcome::Pruned {
        deleted,
        kept: (good as u64).saturating_sub(deleted),
        skipped,
        more_skipped: 0,
    })
}
