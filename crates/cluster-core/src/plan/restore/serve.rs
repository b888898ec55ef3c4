//! The restored cluster works: alarms that came with the data are taken back, members that could not be restored are
//! replaced, clients are let in once the data were compared, and the pods are rolled so that no credential stays in them.

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_etcd_types::membership::Known;
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};

use super::old_pods::{delete_stale_pod, stale_pods};
use super::swap;
use crate::blocker::{Blocker, MemberProblem};
use crate::desired::DEFAULT_QUOTA;
use crate::observed_state::{FetchFailure, ObservedCluster, Ordinal, Pod};
use crate::pending_operation::Operation;
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::formed;
use crate::plan::quorum::majority;
use crate::plan::removal::move_leadership;
use crate::plan::restore_request::matching_request;
use crate::plan::step::{GracePeriod, PodRef, Step};

/// Finishes a restore whose data serve: starts late members, disarms alarms of the backup, lets clients in after the
/// comparison, repairs members, and re-creates pods without the download. Begins anew if quorum is lost before clients
/// came.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    let keep = |decision: FlowDecision| FlowDecision {
        operation: persisted.pending.clone().map(|pending| pending.operation),
        ..decision
    };
    if let Some(step) = delete_stale_pod(observed, persisted.incarnation) {
        let text = "A pod of another life of the data is deleted.";
        return keep(FlowDecision::without_operation(Reason::Restoring, text).with_step(step));
    }
    if let Some(late) = start_late_members(view, persisted, &restore) {
        return late;
    }
    let Some(known) = view.known() else {
        // No client has seen these data: they can be made once more.
        return swap::restart_if_quorum_lost(view, persisted, &restore)
            .unwrap_or_else(|| formed::decide(view, persisted));
    };
    let has_quorum = view.healthy_voters(known).len() >= majority(known.voters().count());
    if has_quorum && let Some(decision) = alarms(view, known) {
        return keep(decision);
    }
    let has_ready_stale_pods = has_ready_stale_pod(observed, persisted.incarnation);
    let is_safe = !has_ready_stale_pods && !has_unknown_alarms(observed);
    if has_quorum && !restore.open && is_safe && may_admit_clients(view, &restore) {
        if let Some(decision) = restart_only_voter(view, known, &restore) {
            return keep(decision);
        }
        restore.open = true;
        let text = format!("The EtcdRestore {}: clients are let in.", restore.name);
        persisted.restore = Some(restore);
        return keep(FlowDecision::without_operation(Reason::Restoring, text));
    }
    if has_quorum && let Some(step) = delete_pending_fetch_pod(view, &restore) {
        let text = format!(
            "The EtcdRestore {}: a member that could not fetch the backup joins as a new one.",
            restore.name
        );
        return keep(FlowDecision::without_operation(Reason::Restoring, text).with_step(step));
    }
    let regular = formed::decide(view, persisted);
    if regular.step.is_some()
        || regular.operation.is_some()
        || regular.explanation.reason != Reason::Converged
    {
        return regular;
    }
    if !restore.open {
        let what = match &observed.next_restore {
            _ if has_ready_stale_pods => {
                "no pod of before counts as ready any more: clients could be sent there".to_owned()
            }
            _ if has_unknown_alarms(observed) => "etcd tells which alarms are raised".to_owned(),
            Some(next) => format!("the EtcdRestore {next} takes its place, or is deleted"),
            // Only the EtcdRestore knows the result. Data that differs from the backup is never opened to clients.
            None => {
                "a comparison confirms that the members serve the data of the backup (see the condition Progressing of the EtcdRestore for its result)"
                    .to_owned()
            }
        };
        let text = format!("The EtcdRestore {}: waiting until {what}.", restore.name);
        return FlowDecision::without_operation(Reason::Restoring, text);
    }
    let text = format!(
        "The EtcdRestore {}: the pods are made anew one by one, without what only the restore needed.",
        restore.name
    );
    // Who is going may still answer, and is not there any more a moment later.
    let mut restored = restored_pods(observed, &restore);
    if let Some((ordinal, _)) = restored.find(|(_, pod)| pod.deleting.is_some()) {
        let waits = vec![Blocker::member(
            observed.name(ordinal),
            MemberProblem::PodTerminating,
        )];
        return FlowDecision::without_operation(Reason::Restoring, text).with_blockers(waits);
    }
    // What lives with the pods would be gone with them, and of two voters neither decides alone; the next pod is made
    // without, whenever it comes.
    let may_roll = !observed.desired.storage.is_ephemeral() && known.voters().count() != 2;
    if may_roll && let Some(step) = roll_next_pod(view, known) {
        return FlowDecision::without_operation(Reason::Restoring, text).with_step(step);
    }
    // Whoever reads that it is over finds all of them at work, also in the eyes of the nodes.
    let mut restored = restored_pods(observed, &restore);
    if let Some((ordinal, _)) = restored.find(|(_, pod)| !pod.ready) {
        let waits = vec![Blocker::member(
            observed.name(ordinal),
            MemberProblem::PodNotReady,
        )];
        return FlowDecision::without_operation(Reason::Restoring, text).with_blockers(waits);
    }
    restore.enter(Phase::Finished, observed.now);
    persisted.restore = Some(restore);
    regular
}

