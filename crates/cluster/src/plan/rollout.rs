//! Changes of the spec reach running members: the pod template changes once its gate is open, then one member after the
//! other is restarted with it, the leader last. Each only while all others are healthy, so a bad change stops at the first
//! member, and a corrected one goes on from there.

pub mod backup_first;
pub mod downgrade;
mod gate;
mod minor;
mod restarting;
mod running_backup;
mod stalled;
mod stuck;
mod surge;
mod version_path;

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::status::AlarmKind;
use jiff::SignedDuration;

use super::bootstrap::has_other_spec_hash;
use super::{ClusterView, FlowDecision, PodRef, Reason, Step, formed, remove, replace};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{Container, ObservedCluster, Ordinal, Pod, PodAdmission};
use crate::pending_operation::{Cause, Operation};
use crate::persisted_state::{PersistedState, RestartedMember, Restore, Rollout};

pub use backup_first::{BackupFirst, BackupRequest};
pub use gate::{DEFAULT_QUOTA, may_update_template, needs_dry_run};
pub use minor::{
    is_mixed, is_next_minor, is_template_behind, member_versions, must_keep_minor, needs_cluster_version,
    wait_before_last,
};
pub use restarting::{await_restarting_member, restarting_member};
pub use stalled::unschedulable_member;
pub use stuck::stuck_pods;
pub use surge::with_surge_size;
pub use version_path::{left_first, version_path};

/// How far the current spec has come to the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// Every member runs it.
    #[default]
    Complete,
    /// It was pending when an operator took over that rolls changes out, so nobody knows whether it is still wanted.
    Held,
    /// `updates.strategy` is Paused.
    Paused,
    /// The user has to act before the pod template can change.
    Blocked(Blocker),
    /// The pod template changes once this has passed.
    Pending(PendingCause),
    /// `updates.strategy` is OnDelete: members take it when their pods are deleted.
    OnDelete,
    /// Members are restarted one after the other.
    RollingOut,
    /// A restarted member makes no progress.
    Stalled {
        /// Its name.
        member: String,
        /// What keeps it.
        problem: MemberProblem,
    },
}

/// What the change of a pod template waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingCause {
    /// A cluster without pods changes when it resumes.
    Hibernated,
    /// The members must be healthy, and no other operation under way.
    Members,
    /// No member has told whether authentication is enabled.
    Authentication,
    /// The cluster does not behave as the minor version that all members run yet.
    ClusterVersion,
    /// The files of the members are not of the minor version yet that all members run.
    StorageVersion,
    /// A downgrade is enabled in etcd that the spec does not ask for: it is canceled first.
    DowngradeEnabled,
    /// A downgrade is enabled, or is to be, and the cluster version is not lowered yet.
    LowerClusterVersion,
    /// A downgrade is enabled, and the files of a member are not lowered yet.
    LowerStorageVersion {
        /// Its name.
        member: String,
    },
    /// As many clusters are rolled out as may be at once.
    OtherClusters,
    /// A backup comes before another minor version, and is not verified yet.
    Backup {
        /// The name of the `EtcdBackup`.
        name: String,
    },
    /// The API server could not say whether it would create the changed pods.
    DryRun {
        /// What failed.
        message: String,
    },
}

/// How a restarted pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The API server evicts it if the budget allows.
    Evicted,
    /// It is deleted: there is no budget for so few members, or it serves nobody.
    Deleted,
}

