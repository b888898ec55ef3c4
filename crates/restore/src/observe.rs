//! Observes one `EtcdRestore`: its cluster, its backup, its Jobs and their pods, mostly from the informers' stores. Reads
//! only.

mod cluster;
mod competing_restores;
mod jobs;

use std::collections::BTreeMap;

use etcd_operator_api::crd;
use etcd_operator_api::names::{ANNOTATION_COMMITTED, ANNOTATION_SCOPE, LABEL_RESTORE};
use etcd_operator_api::reference::Sight;
use etcd_operator_api::{EtcdRestore, GROUP};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt as _};

use crate::desired::{BackupRef, Desired};
use crate::observed_state::{ForeignJob, ObservedCluster, ObservedRestore};
use crate::persisted_state::PersistedState;
use crate::plan::{Phase, select_source};
use crate::reconcile::Deps;

pub use cluster::find_cluster;
#[cfg(test)]
pub use cluster::observe_cluster;
use competing_restores::competing_restore;
pub use competing_restores::{can_be_replaced, competing_restore_among};
use jobs::observe_job;

/// Longest message about a pod or a cluster.
const MAX_MESSAGE_CHARS: usize = 200;

/// Observes one restore by the informers' stores. Only a PVC with the backup is read from the API server.
pub async fn observe(restore: &EtcdRestore, desired: Desired, deps: &Deps) -> Result<ObservedRestore, Error> {
    let key = ObjectKey::of(restore);
    let uid = restore.uid().unwrap_or_default();
    let status = restore.status.as_ref();
    let is_edited =
        status.is_some_and(|status| crd::is_edited(status.observed_generation, restore.metadata.generation));
    let commit_record = restore.annotations().get(ANNOTATION_COMMITTED);
    let state = PersistedState::read(status).with_commit_record(commit_record.map(String::as_str), &uid);
    // A selected backup stays selected until the user edits the spec, so that a later backup is never restored by itself.
    let selecting_phases = [Phase::Verifying, Phase::BackingUp, Phase::Failed].map(Phase::as_str);
    let is_in_progress = Phase::is_in_progress(&state.phase);
    let keeps_selection = is_in_progress || (selecting_phases.contains(&state.phase.as_str()) && !is_edited);
    let backup = match &desired.backup {
        BackupRef::Backup { name, .. } => deps.backups.get(&key.beside(name)),
        BackupRef::Object(_) | BackupRef::Refused(_) => None,
    };
    let selected_before = state.object.as_deref().filter(|_| keeps_selection);
    let source = select_source(&desired, backup.as_deref(), selected_before);
    let pvc = source.as_ref().ok().and_then(|source| source.location.claim());
    let is_pvc_shared = match pvc {
        Some(pvc) => read_pvc_sharing(&key.beside(pvc), deps).await?,
        None => None,
    };
    let is_ours = |labels: &BTreeMap<String, String>| labels.get(LABEL_RESTORE) == Some(&key.name);
    let mut jobs = deps.jobs.belonging_to(&key);
    jobs.retain(|job| is_ours(job.labels()));
    let (owned, foreign_job): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_owned(&**job, &uid));
    let mut pods = deps.pods.belonging_to(&key);
    pods.retain(|pod| is_ours(pod.labels()));
    Ok(ObservedRestore {
        now: deps.clock.now(),
        cluster: observe_desired_cluster(&desired, &key, deps),
        is_cluster_missing: deps.clusters.sight(&key.beside(&desired.cluster)) == Sight::Missing,
        scope: restore.annotations().get(ANNOTATION_SCOPE).cloned(),
        competing_restore: competing_restore(restore, &key, deps),
        source,
        is_pvc_shared,
        jobs: owned
            .iter()
            .map(|job| observe_job(job, pods.iter().map(|pod| &**pod), deps.clock.now()))
            .collect(),
        foreign_job: foreign_job
            .first()
            .map(|job| observe_foreign_job(job, &key.name, &uid)),
        operator_image: deps.operator_image.clone(),
        name: key.name.clone(),
        is_edited,
        state,
        uid,
        desired,
    })
}

/// Whether the `EtcdRestore` with this UID is the controller of an object.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// A Job of another owner that stands in the way of the `EtcdRestore` with this name and UID.
///
/// The garbage collector deletes it if an earlier `EtcdRestore` of the name owned it. That takes some seconds after a
/// restore was deleted and created again.
pub fn observe_foreign_job(job: &Job, restore: &str, uid: &str) -> ForeignJob {
    let owners = job.owner_references();
    let is_earlier = |owner: &OwnerReference| {
        owner.kind == "EtcdRestore"
            && owner.api_version.starts_with(GROUP)
            && owner.name == restore
            && owner.uid != uid
    };
    ForeignJob {
        name: job.name_any(),
        is_left_over: job.metadata.deletion_timestamp.is_some()
            || (!owners.is_empty() && owners.iter().all(is_earlier)),
    }
}

/// Whether several nodes can mount a PVC at the same time; `None` if the PVC does not exist.
async fn read_pvc_sharing(pvc: &ObjectKey, deps: &Deps) -> Result<Option<bool>, Error> {
    let pvc = deps.applier.read::<PersistentVolumeClaim>(pvc).await?;
    Ok(pvc.and_then(is_multi_node))
}

/// Whether the access modes of a PVC allow several nodes; `None` if it has none.
pub fn is_multi_node(pvc: PersistentVolumeClaim) -> Option<bool> {
    let modes = pvc.spec?.access_modes?;
    let shared = ["ReadWriteMany", "ReadOnlyMany"];
    Some(modes.iter().any(|mode| shared.contains(&mode.as_str())))
}

fn observe_desired_cluster(
    desired: &Desired,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<ObservedCluster, String> {
    let found = deps.clusters.get(&key.beside(&desired.cluster));
    find_cluster(&desired.cluster, found.as_deref(), key, &deps.default_repository)
}
