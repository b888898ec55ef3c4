//! Decides which of several restores of one cluster goes first.

use etcd_operator_api::cluster::{EtcdClusterStatus, RestoreProgress};
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::{EtcdCluster, EtcdRestore, EtcdRestoreStatus};
use etcd_operator_runtime::key::ObjectKey;
use kube::ResourceExt as _;

use crate::plan::{Phase, Reason};
use crate::reconcile::Deps;

/// The name of another restore of the same cluster that is in progress or was created earlier. Restores that have
/// ended, are being deleted, wait for the user, or may be replaced do not count.
pub fn competing_restore(restore: &EtcdRestore, key: &ObjectKey, deps: &Deps) -> Option<String> {
    let others = deps.restores.filter(&key.namespace, |_| true);
    let cluster = deps.clusters.get(&key.beside(&restore.spec.etcd_cluster.name));
    competing_restore_among(restore, others.iter().map(|other| &**other), cluster.as_deref())
}

/// Like [`competing_restore`], with the restores of the namespace as an argument.
pub fn competing_restore_among<'a>(
    restore: &EtcdRestore,
    others: impl Iterator<Item = &'a EtcdRestore>,
    cluster: Option<&EtcdCluster>,
) -> Option<String> {
    let others: Vec<_> = others.collect();
    let age = |one: &EtcdRestore| (one.creation_timestamp().map(|time| time.0), one.name_any());
    // A restore that does not exist yet (dry run) comes after all existing ones.
    let is_older = |other: &EtcdRestore| restore.uid().is_none() || age(other) < age(restore);
    let goes_first = |other: &&EtcdRestore| {
        let status = other.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        other.spec.etcd_cluster.name == restore.spec.etcd_cluster.name
            && other.uid() != restore.uid()
            && other.metadata.deletion_timestamp.is_none()
            && !phase.is_some_and(Phase::is_finished)
            && !status.is_some_and(waits_for_user)
            && is_older(other)
    };
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    let progress = status.and_then(|status| status.restore.as_ref());
    let active =
        progress.filter(|progress| progress.is_active() && Some(&progress.uid) != restore.uid().as_ref());
    let active_restore = active.and_then(|progress| {
        let mut others = others.iter().copied();
        others.find(|other| {
            // A restore that is being deleted no longer acts, even if a finalizer holds it.
            other.uid().as_deref() == Some(progress.uid.as_str())
                && other.metadata.deletion_timestamp.is_none()
        })
    });
    if active.is_some_and(|progress| !can_be_replaced(progress, status, active_restore)) {
        return active.map(|progress| progress.name.clone());
    }
    let is_replaced =
        |other: &EtcdRestore| active.is_some_and(|progress| other.uid().as_deref() == Some(&*progress.uid));
    let waiting = others
        .iter()
        .copied()
        .find(|other| goes_first(other) && !is_replaced(other));
    waiting.map(kube::ResourceExt::name_any)
}

/// Whether another restore may replace the one that the cluster carries out.
///
/// It must be past its commit point, so that there is no previous data to return to, and unable to continue. The user
/// decides that by deleting its `EtcdRestore`, because the missing backup or quorum may come back. Once clients have access,
/// the cluster must also have lost its quorum. Without a deletion, a restore can be replaced only if its data differs from
/// the backup or cannot be compared with it.
pub fn can_be_replaced(
    progress: &RestoreProgress,
    cluster: Option<&EtcdClusterStatus>,
    restore: Option<&EtcdRestore>,
) -> bool {
    let conditions = cluster.and_then(|status| status.conditions.as_deref());
    let is_true = |type_| {
        let found = condition::find(conditions.unwrap_or_default(), type_);
        found.is_some_and(|condition| condition.status == Truth::True.as_str())
    };
    let reason = restore.and_then(|restore| reason(restore.status.as_ref()?));
    let unusable_data = [Reason::DataDiffer, Reason::NotComparable].map(Reason::as_str);
    progress.committed
        && match progress.phase.as_str() {
            "Stopping" | "Preparing" | "Committed" => restore.is_none(),
            "Serving" if !progress.open => {
                restore.is_none() || reason.is_some_and(|reason| unusable_data.contains(&reason))
            }
            "Serving" => {
                let is_lost = is_true(ConditionType::QuorumLost) || is_true(ConditionType::DataLost);
                restore.is_none() && is_lost
            }
            _ => false,
        }
}

/// The reason of the Progressing condition.
fn reason(status: &EtcdRestoreStatus) -> Option<&str> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    condition::find(conditions, ConditionType::Progressing)?
        .reason
        .as_deref()
}

/// Whether a restore waits for an action of the user. Other restores of the cluster need not wait for it.
fn waits_for_user(status: &EtcdRestoreStatus) -> bool {
    let waits_by_itself = [
        Reason::AnotherRestore,
        Reason::NotBegun,
        Reason::CreatingCluster,
        Reason::FailedCreate,
        Reason::ClusterNotFormed,
    ]
    .map(Reason::as_str);
    status.phase.as_deref() == Some(Phase::Waiting.as_str())
        && reason(status).is_some_and(|reason| !waits_by_itself.contains(&reason))
}
