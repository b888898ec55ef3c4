//! Changes of the spec reach running members:
//!
//! 1. A pod that does not run etcd and has an earlier template is re-created: nothing is lost with it.
//! 2. A snapshot of each member's log comes before etcd 3.7 (`log_snapshot`), a backup before another minor version
//!    (`backup_first`), and a downgrade is enabled in etcd first (`downgrade`).
//! 3. The pod template changes once its gate is open (`gate`).
//! 4. One member after the other is restarted with it, the leader last, each only while all others are healthy. Members that
//!    keep their data in their pods are replaced instead (`surge`).
//!
//! So a bad change stops at the first member, and a corrected one goes on from there. What stops a rollout: before the template
//! changes `gate` (the user must act, members not settled, the API server refuses the pods, no slot); between two members
//! `state::may_restart_members` and `decide` (an alarm, a voter that is not healthy, a learner, a running backup, the wait before the
//! point of no return). `stalled` and `state` only tell it. The modules below answer questions about a rollout and are asked by others, too.

pub mod backup_first;
pub mod downgrade;
mod downgrade_status;
pub mod gate;
mod health;
pub mod image_check;
pub mod log_snapshot;
pub mod minor;
pub mod outdated;
pub mod pending_cause;
pub mod progress;
pub mod restarting;
mod running_backup;
pub mod stalled;
pub mod state;
pub mod stuck;
pub mod surge;
pub mod under_way;
pub mod version_path;
pub mod versions;

use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::status::AlarmKind;

use super::cluster_view::ClusterView;
use super::decision::{Candidate, FlowDecision, Reason};
use super::removal::move_leadership;
use super::step::{Departure, PodRef, Step};
use crate::blocker::Blocker;
use crate::observed_state::{Container, Ordinal, Pod};
use crate::pending_operation::Cause;
use crate::persisted_state::{PersistedState, Rollout};
use backup_first::BackupFirst;
use health::voter_problem;
use outdated::{is_outdated, outdated_pods};
use restarting::RECONNECTED_AFTER;
use state::may_restart_members;

/// Re-creates a stuck pod that was made from another template than the StatefulSet's, whether other members are healthy or
/// not. No data are lost, and a change that keeps a member from starting can be corrected.
///
/// A pod whose own template has served is left alone while the current one keeps a member from starting. So is one whose minor
/// version must not change now. No pod is re-created during a restore, or unless `updates.strategy` is Automatic and the
/// StatefulSet controller has seen the template.
pub fn recreate_stuck_pod(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    let set = observed.set.as_ref()?;
    if !may_restart_members(view, persisted) || set.unseen_generation.is_some() {
        return None;
    }
    let is_current_bad = stuck::stuck_pods(view).any(|(_, pod)| pod.spec_hash == set.spec_hash);
    // Without quorum, the pod may be the one that is missing.
    let has_to_wait = |ordinal| view.known().is_some() && minor::wait_before_leaving(view, ordinal).is_some();
    let (ordinal, pod) = stuck::stuck_pods(view).find(|(ordinal, pod)| {
        is_outdated(view, *ordinal)
            && !minor::must_keep_minor(view, *ordinal)
            && !has_to_wait(*ordinal)
            && downgrade::restart_wait(view, *ordinal).is_none()
            && !(is_current_bad && view.has_served_template(pod))
    })?;
    let text = format!(
        "{} is re-created: it does not run etcd, and its pod was made before the last change of the pod template.",
        observed.name(ordinal)
    );
    let decision = FlowDecision {
        operation: persisted.pending.clone().map(|pending| pending.operation),
        ..FlowDecision::without_operation(Reason::RollingOut, text)
    };
    Some(decision.with_step(Step::DeleteStoppedPod {
        pod: PodRef {
            ordinal,
            uid: pod.uid.clone(),
        },
        resource_version: pod.resource_version.clone(),
    }))
}

/// Lets every member take a snapshot of its log, once nothing else keeps the members from a minor version that needs it.
fn take_log_snapshots(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let snapshot = gate::due_log_snapshot(view, persisted)?;
    let text = format!(
        "Entries that change nothing are written to the raft log, so that every member takes a snapshot of it before etcd {}.",
        view.observed.wanted.version
    );
    let decision = FlowDecision::without_operation(Reason::RollingOut, text);
    Some(decision.with_step(Step::WriteLogEntries(snapshot)))
}

/// Requests the backup once nothing else keeps the pod template from changing; none if there is none to request.
fn request_backup(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let BackupFirst::ToRequest(request) = gate::pending_backup(view, persisted) else {
        return None;
    };
    let text = format!(
        "A backup is requested from EtcdBackup {} before etcd {} is rolled out.",
        request.backup, view.observed.wanted.version
    );
    let decision = FlowDecision::without_operation(Reason::RollingOut, text);
    Some(decision.with_step(Step::RequestBackup(request)))
}