/// How far the current spec has come. `persisted` is what is stored with this plan.
pub fn state(view: &ClusterView<'_>, persisted: &PersistedState) -> RolloutState {
    let observed = view.observed;
    let is_changed = gate::is_template_changed(view) || !observed.wanted.later_versions.is_empty();
    if observed.set.is_none() || !persisted.has_formed() {
        return RolloutState::Complete;
    }
    let is_current_restarting = persisted
        .rollout
        .as_ref()
        .is_some_and(|rollout| rollout.current.is_some() && observed.desired.size.get() > 0);
    let has_outdated = outdated_pods(view).next().is_some() || is_replacing_outdated(persisted);
    if !is_changed && !has_outdated && !is_current_restarting {
        return RolloutState::Complete;
    }
    let Some(rollout) = &persisted.rollout else {
        return RolloutState::Held;
    };
    if observed.desired.paused || observed.desired.updates.strategy == UpdateStrategy::Paused {
        return RolloutState::Paused;
    }
    if let Some(blocker) = gate::user_blocker(view).or_else(|| gate::lying_image(view)) {
        return RolloutState::Blocked(blocker);
    }
    if observed.desired.size.get() == 0 {
        return RolloutState::Pending(PendingCause::Hibernated);
    }
    match &observed.pod_admission {
        PodAdmission::Refused { message } => {
            return RolloutState::Blocked(Blocker::PodRefused {
                message: message.clone(),
            });
        }
        PodAdmission::Unknown { message } => {
            return RolloutState::Pending(PendingCause::DryRun {
                message: message.clone(),
            });
        }
        PodAdmission::NotAsked | PodAdmission::Admitted | PodAdmission::NotSupported { .. } => {}
    }
    if let Some((member, problem)) = stalled::stalled_member(view, rollout) {
        return RolloutState::Stalled { member, problem };
    }
    let is_open = may_update_template(view, persisted);
    match gate::pending_backup(view, persisted) {
        BackupFirst::NotNeeded | BackupFirst::Verified => {}
        BackupFirst::ToRequest(BackupRequest { backup: name, .. }) | BackupFirst::Running { name } => {
            return RolloutState::Pending(PendingCause::Backup { name });
        }
        BackupFirst::Blocked(blocker) => return RolloutState::Blocked(blocker),
    }
    let is_held = !gate::is_template_changed(view) && !has_outdated && !is_current_restarting;
    if is_changed && !is_open && (gate::is_template_changed(view) || is_held) {
        return RolloutState::Pending(if !observed.wanted.has_slot {
            PendingCause::OtherClusters
        } else if is_next_minor(view) {
            minor::wait_before_next_minor(view, persisted).unwrap_or(PendingCause::Members)
        } else if downgrade::is_previous_minor(view) {
            downgrade::wait_before_template(view, persisted).unwrap_or(PendingCause::Members)
        } else {
            PendingCause::Members
        });
    }
    match observed.desired.updates.strategy {
        UpdateStrategy::OnDelete if !is_open => RolloutState::OnDelete,
        _ if !observed.wanted.has_slot => RolloutState::Pending(PendingCause::OtherClusters),
        _ => RolloutState::RollingOut,
    }
}

/// Whether a member that kept its data in its pod is being replaced.
fn is_replacing_outdated(persisted: &PersistedState) -> bool {
    let pending = persisted.pending.as_ref().map(|pending| &pending.operation);
    matches!(pending, Some(Operation::Replace(replace)) if replace.cause == Cause::Outdated)
}

/// Whether the spec has not come to every member.
pub fn is_incomplete(observed: &ObservedCluster) -> bool {
    let view = ClusterView::new(observed);
    gate::is_template_changed(&view)
        || !observed.wanted.later_versions.is_empty()
        || outdated_pods(&view).next().is_some()
}

/// What is remembered of the rollout from now on, before any pass: which change it is, and whether the member that was
/// restarted last is done.
pub fn refresh(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    let observed = view.observed;
    let wanted = &observed.wanted.spec_hash;
    let begin = || Rollout {
        restarted_at: observed.wanted.restarted_at.clone(),
        ..Rollout::begin(wanted, &observed.wanted.target().to_string(), observed.now)
    };
    let is_edited = observed.generation != observed.persisted.generation;
    let Some(rollout) = &mut persisted.rollout else {
        let is_complete = !is_incomplete(observed);
        let is_new = observed.set.is_none() || !persisted.has_formed();
        // Nobody acts on the spec of a paused cluster.
        let is_asked_for = (is_edited || observed.wanted.is_restart_requested) && !observed.desired.paused;
        if is_new || is_complete || is_asked_for {
            persisted.rollout = Some(begin());
        }
        return;
    };
    // What a paused cluster asks for is looked at when it is not paused any more.
    if rollout.spec_hash != *wanted && !observed.desired.paused {
        let current = rollout.current.take();
        let reversible = rollout.reversible.filter(|_| minor::is_mixed(view));
        let path = rollout.path.take();
        *rollout = Rollout {
            current,
            reversible,
            path,
            ..begin()
        };
    }
    if rollout
        .current
        .as_ref()
        .is_some_and(|current| is_leaving(view, current))
    {
        rollout.set_left(observed.now);
    }
    if rollout
        .current
        .as_ref()
        .is_some_and(|current| is_done(view, current))
    {
        rollout.set_current(None, observed.now);
    }
    let restarting = rollout.current.as_ref().map(|current| current.ordinal);
    rollout.reversible = minor::is_reversible(view, restarting, rollout.reversible);
    rollout.path = version_path(view, rollout.path.as_ref(), restarting.is_some());
}