/// Permits members that prepared in time and never ran to start on the restored data; `None` if no permit is to be
/// given.
fn start_late_members(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
    restore: &Restore,
) -> Option<FlowDecision> {
    let (step, targets, _) = swap::permits(view, persisted, restore);
    let text = format!(
        "The EtcdRestore {}: the last members start on the restored data.",
        restore.name
    );
    let decision = FlowDecision::with_operation(Operation::Swap(targets), Reason::Restoring, text);
    step.map(|step| decision.with_step(step))
}

/// Whether clients may be let in: the data of the very cluster that serves were compared, or the EtcdRestore is gone
/// and no other follows. One that is there but whose annotation is missing is awaited: it asks again.
fn may_admit_clients(view: &ClusterView<'_>, restore: &Restore) -> bool {
    let observed = view.observed;
    let is_compared = |request: &RestoreIntent| {
        let served = restore.cluster.map(|id| id.to_string());
        served.is_some() && request.compared_cluster == served
    };
    let is_discard_requested = !observed.is_requester_present && observed.next_restore.is_none();
    matching_request(observed, restore).map_or(is_discard_requested, is_compared)
}

/// Whether a pod of another incarnation still counts as ready, as on a lost node: the Service would send clients to it,
/// too.
fn has_ready_stale_pod(observed: &ObservedCluster, incarnation: i64) -> bool {
    stale_pods(observed, incarnation).any(|(_, pod)| pod.ready)
}

/// Whether it is unknown what an alarm is about, or which are raised. One that only a newer etcd knows cannot be taken back.
fn has_unknown_alarms(observed: &ObservedCluster) -> bool {
    let mut alarms = observed.alarms.iter();
    observed.alarms_failure.is_some() || alarms.any(|alarm| matches!(alarm.kind, AlarmKind::Other(_)))
}

/// Disarms an alarm of a member ID that is not in the membership: it came with the backup. NOSPACE is `Blocked` instead
/// while the database reaches the quota. `None` if there is no such alarm.
fn alarms(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let observed = view.observed;
    let came_with_backup = |alarm: &&Alarm| {
        let is_known = !matches!(alarm.kind, AlarmKind::Other(_));
        is_known && alarm.member.is_some_and(|id| !known.members.contains_key(&id))
    };
    let alarm = observed.alarms.iter().find(came_with_backup)?;
    let running = observed
        .members
        .values()
        .filter_map(|observed_member| observed_member.status());
    let largest = running.map(|status| status.db_size).max().unwrap_or_default();
    // What they run with is not what is asked for by now: nothing of that is changed during a restore.
    let quota_in_use = observed
        .members
        .values()
        .filter_map(|observed_member| observed_member.status()?.db_quota)
        .min();
    let quota = quota_in_use
        .or(observed.desired.options.quota)
        .unwrap_or(DEFAULT_QUOTA);
    if alarm.kind == AlarmKind::NoSpace && largest >= quota {
        let text = format!(
            "The backup was made under the alarm NOSPACE, and its {largest} bytes are no less than the {quota} that a database may have here: restore it into another EtcdCluster with a larger spec.etcd.quotaBackendBytes, or create an EtcdRestore of another backup for this one, which takes the place of the present one."
        );
        return Some(FlowDecision::without_operation(Reason::Blocked, text));
    }
    let text = format!(
        "The alarm {} that came with the backup is taken back.",
        alarm.kind
    );
    Some(FlowDecision::without_operation(Reason::Restoring, text).with_step(Step::Disarm(*alarm)))
}

/// Deletes a pod of the restore that has not downloaded the backup. Asked once the others have quorum: the next pod
/// starts without the download and joins as a new member.
fn delete_pending_fetch_pod(view: &ClusterView<'_>, restore: &Restore) -> Option<Step> {
    let observed = view.observed;
    let waits = |pod: &Pod| {
        let is_done = pod.fetch.as_ref().is_none_or(|fetch| fetch.is_done);
        !is_done && pod.deleting.is_none()
    };
    Ordinal::first_n(restore.size.into()).find_map(|ordinal| {
        let pod = observed.member(ordinal).pod.as_ref().filter(|pod| waits(pod))?;
        let uid = pod.uid.clone();
        Some(Step::DeletePod {
            pod: PodRef { ordinal, uid },
            grace_period: GracePeriod::PodDefault,
        })
    })
}