/// The next step of a rollout, or what it waits for: log entries, a backup or a downgrade first, then one member
/// restarts. `None` if nothing is due, and while the alarm CORRUPT, a joining member or other clusters hold it up.
pub fn decide(view: &ClusterView<'_>, known: &Known, persisted: &PersistedState) -> Option<Candidate> {
    let observed = view.observed;
    let set = observed.set.as_ref()?;
    let rollout = persisted.rollout.as_ref()?;
    let first = take_log_snapshots(view, persisted).or_else(|| request_backup(view, persisted));
    if let Some(first) = first {
        return Some(Candidate::Decision(first));
    }
    let may_enable = gate::may_enable_downgrade(view, persisted);
    if let Some(downgrade) = downgrade::decide(view, persisted, may_enable) {
        return Some(Candidate::Decision(downgrade));
    }
    if !may_restart_members(view, persisted) {
        return None;
    }
    let waits = |text: &str| {
        let decision = FlowDecision::without_operation(Reason::RollingOut, text);
        Some(Candidate::Decision(decision))
    };
    if gate::may_update_template(view, persisted) {
        return waits("The pod template changes; then the members are restarted one by one.");
    }
    let outdated: Vec<_> = outdated_pods(view)
        .filter(|(ordinal, _)| surge::replaces_members(view) || stuck::keeps_data(view, *ordinal))
        .filter(|(ordinal, _)| !minor::must_keep_minor(view, *ordinal))
        .filter_map(|(ordinal, pod)| Some((ordinal, pod, observed.etcd_member_in(known, ordinal)?)))
        .collect();
    if outdated.is_empty() && rollout.current.is_none() {
        return None;
    }
    let has_corrupt_alarm = observed
        .alarms
        .iter()
        .any(|alarm| alarm.kind == AlarmKind::Corrupt);
    let is_joining = |member: &Member| member.role == Role::Learner || !member.has_started();
    if has_corrupt_alarm || known.members.values().any(is_joining) || view.has_member_elsewhere(known) {
        return None;
    }
    if observed.alarms_failure.is_some() {
        return waits(
            "A member reports errors, and etcd does not tell its alarms: no member restarts until it does.",
        );
    }
    if let Some(blocker) = gate::lying_image(view) {
        let text = "The image does not hold the version that the spec names.";
        let decision = FlowDecision::without_operation(Reason::Blocked, text);
        return Some(Candidate::Decision(decision.with_blockers(vec![blocker])));
    }
    if set.unseen_generation.is_some() {
        return waits("Waiting for the StatefulSet controller to see the changed pod template.");
    }
    let unhealthy: Vec<_> = known
        .voters()
        .filter_map(|voter| Some((voter, voter_problem(view, known, voter)?)))
        .collect();
    let of_voter = |voter: &Member| outdated.iter().find(|(_, _, member)| member.id == voter.id);
    let next = match unhealthy.as_slice() {
        [] if gate::is_change_refused(view, persisted) => None,
        [] => next_member(known, &outdated),
        // The others hold quorum without it, and the change may be what it needs.
        [(voter, _)] => of_voter(voter),
        _ => None,
    };
    let Some((ordinal, pod, member)) = next else {
        if unhealthy.is_empty() {
            return None;
        }
        let blockers = unhealthy
            .into_iter()
            .map(|(voter, problem)| Blocker::member(view.display_name(voter), problem));
        let text = "Waiting for every voter to be healthy before the next member is restarted.";
        let decision = FlowDecision::without_operation(Reason::RollingOut, text);
        return Some(Candidate::Decision(decision.with_blockers(blockers.collect())));
    };
    if !observed.wanted.has_slot {
        return None;
    }
    if let Some(backup) = running_backup::awaited(view, rollout).filter(|_| unhealthy.is_empty()) {
        let text = format!(
            "{} restarts when the backup of EtcdBackup {} has finished, or after {} minutes.",
            observed.name(*ordinal),
            backup.name,
            running_backup::MAX_WAIT.as_mins()
        );
        return waits(&text);
    }
    if let Some(why) = downgrade::restart_wait(view, *ordinal) {
        let text = format!(
            "{} restarts with the lower minor version when etcd has prepared it: {why}.",
            observed.name(*ordinal)
        );
        return waits(&text);
    }
    if let Some(wait) = minor::wait_before_leaving(view, *ordinal) {
        let text = format!(
            "{} is the last member of the lower minor version: {wait}. Meanwhile the version can be set back.",
            observed.name(*ordinal),
        );
        return waits(&text);
    }
    if unhealthy.is_empty() && !have_clients_returned(view, known, member.id) {
        let text = format!(
            "{} restarts when clients have had the time to connect again to one that has restarted.",
            observed.name(*ordinal),
        );
        return waits(&text);
    }
    // Who is missing, and until when, is told where members join.
    if unhealthy.is_empty() && would_lose_quorum_meanwhile(view, known, rollout) {
        return None;
    }
    if surge::replaces_members(view) {
        let wanted = usize::from(observed.desired.size.get());
        let is_complete = unhealthy.is_empty() && known.voters().count() == wanted;
        let is_stopped = !unhealthy.is_empty() && will_not_serve(view, pod);
        return (is_complete || is_stopped).then_some(Candidate::Replace {
            ordinal: *ordinal,
            id: member.id,
            cause: Cause::Outdated,
        });
    }
    Some(Candidate::Decision(restart(
        view,
        known,
        (*ordinal, pod, member),
        !unhealthy.is_empty(),
        outdated.len(),
    )))
}

