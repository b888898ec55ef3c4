//! Carrying out a restore that was verified elsewhere. While it stands nothing else is begun:
//!
//! 1. `stop`: the pods of before are stopped.
//! 2. `prepare`: members fetch the backup and restore it beside their old data. One field of the status decides between commit
//!    and roll-back.
//! 3. `swap`: the restored data take the place of the old ones.
//! 4. `serve`: the restored cluster is brought in order, and clients are let in.
//!
//! Before the commit the old cluster can come back whole (`rollback`); after it there is only forward.

pub mod member_progress;
mod old_pods;
mod prepare;
mod rollback;
mod serve;
mod stop;
mod swap;

use etcd_operator_api::contract::{RestoreIntent, Verdict};
use etcd_operator_etcd_types::policy::Feature;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use super::restore_request::startable_request;
use super::safety;
use crate::desired::Size;
use crate::observed_state::{ObservedCluster, ObservedMember, Ordinal};
use crate::persisted_state::{PersistedState, Phase, Restore};

pub use member_progress::member_restore_statuses;

/// What to do about a restore; none if none is to be carried out, so that others have their say.
/// `wanted_size` is that of the spec, which the view does not show while a restore stands.
pub fn decide(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    wanted_size: Size,
) -> Option<FlowDecision> {
    let observed = view.observed;
    if let Some(restore) = persisted.restore.clone().filter(Restore::is_active) {
        if let Err(why) = &observed.restore {
            let text = format!("What restore is asked for cannot be understood: {why}");
            return Some(FlowDecision {
                operation: persisted.pending.clone().map(|pending| pending.operation),
                ..FlowDecision::without_operation(Reason::Blocked, text)
            });
        }
        if let Some(decision) = supersede(view, persisted, &restore, wanted_size) {
            return Some(decision);
        }
        return Some(match restore.phase {
            Phase::Stopping => stop::decide(view, persisted, restore),
            Phase::Preparing => prepare::decide(view, persisted, restore),
            Phase::Committed => swap::decide(view, persisted, restore),
            Phase::RollingBack => rollback::decide(view, persisted, restore),
            Phase::Serving | Phase::Finished | Phase::RolledBack => serve::decide(view, persisted, restore),
        });
    }
    if observed.restore == Ok(None) {
        // Whoever asked has seen how it ended. One that was carried out stays noted: should its object lose what it was told, it
        // would ask once more, and clients have written since.
        persisted.restore = persisted
            .restore
            .take()
            .filter(|last| last.phase == Phase::Finished);
    }
    begin(view, persisted).or_else(|| delete_late_pod(view, persisted))
}

/// A copy of the observed cluster with the size of the active restore, so that no flow scales it to the spec's
/// meanwhile; `None` without an active restore.
pub fn with_restore_size(observed: &ObservedCluster) -> Option<ObservedCluster> {
    let restore = observed
        .persisted
        .restore
        .as_ref()
        .filter(|restore| restore.is_active())?;
    let mut frozen = observed.clone();
    frozen.desired.size = Size::saturating_new(restore.size);
    Some(frozen)
}

