//! Of several restores of one cluster: which of them has its turn.

use etcd_operator_api::cluster::{EtcdClusterStatus, RestoreProgress};
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::{EtcdCluster, EtcdRestore, EtcdRestoreStatus};
use etcd_operator_runtime::key::ObjectKey;
use kube::ResourceExt as _;

use crate::plan::{Phase, Reason};
use crate::reconcile::Deps;

/// Another restore of the same cluster that is under way, or was there before.
pub fn rival(restore: &EtcdRestore, key: &ObjectKey, deps: &Deps) -> Option<String> {
    let others = deps.restores.filter(&key.namespace, |_| true);
    let cluster = deps.clusters.get(&key.beside(&restore.spec.etcd_cluster.name));
    rival_among(restore, others.iter().map(|other| &**other), cluster.as_deref())
}

/// The same of these, which are in its namespace.
pub fn rival_among<'a>(
    restore: &EtcdRestore,
    others: impl Iterator<Item = &'a EtcdRestore>,
    cluster: Option<&EtcdCluster>,
) -> Option<String> {
    let others: Vec<_> = others.collect();
    let age = |one: &EtcdRestore| (one.creation_timestamp().map(|time| time.0), one.name_any());
    // One that is not there yet comes after all that are.
    let is_younger = |other: &EtcdRestore| restore.uid().is_none() || age(other) < age(restore);
    let is_rival = |other: &&EtcdRestore| {
        let status = other.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        other.spec.etcd_cluster.name == restore.spec.etcd_cluster.name
            && other.uid() != restore.uid()
            && other.metadata.deletion_timestamp.is_none()
            && !phase.is_some_and(Phase::is_over)
            && !status.is_some_and(cannot_begin)
            && is_younger(other)
    };
    let status = cluster.and_then(|cluster| cluster.status.as_ref());
    let progress = status.and_then(|status| status.restore.as_ref());
    let active =
        progress.filter(|progress| progress.is_active() && Some(&progress.uid) != restore.uid().as_ref());
    let carried_out = active.and_then(|progress| {
        let mut others = others.iter().copied();
        others.find(|other| {
            // One that goes does nothing any more, however long a finalizer holds it.
            other.uid().as_deref() == Some(progress.uid.as_str())
                && other.metadata.deletion_timestamp.is_none()
        })
    });
    if active.is_some_and(|progress| !can_be_replaced(progress, status, carried_out)) {
        return active.map(|progress| progress.name.clone());
    }
    let is_replaced =
        |other: &EtcdRestore| active.is_some_and(|progress| other.uid().as_deref() == Some(&*progress.uid));
    let waiting = others
        .iter()
        .copied()
        .find(|other| is_rival(other) && !is_replaced(other));
    waiting.map(kube::ResourceExt::name_any)
}

/// Whether another restore may take the place of this one: it is past its commit, so that there is nothing to go back to, and
/// cannot go on. That is for whoever deletes its `EtcdRestore` to say: the backup may come back that it waits for, or the
/// quorum; and once clients were let in, it must have lost its quorum. Only what serves something else than the backup, or
/// cannot be compared with it, is of no use to anybody.
pub fn can_be_replaced(
    progress: &RestoreProgress,
    cluster: Option<&EtcdClusterStatus>,
    restore: Option<&EtcdRestore>,
) -> bool {
    let conditions = cluster.and_then(|status| status.conditions.as_deref());
    let is_so = |type_| {
        let found = condition::find(conditions.unwrap_or_default(), type_);
        found.is_some_and(|condition| condition.status == Truth::True.as_str())
    };
    let reason = restore.and_then(|restore| reason(restore.status.as_ref()?));
    let stays_shut = [Reason::DataDiffer, Reason::NotComparable].map(Reason::as_str);
    progress.committed
        && match progress.phase.as_str() {
            "Stopping" | "Preparing" | "Committed" => restore.is_none(),
            "Serving" if !progress.open => {
                restore.is_none() || reason.is_some_and(|reason| stays_shut.contains(&reason))
            }
            "Serving" => {
                let is_lost = is_so(ConditionType::QuorumLost) || is_so(ConditionType::DataLost);
                restore.is_none() && is_lost
            }
            _ => false,
        }
}

/// Why it is where it is, in a word.
fn reason(status: &EtcdRestoreStatus) -> Option<&str> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    condition::find(conditions, ConditionType::Progressing)?
        .reason
        .as_deref()
}

/// Whether a restore waits for something that only its user can bring: another one need not wait for that, too.
fn cannot_begin(status: &EtcdRestoreStatus) -> bool {
    let in_line = [
        Reason::AnotherRestore,
        Reason::NotBegun,
        Reason::CreatingCluster,
        Reason::ClusterNotFormed,
    ]
    .map(Reason::as_str);
    status.phase.as_deref() == Some(Phase::Waiting.as_str())
        && reason(status).is_some_and(|reason| !in_line.contains(&reason))
}
