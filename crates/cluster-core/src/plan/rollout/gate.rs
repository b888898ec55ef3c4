//! When the pod template may change: from then on every pod that is re-created, for whatever reason, is a changed one.

use etcd_operator_api::cluster::UpdateStrategy;
use etcd_operator_etcd_types::membership::Member;
use etcd_operator_etcd_types::policy::floor;
use etcd_operator_etcd_types::version::{Minor, Version};

use super::backup_first::BackupFirst;
use super::health::are_members_settled;
use super::log_snapshot::LogSnapshot;
use super::pending_cause::PendingCause;
use super::{backup_first, downgrade, image_check, minor, stuck, surge, versions};
use crate::blocker::{Blocker, MemberProblem};
use crate::desired::DEFAULT_QUOTA;
use crate::observed_state::{Container, ObservedMember, Ordinal, Pod, PodAdmission};
use crate::persisted_state::{PersistedState, Restore};
use crate::plan::cluster_view::ClusterView;

/// Whether the spec asks for another pod template than the StatefulSet has; false without a StatefulSet.
pub fn is_template_changed(view: &ClusterView<'_>) -> bool {
    let set = view.observed.set.as_ref();
    set.is_some_and(|set| set.spec_hash.as_ref() != Some(&view.observed.wanted.spec_hash))
}

/// Whether the pod template of a formed cluster may become the one that is asked for: nothing holds the change, and it
/// is due and the API server admits its pods, or members could not start again with the present template. An image that no member
/// runs is tried before, unless all members are asleep.
pub fn may_update_template(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let is_due = || must_follow_members(view) || (is_update_due(view, persisted) && is_pod_admitted(view));
    is_change_wanted(view, persisted)
        && (minor::is_return_asleep(view) || (is_due() && image_check::is_passed(view, persisted)))
}

/// Whether nothing but the API server's dry run of the changed pod keeps the pod template from changing, or the backup that comes
/// before from being requested: else pods that are refused would cost a backup again and again.
pub fn needs_dry_run(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let requests_backup = || matches!(due_backup(view, persisted), BackupFirst::ToRequest(_));
    is_change_wanted(view, persisted)
        && !must_follow_members(view)
        && !image_check::is_resting(view.observed, persisted)
        && (is_update_due(view, persisted) || requests_backup())
}

/// Whether nothing but the check of its etcd image keeps the pod template from changing, the backup that comes before from being
/// requested, or a downgrade from being enabled. Members that never served with the template that keeps them from starting do not wait
/// for it: the new image is no worse for them.
pub fn needs_image_check(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let is_due = || {
        let is_ready = needs_dry_run(view, persisted)
            || (is_downgrade_due(view, persisted) && downgrade::is_backup_due(view, persisted));
        let follows = is_change_wanted(view, persisted) && must_follow_members(view);
        follows || (is_ready && is_pod_admitted(view))
    };
    !minor::is_return_asleep(view)
        && image_check::changes_image(view)
        && !image_check::is_resting(view.observed, persisted)
        // Only another try clears an image that was found bad.
        && (image_check::failure(view.observed, persisted).is_some() || !is_template_to_blame(view))
        && is_due()
}

/// Whether the members cannot start again with the minor version of the template. It then changes at once, without a
/// backup, the dry run, a slot or healthy members.
fn must_follow_members(view: &ClusterView<'_>) -> bool {
    minor::is_return_asleep(view)
        || versions::is_template_behind(view)
        || versions::is_template_returning(view)
}

/// Whether the members can take another pod template, or members may need it to start.
fn is_update_due(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    is_needed_to_start(view) || are_members_prepared(view, persisted)
}

/// Whether a member does not start and may need the change, and others may need that member. Another minor version that is not sure
/// to work helps no member.
fn is_needed_to_start(view: &ClusterView<'_>) -> bool {
    !versions::is_next_minor(view)
        && !versions::is_previous_minor(view)
        && (stuck::stuck_pods(view).next().is_some() || is_unserved_without_quorum(view))
}

/// Whether a voter does not start with the template that the StatefulSet has, and none has served with it: every pod that is re-created
/// would get it, and the next one is no worse. A voter that only restarts, has ended once or finds no node may serve with
/// it yet.
fn is_template_to_blame(view: &ClusterView<'_>) -> bool {
    let set = view.observed.set.as_ref();
    let present = set.and_then(|set| set.spec_hash.as_ref());
    let has_failed = |pod: &Pod| {
        let has_ended_once = matches!(pod.container, Container::Ended { .. }) && !pod.is_crash_looping;
        pod.unscheduled_since.is_none() && !has_ended_once
    };
    let mut stuck = voters_stuck_unserved(view);
    is_needed_to_start(view) && stuck.any(|pod| pod.spec_hash.as_ref() == present && has_failed(pod))
}