/// Replaces a committed restore that cannot go on by another requested one: its data never served, clients were never
/// let in, or quorum was lost again. `None` if none is requested, or the present one may be rolled back or serves
/// clients. The EtcdRestore controller judges whether it cannot go on.
fn supersede(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    before: &Restore,
    wanted_size: Size,
) -> Option<FlowDecision> {
    let observed = view.observed;
    let is_useless = before.phase == Phase::Serving && (!before.open || view.known().is_none());
    let has_not_worked = before.is_fetching() || before.phase == Phase::Committed;
    let may_be_replaced = before.committed && (has_not_worked || is_useless);
    let request = startable_request(observed)
        .filter(|request| may_be_replaced && !persisted.has_restored(&request.uid))?;
    let mut restore = Restore {
        uid: request.uid.clone(),
        name: request.name.clone(),
        incarnation: persisted.last_incarnation.max(before.incarnation) + 1,
        cluster: None,
        object_sha256: request.object.sha256.clone(),
        // What the cluster of before was seen at an older operator has noted in the one of before only.
        revision_bump: match compute_revision_bump(observed, persisted, request) {
            bump if bump > 0 && persisted.restored_revision == 0 => bump.saturating_add(before.revision_bump),
            bump => bump,
        },
        keep_seconds: request.keep_previous_seconds,
        size: match wanted_size.get() {
            _ if request.single_member => 1,
            // The spec hibernates the cluster.
            0 => before.size,
            size => size,
        },
        // What the one of before only prepared was never put in place.
        previous_size: if before.is_fetching() {
            before.previous_size
        } else {
            before.size
        },
        open: false,
        message: None,
        ..before.clone()
    };
    if before.open && !observed.desired.storage.is_ephemeral() {
        // Clients have worked with these data, and they lie on the volumes: they are what can come back.
        restore.committed = false;
        restore.previous_incarnation = before.incarnation;
        restore.previous_cluster = before.cluster;
    }
    restore.enter(Phase::Stopping, observed.now);
    let text = format!(
        "The EtcdRestore {} takes the place of {}, which could not go on.",
        restore.name, before.name
    );
    record_restore(persisted, restore, request);
    Some(FlowDecision::without_operation(Reason::Restoring, text))
}

/// Makes this the restore of the cluster and its incarnation the present one. The raised revision is kept, so that a
/// later restore goes above it.
fn record_restore(persisted: &mut PersistedState, restore: Restore, request: &RestoreIntent) {
    persisted.incarnation = restore.incarnation;
    persisted.last_incarnation = restore.incarnation;
    if restore.revision_bump > 0 {
        let target = request.revision.saturating_add(restore.revision_bump);
        persisted.restored_revision = persisted.restored_revision.max(target);
    }
    persisted.begin_restore(restore);
}

/// Begins the requested restore and drops any pending operation. `None` if none may start, or this one was carried out
/// or rolled back before; `Blocked` if the size is 0 and no voters are recorded.
fn begin(view: &ClusterView<'_>, persisted: &mut PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    let request = startable_request(observed)?;
    // It was carried out, or rolled back: never twice.
    if persisted.has_restored(&request.uid) {
        return None;
    }
    record_missed_formation(view, persisted);
    let recorded = persisted
        .members
        .values()
        .filter(|member| member.is_voter)
        .count();
    let size = match observed.desired.size.get() {
        0 => u8::try_from(recorded).unwrap_or_default(),
        size => size,
    };
    if size == 0 {
        let text = format!(
            "The EtcdRestore {} waits: spec.size is 0, and no size of before is known; set spec.size.",
            request.name
        );
        return Some(FlowDecision::without_operation(Reason::Blocked, text));
    }
    let size = if request.single_member { 1 } else { size };
    let previous_cluster = persisted.cluster;
    let mut restore = Restore {
        uid: request.uid.clone(),
        name: request.name.clone(),
        phase: Phase::Stopping,
        since: observed.now,
        committed: false,
        incarnation: persisted.last_incarnation.max(persisted.incarnation) + 1,
        cluster: None,
        previous_incarnation: previous_cluster.map_or(0, |_| persisted.incarnation),
        previous_cluster,
        size,
        previous_size: size,
        object_sha256: request.object.sha256.clone(),
        revision_bump: compute_revision_bump(observed, persisted, request),
        keep_seconds: request.keep_previous_seconds,
        furthest: None,
        open: false,
        message: None,
    };
    restore.enter(Phase::Stopping, observed.now);
    let text = format!("The EtcdRestore {} begins.", restore.name);
    record_restore(persisted, restore, request);
    Some(FlowDecision::without_operation(Reason::Restoring, text))
}