/// Deletes a pod whose download failed, if the members have quorum: its member gets the data from them. With ephemeral
/// storage and no member that serves, also a pod whose download can never succeed: it has no data, and only a pod
/// without a download can report so.
pub fn delete_failed_fetch_pod(view: &ClusterView<'_>) -> Option<Step> {
    let observed = view.observed;
    let known = view.known();
    let has_quorum =
        known.is_some_and(|known| view.healthy_voters(known).len() >= majority(known.voters().count()));
    let serves = known.is_some()
        || observed
            .members
            .values()
            .any(|observed_member| observed_member.status().is_some());
    let is_lost = !serves && observed.desired.storage.is_ephemeral();
    let fails = |pod: &&Pod| {
        let fetch = pod.fetch.as_ref().filter(|fetch| !fetch.is_done);
        let failure = fetch.and_then(|fetch| fetch.failure.as_ref());
        let may_go = |failure: &FetchFailure| has_quorum || (is_lost && failure.is_lasting);
        failure.is_some_and(may_go) && pod.deleting.is_none()
    };
    let mut pods = observed.members.iter();
    pods.find_map(|(ordinal, observed_member)| {
        let uid = observed_member.pod.as_ref().filter(fails)?.uid.clone();
        Some(Step::DeletePod {
            pod: PodRef {
                ordinal: *ordinal,
                uid,
            },
            grace_period: GracePeriod::PodDefault,
        })
    })
}

/// The pods of the members that the restored cluster begins with. A pod of the old cluster may remain on a lost node.
fn restored_pods<'a>(
    observed: &'a ObservedCluster,
    restore: &Restore,
) -> impl Iterator<Item = (Ordinal, &'a Pod)> + use<'a> {
    let ordinals = Ordinal::first_n(restore.size.into());
    ordinals.filter_map(|ordinal| Some((ordinal, observed.member(ordinal).pod.as_ref()?)))
}

/// Re-creates the pod of the only voter before clients are let in: afterwards its restart would interrupt them.
fn restart_only_voter(view: &ClusterView<'_>, known: &Known, restore: &Restore) -> Option<FlowDecision> {
    let observed = view.observed;
    let mut voters = known.voters();
    let only_voter = voters.next().filter(|_| voters.next().is_none())?;
    let ordinal = view.ordinal(only_voter)?;
    let pod = observed.member(ordinal).pod.as_ref();
    let pod = pod.filter(|pod| pod.fetch.is_some() && !observed.desired.storage.is_ephemeral())?;
    let text = format!(
        "The EtcdRestore {}: the only member restarts without what only the restore needed, before clients are let in.",
        restore.name
    );
    let decision = FlowDecision::without_operation(Reason::Restoring, text);
    // It may still answer, and is gone a moment later.
    if pod.deleting.is_some() {
        let terminating = Blocker::member(observed.name(ordinal), MemberProblem::PodTerminating);
        return Some(decision.with_blockers(vec![terminating]));
    }
    let uid = pod.uid.clone();
    Some(decision.with_step(Step::DeletePod {
        pod: PodRef { ordinal, uid },
        grace_period: GracePeriod::PodDefault,
    }))
}

/// Deletes the next pod that still has what brought the backup; the leader's last, and after handing leadership on.
fn roll_next_pod(view: &ClusterView<'_>, known: &Known) -> Option<Step> {
    let observed = view.observed;
    let with_fetch = |(_, pod): &(Ordinal, &Pod)| pod.fetch.is_some() && pod.deleting.is_none();
    let pods = observed.members.iter();
    let pods = pods.filter_map(|(ordinal, observed_member)| Some((*ordinal, observed_member.pod.as_ref()?)));
    let leads = |ordinal: Ordinal| {
        observed
            .etcd_member(ordinal)
            .is_some_and(|member| known.leader == Some(member.id))
    };
    let (ordinal, pod) = pods
        .filter(with_fetch)
        .min_by_key(|(ordinal, _)| leads(*ordinal))?;
    if let Some(member) = observed.etcd_member(ordinal)
        && let Some(step) = move_leadership(view, known, ordinal, member.id)
    {
        return Some(step);
    }
    let uid = pod.uid.clone();
    Some(Step::DeletePod {
        pod: PodRef { ordinal, uid },
        grace_period: GracePeriod::PodDefault,
    })
}