/// What is remembered once this step is to be taken.
pub fn record_step(view: &ClusterView<'_>, persisted: &mut PersistedState, step: Option<&Step>) {
    let is_template_moving = may_update_template(view, persisted);
    if let Some(rollout) = persisted.rollout.as_mut().filter(|_| is_template_moving) {
        rollout.set_progressed(view.observed.now);
    }
    let (Some(step), Some(rollout)) = (step, &mut persisted.rollout) else {
        return;
    };
    if let Step::RestartPod { pod, .. } = step {
        let current = RestartedMember {
            ordinal: pod.ordinal,
            pod: pod.uid.clone(),
            left_at: None,
        };
        rollout.set_current(Some(current), view.observed.now);
    }
    if let Step::EnableDowngrade { .. } = step {
        rollout.set_progressed(view.observed.now);
    }
    if let Step::RequestBackup(request) = step {
        rollout.backup_requested_at = Some(request.requested_at);
    }
    let leaves_lower_minor = match step {
        Step::RestartPod { pod, .. } | Step::DeleteStoppedPod { pod, .. } => {
            minor::leaves_lower_minor(view, pod.ordinal)
        }
        Step::Remove { ordinal, .. } => {
            // With consent to a downgrade there is a way back.
            !view.observed.desired.updates.allow_downgrade
                && ordinal.is_some_and(|ordinal| minor::is_last_of_lower_minor(view, ordinal))
        }
        _ => false,
    };
    if leaves_lower_minor {
        rollout.reversible = Some(false);
    }
}

/// Whether the pod of a member that is to be restarted goes, or is gone and no other one has come.
fn is_leaving(view: &ClusterView<'_>, current: &RestartedMember) -> bool {
    let pod = view.observed.member(current.ordinal).pod.as_ref();
    pod.is_none_or(|pod| pod.uid == current.pod && pod.deleting.is_some())
}

/// Whether a restarted member serves again, or is none any more.
fn is_done(view: &ClusterView<'_>, current: &RestartedMember) -> bool {
    let Some(known) = view.known() else {
        return false;
    };
    let Some(member) = view.observed.etcd_member_in(known, current.ordinal) else {
        return true;
    };
    let pod = view.observed.member(current.ordinal).pod.as_ref();
    // Where the change was set back before its pod went, it need not go any more.
    let has_restarted = pod.is_some_and(|pod| pod.uid != current.pod || !is_outdated(view, current.ordinal));
    has_restarted && voter_problem(view, known, member).is_none()
}