/// The pods of voters that are stuck with a template with which none has served. Any stuck pod counts while the membership is
/// unknown, as it may be one of a voter.
fn voters_stuck_unserved<'a>(view: &'a ClusterView<'_>) -> impl Iterator<Item = &'a Pod> {
    let is_voter = |ordinal| {
        let is_there = |voter: &Member| view.ordinal(voter) == Some(ordinal);
        view.known().is_none_or(|known| known.voters().any(is_there))
    };
    let stuck = stuck::stuck_pods(view).filter(|(_, pod)| !view.has_served_template(pod));
    stuck
        .filter(move |(ordinal, _)| is_voter(*ordinal))
        .map(|(_, pod)| pod)
}

/// Whether the members can be restarted with another pod template, but for what the API server says to that.
fn are_members_prepared(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    if versions::is_next_minor(view) {
        return may_change_minor(view, persisted) && backup_first::state(view, persisted).is_done();
    }
    if versions::is_previous_minor(view) {
        return view.observed.wanted.has_slot
            && downgrade::wait_before_template(view, persisted).is_none()
            && backup_first::state(view, persisted).is_done();
    }
    view.observed.wanted.has_slot
        && are_members_settled(view, persisted)
        && downgrade::are_others_lowered(view)
}

/// Whether etcd may be told to go down to the wanted minor version, but for what it says itself.
pub fn may_enable_downgrade(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    is_downgrade_due(view, persisted) && image_check::is_passed(view, persisted)
}

/// The same, but for what is known of the image.
fn is_downgrade_due(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    is_change_wanted(view, persisted)
        && versions::is_previous_minor(view)
        && view.observed.wanted.has_slot
        && backup_first::state(view, persisted).is_done()
}

/// Whether the API server would create the pods of the changed template, as far as it was asked. Without an answer, the template
/// changes only for voters that cannot start with the one they have: the changed one is no worse than theirs.
fn is_pod_admitted(view: &ClusterView<'_>) -> bool {
    match &view.observed.pod_admission {
        PodAdmission::NotAsked | PodAdmission::Admitted | PodAdmission::NotSupported { .. } => true,
        PodAdmission::Refused { .. } => false,
        PodAdmission::Unknown { .. } => {
            view.known().is_none() || voters_stuck_unserved(view).next().is_some()
        }
    }
}

/// Whether the change that the spec asks for by now cannot be made: the user must act, the API server does not create its pods, or
/// its image is not known to be usable. The one before it is not carried on meanwhile: the spec asks for it no more.
pub fn is_change_refused(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    // Whoever takes the consent to a downgrade back, or asks for a version that cannot be reached, changes no template.
    let is_version_refused =
        view.observed.wanted.version_blocker.is_some() && !versions::is_template_behind(view);
    is_version_refused
        || (is_template_changed(view)
            && (user_blocker(view).is_some()
                || !is_pod_admitted(view)
                || !image_check::is_passed(view, persisted)))
}

/// How far the backup before another minor version is. `NotNeeded` also while something else keeps the members from
/// that version, or, before it is requested, the API server does not admit the pods.
pub fn pending_backup(view: &ClusterView<'_>, persisted: &PersistedState) -> BackupFirst {
    match due_backup(view, persisted) {
        BackupFirst::ToRequest(_) if !is_pod_admitted(view) || !image_check::is_passed(view, persisted) => {
            BackupFirst::NotNeeded
        }
        backup => backup,
    }
}

/// How far the backup before another minor version is, whatever the API server says to the changed pods; `NotNeeded`
/// also while something else keeps the members from that version.
fn due_backup(view: &ClusterView<'_>, persisted: &PersistedState) -> BackupFirst {
    let is_due = if versions::is_next_minor(view) {
        !versions::is_template_behind(view) && may_change_minor(view, persisted)
    } else {
        versions::is_previous_minor(view)
            && view.observed.wanted.has_slot
            && downgrade::is_backup_due(view, persisted)
    };
    if is_change_wanted(view, persisted) && is_due {
        backup_first::state(view, persisted)
    } else {
        BackupFirst::NotNeeded
    }
}