/// By how much the revision of the backup is raised, so that it is above any that the old cluster or an earlier restore
/// had. 0 if the request asks for none, or the oldest etcd that runs, or else that of the spec, cannot raise it.
fn compute_revision_bump(
    observed: &ObservedCluster,
    persisted: &PersistedState,
    request: &RestoreIntent,
) -> i64 {
    let running = || {
        observed
            .members
            .values()
            .filter_map(|observed_member| observed_member.status())
    };
    let version = running().map(|status| status.version.clone()).min();
    let version = version.unwrap_or_else(|| observed.desired.version(None));
    if request.revision_bump <= 0 || !Feature::RevisionBump.is_in(&version) {
        return 0;
    }
    let raised = Some(persisted.restored_revision).filter(|revision| *revision > 0);
    let last = running()
        .map(|status| status.position.revision.0)
        .max()
        .max(raised);
    let behind = last.map_or(0, |last| last.saturating_sub(request.raised_from()).max(0));
    request.revision_bump.saturating_add(behind)
}

/// While no restore is active: deletes a pod of another incarnation, which the StatefulSet may still create afterwards,
/// if `is_disposable`; or one that cannot download the backup of a restore that is over. A pod that serves this cluster
/// stays.
fn delete_late_pod(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    // A restore that was rolled back is forgotten once nobody asks for it; its pods may come even later.
    let has_begun = persisted.restore.is_some() || persisted.has_formed();
    // Whoever serves the data of this life is no stranger, whatever number somebody wrote into the status.
    let serves = |observed_member: &ObservedMember| {
        let cluster = observed_member.status().map(|status| status.position.cluster);
        cluster.is_some() && cluster == persisted.cluster
    };
    let may_delete =
        |ordinal: &Ordinal| !serves(observed.member(*ordinal)) && is_disposable(view, persisted, *ordinal);
    let stale_pod = has_begun
        .then(|| old_pods::delete_stale_pod_at(observed, persisted.incarnation, may_delete))
        .flatten();
    let (step, text) = match stale_pod {
        Some(step) => (step, "A pod of another life of the data is deleted."),
        None => (
            serve::delete_failed_fetch_pod(view)?,
            "A pod that lost its data cannot fetch the backup of a restore that is over: it is made anew without.",
        ),
    };
    Some(FlowDecision {
        operation: persisted.pending.clone().map(|pending| pending.operation),
        ..FlowDecision::without_operation(Reason::Recovering, text).with_step(step)
    })
}

/// Whether a pod of another incarnation can be deleted safely: it reports an empty volume, or one that outlives the
/// pod; it still downloads a backup; or its member can leave without breaking quorum. False where a formed cluster's
/// membership is unknown.
fn is_disposable(view: &ClusterView<'_>, persisted: &PersistedState, ordinal: Ordinal) -> bool {
    let observed = view.observed;
    let has_nothing = observed
        .member(ordinal)
        .report()
        .is_some_and(|report| match report.verdict {
            Verdict::Empty | Verdict::Unborn => true,
            _ => !observed.desired.storage.is_ephemeral(),
        });
    let pod = observed.member(ordinal).pod.as_ref();
    let still_fetches = pod
        .and_then(|pod| pod.fetch.as_ref())
        .is_some_and(|fetch| !fetch.is_done);
    if has_nothing || still_fetches || !persisted.has_formed() {
        return true;
    }
    view.known().is_some_and(|known| {
        let mut members = known.members.values();
        let member = members.find(|member| view.ordinal(member) == Some(ordinal));
        member.is_none_or(|member| safety::removal_blockers(view, known, member.id).is_empty())
    })
}

/// Records a cluster that formed while the operator could not write it down: it is what a roll-back brings back, and without a
/// record it would begin anew and lose what clients have written.
fn record_missed_formation(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    let Some(known) = view.known().filter(|_| !persisted.has_formed()) else {
        return;
    };
    if known
        .members
        .values()
        .all(|member| view.ordinal(member).is_some())
    {
        persisted.cluster = Some(known.cluster);
        persisted.members = view.record_all_members(known);
    }
}