/// Re-creates a stuck pod that was made from another template than the one that the StatefulSet has now, whoever else is
/// healthy: nobody loses anything, and a change that keeps a member from starting can be corrected. A pod whose own template
/// has served is left alone while the current one keeps a member from starting.
pub fn recreate_stuck_pod(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    let set = observed.set.as_ref()?;
    if !may_restart_members(view, persisted) || set.unseen_generation.is_some() {
        return None;
    }
    let is_current_bad = stuck::stuck_pods(view).any(|(_, pod)| pod.spec_hash == set.spec_hash);
    let (ordinal, pod) = stuck::stuck_pods(view).find(|(ordinal, pod)| {
        is_outdated(view, *ordinal)
            && !minor::must_keep_minor(view, *ordinal)
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

/// Restarts the next member with the current pod template, or says what that waits for; none if there is none to restart.
pub fn decide(view: &ClusterView<'_>, known: &Known, persisted: &PersistedState) -> Option<FlowDecision> {
    let observed = view.observed;
    let set = observed.set.as_ref()?;
    let rollout = persisted.rollout.as_ref()?;
    if let Some(request) = backup_first::decide(view, persisted) {
        return Some(request);
    }
    if let Some(downgrade) = downgrade::decide(view, persisted) {
        return Some(downgrade);
    }
    if !may_restart_members(view, persisted) {
        return None;
    }
    let waits = |text: &str| Some(FlowDecision::without_operation(Reason::RollingOut, text));
    if may_update_template(view, persisted) {
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
        return Some(FlowDecision::without_operation(Reason::Blocked, text).with_blockers(vec![blocker]));
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
        [] if gate::is_change_refused(view) => None,
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
        let decision = waits("Waiting for every voter to be healthy before the next member is restarted.");
        return decision.map(|decision| decision.with_blockers(blockers.collect()));
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
    let last = minor::leaves_lower_minor(view, *ordinal).then(|| wait_before_last(view, *ordinal));
    if let Some(wait) = last.flatten() {
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
    if surge::replaces_members(view) {
        let wanted = usize::from(observed.desired.size.get());
        let is_complete = unhealthy.is_empty() && known.voters().count() == wanted;
        let is_stopped = !unhealthy.is_empty() && will_not_serve(view, pod);
        return (is_complete || is_stopped)
            .then(|| replace::begin(view, known, *ordinal, member.id, Cause::Outdated, 1))?;
    }
    Some(restart(
        view,
        known,
        (*ordinal, pod, member),
        !unhealthy.is_empty(),
        outdated.len(),
    ))
}

/// Whether etcd does not run in a pod that has its data, and will not without help: it keeps another member from joining. Where
/// it has served with its template, its data are a copy, which only goes once others serve with the changed template.
fn will_not_serve(view: &ClusterView<'_>, pod: &Pod) -> bool {
    let set = view.observed.set.as_ref();
    let spec_hash = set.and_then(|set| set.spec_hash.as_deref());
    let is_change_served =
        spec_hash.is_some_and(|spec_hash| view.observed.persisted.has_served_spec(spec_hash));
    pod.container != Container::Running
        && (!view.has_served_template(pod) || (pod.is_crash_looping && is_change_served))
}

/// Whether this operator restarts members of the cluster at all. During a restore their pods are the restore's.
fn may_restart_members(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let strategy = view.observed.desired.updates.strategy;
    persisted.rollout.is_some() && !is_restoring && strategy == UpdateStrategy::Automatic
}

/// Whether members are restarted one by one now, and nobody joins or leaves meanwhile.
pub fn restarts_members(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    may_restart_members(view, persisted)
        && !surge::replaces_members(view)
        && persisted.pending.is_none()
        && outdated_pods(view).next().is_some()
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

/// The leader comes last, so that leadership moves once: to a member that stays.
fn next_member<'a, 'b>(
    known: &Known,
    outdated: &'a [(Ordinal, &'b Pod, &'b Member)],
) -> Option<&'a (Ordinal, &'b Pod, &'b Member)> {
    outdated
        .iter()
        .min_by_key(|(ordinal, _, member)| (known.leader == Some(member.id), *ordinal))
}

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
    if !is_unhealthy && let Some(step) = remove::move_leadership(view, known, ordinal, member.id) {
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

/// Pods that were made from another template than the one that the StatefulSet has now, by what the user asked for.
pub fn outdated_pods<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
    observed.members.iter().filter_map(move |(ordinal, member)| {
        let pod = member.pod.as_ref().filter(|pod| pod.deleting.is_none())?;
        has_other_spec_hash(pod, made_for).then_some((*ordinal, pod))
    })
}

/// Whether the pod at a place was made from another template than the one that the StatefulSet has now.
pub fn is_outdated(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    outdated_pods(view).any(|(outdated, _)| outdated == ordinal)
}

/// Why a voter cannot do without any of the others; none if it serves.
fn voter_problem(view: &ClusterView<'_>, known: &Known, voter: &Member) -> Option<MemberProblem> {
    let Some(ordinal) = view.ordinal(voter) else {
        return Some(MemberProblem::NotOfThisCluster { id: voter.id });
    };
    let pod = view.observed.member(ordinal).pod.as_ref();
    if pod.is_some_and(|pod| pod.deleting.is_some()) {
        return Some(MemberProblem::PodTerminating);
    }
    if !view.is_healthy(known, voter) {
        return Some(formed::describe_unhealthy(view, ordinal));
    }
    // Under the alarm NOSPACE members that serve may not be ready, and a larger quota cures it.
    let alarms = &view.observed.alarms;
    let is_excused = alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace);
    let is_ready = pod.is_some_and(|pod| pod.ready);
    (!is_ready && !is_excused).then_some(MemberProblem::PodNotReady)
}

/// When a client has given up a connection that nothing answers: gRPC gives an attempt 20 seconds.
pub const RECONNECTED_AFTER: SignedDuration = SignedDuration::from_secs(21);

/// The others of a restarted member, each with its ID: all of them must serve right before its pod goes.
pub type OtherVoters = Vec<(Ordinal, MemberId)>;