/// The snapshot of the raft log that a newer minor version waits for, if it is due and entries have to be written for
/// it. `None` does not mean that every member has taken it: see `wait_before_next_minor`.
pub fn due_log_snapshot(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<LogSnapshot> {
    let is_due = is_change_wanted(view, persisted)
        && view.observed.wanted.has_slot
        && !versions::is_template_behind(view);
    match minor::wait_before_next_minor(view, persisted) {
        Some(PendingCause::LogSnapshot(snapshot)) if is_due && snapshot.missing > 0 => Some(snapshot),
        _ => None,
    }
}

/// Whether the spec asks for another pod template, and nothing holds the change: no restore, no pause, no hibernation, nothing that the
/// user must do first, and a rollout has been recorded.
fn is_change_wanted(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    let observed = view.observed;
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    is_template_changed(view)
        && !is_restoring
        && persisted.rollout.is_some()
        && (observed.desired.size.get() > 0 || minor::is_return_asleep(view))
        && observed.desired.updates.strategy != UpdateStrategy::Paused
        && user_blocker(view).is_none()
}

/// Whether members may run a newer minor version from now on, but for the backup that comes before it.
fn may_change_minor(view: &ClusterView<'_>, persisted: &PersistedState) -> bool {
    view.observed.wanted.has_slot && minor::wait_before_next_minor(view, persisted).is_none()
}

/// Whether no voter ever served with the pod template, and the membership is unknown: the template may be why, though
/// the pods run. It may change then, but running pods are left alone until the user deletes them.
fn is_unserved_without_quorum(view: &ClusterView<'_>) -> bool {
    let spec_hash = view
        .observed
        .set
        .as_ref()
        .and_then(|set| set.spec_hash.as_deref());
    let persisted = &view.observed.persisted;
    view.known().is_none()
        && !persisted.served_spec_hashes.is_empty()
        && spec_hash.is_some_and(|spec_hash| !persisted.has_served_spec(spec_hash))
}

/// A member whose image holds another minor version than the pod template names, from which its pod was made, or a patch that keeps the
/// members from the next version on their way.
pub fn lying_image(view: &ClusterView<'_>) -> Option<Blocker> {
    refused_image(view).or_else(|| image_that_runs(view))
}

/// A member with the current pod template whose guard does not start etcd, as its image holds another version.
pub fn refused_image(view: &ClusterView<'_>) -> Option<Blocker> {
    current_pods(view).find_map(|(ordinal, _, _)| {
        let problem = view.refused_image(ordinal)?;
        Some(Blocker::member(view.observed.name(ordinal), problem))
    })
}

/// A member with the current pod template that runs another minor version than the template names, or a patch for which
/// `keeps_from_next` holds.
fn image_that_runs(view: &ClusterView<'_>) -> Option<Blocker> {
    let named = view.observed.set.as_ref()?.version.as_ref()?;
    current_pods(view).find_map(|(ordinal, member, pod)| {
        let running = &member.status()?.version;
        let problem = MemberProblem::ImageVersionDiffers {
            image: pod.image.clone(),
            found: running.to_string(),
            named: named.to_string(),
            runs: true,
        };
        let is_another = Minor::of(running) != Minor::of(named) || keeps_from_next(view, running, named);
        is_another.then(|| Blocker::member(view.observed.name(ordinal), problem))
    })
}

/// The pods that were made from the pod template that the StatefulSet has.
fn current_pods<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = (Ordinal, &'a ObservedMember, &'a Pod)> {
    let observed = view.observed;
    let made_for = observed.set.as_ref().map(|set| &set.spec_hash);
    observed.members.iter().filter_map(move |(ordinal, member)| {
        let pod = member
            .pod
            .as_ref()
            .filter(|pod| Some(&pod.spec_hash) == made_for)?;
        Some((*ordinal, member, pod))
    })
}

/// Whether members that run this version never get beyond the one that the pod template names: that is only on the way,
/// and the next one cannot be reached from the older patch that the image really holds.
fn keeps_from_next(view: &ClusterView<'_>, running: &Version, named: &Version) -> bool {
    let wanted = &view.observed.wanted;
    let is_on_the_way = wanted.version == *named && !wanted.later_versions.is_empty();
    let goes_down = Minor::of(wanted.target()) < Minor::of(running);
    let is_too_old = Minor::of(running).is_some_and(|minor| running.patch < floor(minor));
    is_on_the_way && running < named && (goes_down || is_too_old)
}

/// Why the user must act before this change can be rolled out: the version cannot be reached, authentication is
/// enabled, encryption is switched, the quota is too small, or members without volumes are too few. `None` if nothing
/// is known.
pub fn user_blocker(view: &ClusterView<'_>) -> Option<Blocker> {
    let observed = view.observed;
    let set = observed.set.as_ref()?;
    // Where members could not even start again, the template follows them first.
    let blocker = observed.wanted.version_blocker.as_ref();
    let must_follow = versions::is_template_behind(view) || versions::is_template_returning(view);
    if let Some(blocker) = blocker.filter(|_| !must_follow) {
        return Some(blocker.clone());
    }
    if let Some(blocker) = minor::blocker(view) {
        return Some(blocker);
    }
    let tls = &observed.desired.tls;
    if tls.peer.is_some() != set.secure_peers || tls.client.is_some() != set.secure_clients {
        return Some(Blocker::EncryptionSwitched);
    }
    let quota = observed.desired.options.quota.unwrap_or(DEFAULT_QUOTA);
    let sizes = observed.members.values().filter_map(|member| member.status());
    let largest = sizes.map(|status| status.db_size).max().unwrap_or_default();
    if is_template_changed(view) && quota < largest.saturating_add(largest / 10) {
        return Some(Blocker::QuotaTooSmall { quota, largest });
    }
    if surge::replaces_members(view) && !surge::can_replace_members(observed) {
        return Some(Blocker::DataLivesWithPods);
    }
    None
}