/// Whether a restart would cost the quorum only because a member is missing that is to join, as after somebody has removed it from
/// etcd. The one that restarted last is waited for in any case: it tells whether the change works. Another one is not if its pod has not
/// started for as long as a rollout may take to progress: the change may be what lets it.
fn would_lose_quorum_meanwhile(view: &ClusterView<'_>, known: &Known, rollout: &Rollout) -> bool {
    let observed = view.observed;
    let size = u16::from(observed.desired.size.get());
    let restarted = rollout.current.as_ref().map(|current| current.ordinal);
    let cannot_start = |pod: Option<&Pod>| {
        pod.is_none_or(|pod| matches!(pod.container, Container::Waiting(_)))
            && stalled::is_overdue(view, rollout, pod)
    };
    let is_awaited =
        |ordinal: Ordinal| restarted == Some(ordinal) || !cannot_start(observed.member(ordinal).pod.as_ref());
    let mut missing = (0..size)
        .filter_map(Ordinal::new)
        .filter(|ordinal| observed.etcd_member_in(known, *ordinal).is_none());
    known.voters().count() <= 2 && size > 2 && missing.any(is_awaited)
}

/// For members that keep their data in their pods: whether etcd in a pod has stopped and will not run without help, so
/// that its member is replaced although it is unhealthy. If it has served with its template, only once it crash-loops
/// and others serve with the changed template.
fn will_not_serve(view: &ClusterView<'_>, pod: &Pod) -> bool {
    let set = view.observed.set.as_ref();
    let spec_hash = set.and_then(|set| set.spec_hash.as_deref());
    let is_change_served =
        spec_hash.is_some_and(|spec_hash| view.observed.persisted.has_served_spec(spec_hash));
    pod.container != Container::Running
        && (!view.has_served_template(pod) || (pod.is_crash_looping && is_change_served))
}

/// Whether clients that were connected to all members can be connected to another voter than the one that goes. A client whose
/// member goes may connect to the address of the pod that is gone, where nothing answers, and gives up after `RECONNECTED_AFTER`.
/// One and two voters have no redundancy: clients see a gap in any case.
fn have_clients_returned(view: &ClusterView<'_>, known: &Known, goes: MemberId) -> bool {
    let observed = view.observed;
    let has_served_for_a_while = |voter: &Member| {
        let pod = view
            .ordinal(voter)
            .and_then(|ordinal| observed.member(ordinal).pod.as_ref());
        let created = pod.and_then(|pod| pod.created);
        created.is_none_or(|created| observed.now.duration_since(created) >= RECONNECTED_AFTER)
    };
    let mut others = known.voters().filter(|voter| voter.id != goes);
    known.voters().count() <= 2 || others.any(has_served_for_a_while)
}

/// The outdated member that restarts next: the lowest ordinal, but the leader last, so that leadership moves once, to a
/// member that stays.
fn next_member<'a, 'b>(
    known: &Known,
    outdated: &'a [(Ordinal, &'b Pod, &'b Member)],
) -> Option<&'a (Ordinal, &'b Pod, &'b Member)> {
    outdated
        .iter()
        .min_by_key(|(ordinal, _, member)| (known.leader == Some(member.id), *ordinal))
}

/// Restarts one member, after moving its leadership unless it is unhealthy. A ready pod of more than two voters is
/// evicted, any other deleted. `left` members have an earlier template.
fn restart(
    view: &ClusterView<'_>,
    known: &Known,
    (ordinal, pod, member): (Ordinal, &Pod, &Member),
    is_unhealthy: bool,
    left: usize,
) -> FlowDecision {
    let observed = view.observed;
    let voters = known.voters().count();
    let gap = match voters {
        1 => " Clients see a gap: it is the only member.",
        2 => " Clients see a gap: two members have no redundancy.",
        _ => "",
    };
    let text = format!(
        "{} is restarted with the changed pod template; {} of {} members are left.{gap}",
        observed.name(ordinal),
        left,
        known.members.len(),
    );
    let decision = FlowDecision::without_operation(Reason::RollingOut, text);
    if !is_unhealthy && let Some(step) = move_leadership(view, known, ordinal, member.id) {
        return decision.with_step(step);
    }
    let others = known.voters().filter(|voter| voter.id != member.id);
    decision.with_step(Step::RestartPod {
        pod: PodRef {
            ordinal,
            uid: pod.uid.clone(),
        },
        others: others
            .filter_map(|voter| Some((view.ordinal(voter)?, voter.id)))
            .collect(),
        departure: if voters > 2 && pod.ready {
            Departure::Evicted
        } else {
            Departure::Deleted
        },
        lowered_to: downgrade::lowered_to(view, ordinal),
    })
}
