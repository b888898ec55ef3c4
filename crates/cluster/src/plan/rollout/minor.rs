//! Changes of the minor version. Each begins only when every member is healthy on the version before it, and can be reversed
//! until the last member of the lower minor version goes: from then on etcd raises the version of the cluster, and members of
//! the lower one cannot start any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use etcd_operator_etcd::version::{Minor, Version};
use jiff::SignedDuration;

use super::pending_cause::PendingCause;
use super::{downgrade, health, log_snapshot};
use crate::blocker::Blocker;
use crate::desired::Image;
use crate::observed_state::{Container, Ordinal};
use crate::persisted_state::{PersistedState, Rollout};
use crate::plan::cluster_view::ClusterView;

/// The minor version whose members do not run beside those of the next one while authentication is enabled.
const WITHOUT_AUTHENTICATION: Minor = Minor::V3_4;
/// The first minor version whose members tell the version of their files.
pub const STORAGE_VERSION_SINCE: Minor = Minor::V3_6;

/// The version that each member runs, or ran when it was last seen. One that does not answer counts as if it ran what its pod is
/// made from, or will be made from, if that is newer: it may be starting with it. None where no member ever told.
pub fn member_versions(view: &ClusterView<'_>) -> BTreeMap<Ordinal, Option<Version>> {
    let observed = view.observed;
    let version = |ordinal: Ordinal| {
        if let Some(status) = observed.member(ordinal).status() {
            return Some(status.version.clone());
        }
        let recorded = observed.recorded_versions.get(&ordinal);
        let of_template = observed.set.as_ref().filter(|_| may_run_template(view, ordinal));
        recorded
            .max(of_template.and_then(|set| set.version.as_ref()))
            .cloned()
    };
    let ordinals = observed.persisted.members.keys();
    ordinals.map(|ordinal| (*ordinal, version(*ordinal))).collect()
}

/// Whether etcd may run, or start at any moment, with the current pod template where no member answers.
fn may_run_template(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let observed = view.observed;
    let Some(set) = &observed.set else {
        return false;
    };
    let Some(pod) = &observed.member(ordinal).pod else {
        return ordinal.get() < set.replicas;
    };
    if pod.spec_hash.is_none() || pod.spec_hash != set.spec_hash {
        return false;
    }
    let recorded = observed.recorded_versions.get(&ordinal);
    // The cluster version would have risen with the last member of a lower one.
    let has_not_risen = || {
        let cluster_version = observed.cluster_version.as_ref().and_then(Minor::of);
        cluster_version.is_some() && cluster_version == recorded.and_then(Minor::of)
    };
    let is_stopped = pod.container != Container::Running || view.refused_image(ordinal).is_some();
    !(is_stopped && (!view.has_served_template(pod) || has_not_risen()))
}

/// The version of etcd in the pod template.
fn template_version<'a>(view: &ClusterView<'a>) -> Option<&'a Version> {
    view.observed.set.as_ref()?.version.as_ref()
}

/// Whether the cluster version is needed to tell which versions members can have.
pub fn needs_cluster_version(view: &ClusterView<'_>, target: &Version) -> bool {
    let versions = member_versions(view);
    let mut versions = versions.values().flatten().chain(template_version(view));
    view.observed.persisted.has_formed() && versions.any(|version| Minor::of(version) != Minor::of(target))
}

/// Whether the pod template is to change to a minor version that no member runs yet.
pub fn is_next_minor(view: &ClusterView<'_>) -> bool {
    let template = template_version(view);
    let wanted = Minor::of(&view.observed.wanted.version);
    let versions = member_versions(view);
    let mut versions = versions.values().flatten();
    template.is_some_and(|template| wanted > Minor::of(template))
        && !versions.any(|version| Minor::of(version) >= wanted)
}

/// Whether every member that answers, and the cluster as such, is of a newer minor version than the pod template: etcd could not
/// start with that.
pub fn is_template_behind(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let template = template_version(view);
    let running = view.oldest_running_version();
    let Some((template, running)) = template.zip(running) else {
        return false;
    };
    // An image of another version than its template names helps no member.
    if let Image::Whole { version, .. } = &observed.desired.image
        && Minor::of(version) != Minor::of(running)
    {
        return false;
    }
    let is_newer = |version: &Version| Minor::of(version) > Minor::of(template);
    is_newer(running) && observed.cluster_version.as_ref().is_some_and(is_newer)
}

/// Whether the cluster has no pods, and its pod template is of a newer minor version than the spec asks for: members that never ran
/// it are to start with their own.
pub fn is_return_asleep(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let template = template_version(view);
    let is_lower = template.is_some_and(|template| Minor::of(&observed.wanted.version) < Minor::of(template));
    // The cluster version may have risen, though no member has told that it runs the newer one.
    let rollout = observed.persisted.rollout.as_ref();
    let is_over = rollout.is_some_and(|rollout| rollout.reversible == Some(false));
    is_lower && !is_over && !observed.has_pods() && !downgrade::is_previous_minor(view)
}

/// What another minor version waits for; none if the pod template may change to a newer one, or a downgrade may be enabled.
pub fn wait_before_next_minor(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<PendingCause> {
    let observed = view.observed;
    let Some(known) = view.known() else {
        return Some(PendingCause::Members);
    };
    if !health::are_members_settled(view, persisted) || !health::are_all_voters_healthy(view, known) {
        return Some(PendingCause::Members);
    }
    let statuses: Vec<_> = observed
        .members
        .values()
        .filter_map(|member| member.status())
        .collect();
    let minors: BTreeSet<_> = statuses.iter().map(|status| Minor::of(&status.version)).collect();
    let [Some(minor)] = minors.into_iter().collect::<Vec<_>>()[..] else {
        return Some(PendingCause::Members);
    };
    if downgrade::is_enabled(view) {
        return Some(PendingCause::DowngradeEnabled);
    }
    if minor == WITHOUT_AUTHENTICATION && observed.is_auth_enabled.is_none() {
        return Some(PendingCause::Authentication);
    }
    if observed.cluster_version.as_ref().and_then(Minor::of) != Some(minor) {
        return Some(PendingCause::ClusterVersion);
    }
    let has_storage_version = |version: Option<&String>| {
        version.and_then(|version| Minor::of(&version.parse().ok()?)) == Some(minor)
    };
    let is_stored = statuses
        .iter()
        .all(|status| has_storage_version(status.storage_version.as_ref()));
    if minor >= STORAGE_VERSION_SINCE && !is_stored {
        return Some(PendingCause::StorageVersion);
    }
    log_snapshot::pending(view, persisted).map(PendingCause::LogSnapshot)
}

/// What the user has to change before the next minor version.
pub fn blocker(view: &ClusterView<'_>) -> Option<Blocker> {
    let observed = view.observed;
    let template = template_version(view)?;
    let is_rejected = is_next_minor(view)
        && Minor::of(template) == Some(WITHOUT_AUTHENTICATION)
        && observed.is_auth_enabled == Some(true);
    is_rejected.then_some(Blocker::AuthenticationEnabled)
}

/// The members of the lower minor version while members run two of them.
fn members_of_lower_minor(view: &ClusterView<'_>) -> Vec<Ordinal> {
    let versions = member_versions(view);
    let minors = versions.iter().filter_map(|(ordinal, version)| {
        let minor = Minor::of(version.as_ref()?)?;
        Some((minor, *ordinal))
    });
    let minors: Vec<_> = minors.collect();
    let lowest = minors.iter().map(|(minor, _)| *minor).min();
    let highest = minors.iter().map(|(minor, _)| *minor).max();
    let lower = minors
        .iter()
        .filter(|(minor, _)| Some(*minor) == lowest && lowest < highest);
    lower.map(|(_, ordinal)| *ordinal).collect()
}

fn minor_of(versions: &BTreeMap<Ordinal, Option<Version>>, ordinal: Ordinal) -> Option<Minor> {
    Minor::of(versions.get(&ordinal)?.as_ref()?)
}

/// Whether members run two minor versions.
pub fn is_mixed(view: &ClusterView<'_>) -> bool {
    !members_of_lower_minor(view).is_empty()
}

/// Whether the spec is set back to a lower minor version than some members run, or cannot be followed.
pub fn is_returning(view: &ClusterView<'_>) -> bool {
    let wanted = &view.observed.wanted;
    let versions = member_versions(view);
    let highest = versions.values().flatten().max();
    wanted.version_blocker.is_some()
        || highest.is_some_and(|highest| Minor::of(highest) > Minor::of(&wanted.version))
}

/// Whether the member at a place must not leave the lower minor version, as the spec asks for no newer one by now. With a pod
/// template that has returned to that version, a restart leaves nothing.
pub fn must_keep_minor(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let own = minor_of(&member_versions(view), ordinal);
    let would_leave = template_version(view).is_none_or(|template| Minor::of(template) > own);
    would_leave && is_returning(view) && members_of_lower_minor(view).contains(&ordinal)
}

/// Whether the member at a place is the last one of the lower minor version, also where it is the only member: once it is gone,
/// the cluster cannot return to that.
pub fn is_last_of_lower_minor(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let versions = member_versions(view);
    let own = minor_of(&versions, ordinal);
    if own.is_some() && versions.len() == 1 {
        return own < template_version(view).and_then(Minor::of);
    }
    members_of_lower_minor(view) == [ordinal]
}

/// Whether the last member of the lower minor version restarts with the newer one, and not with its own again.
pub fn leaves_lower_minor(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let own = minor_of(&member_versions(view), ordinal);
    is_last_of_lower_minor(view, ordinal)
        && template_version(view).is_none_or(|template| Minor::of(template) > own)
}

/// What the last member of the lower minor version still stays for before it restarts with the newer one.
pub fn wait_before_leaving(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<WaitBeforeLast> {
    let leaves = leaves_lower_minor(view, ordinal);
    leaves.then(|| wait_before_last(view, ordinal)).flatten()
}

/// What keeps the last member of the lower minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitBeforeLast {
    /// The others have to have been ready for so long.
    Ready(SignedDuration),
    /// The others return to its version first.
    Return,
    /// The spec asks for a version that the members cannot be brought to.
    VersionBlocked,
}

/// What the last member of the lower minor version still stays for.
pub fn wait_before_last(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<WaitBeforeLast> {
    let observed = view.observed;
    if !is_last_of_lower_minor(view, ordinal) {
        return None;
    }
    if observed.wanted.version_blocker.is_some() {
        return Some(WaitBeforeLast::VersionBlocked);
    }
    if is_returning(view) {
        return Some(WaitBeforeLast::Return);
    }
    let wanted = SignedDuration::try_from(observed.desired.updates.min_ready).unwrap_or(SignedDuration::MAX);
    let others = observed
        .persisted
        .members
        .keys()
        .filter(|other| **other != ordinal);
    let ready_for = |other: &Ordinal| {
        let since = observed
            .member(*other)
            .pod
            .as_ref()
            .and_then(|pod| pod.ready_since);
        since.map_or(SignedDuration::ZERO, |since| observed.now.duration_since(since))
    };
    let shortest = others.map(ready_for).min()?;
    (shortest < wanted).then_some(WaitBeforeLast::Ready(wanted))
}

impl fmt::Display for WaitBeforeLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(time) => write!(
                f,
                "waiting until the others have been ready for {} seconds",
                time.as_secs()
            ),
            Self::Return => f.write_str("waiting until the others have returned to its version"),
            Self::VersionBlocked => {
                f.write_str("waiting until the spec names a version to which the members can be brought")
            }
        }
    }
}

/// Whether setting the spec back returns the members to the lower minor version; none before a minor version changes. `rollout`
/// is what was known before.
pub fn is_reversible(view: &ClusterView<'_>, rollout: &Rollout) -> Option<bool> {
    let lower = members_of_lower_minor(view);
    let restarting = rollout.current.as_ref().map(|current| current.ordinal);
    let is_last_restarting = restarting.is_some_and(|restarting| lower == [restarting]);
    // It was decided that the last one goes, and it may be gone at any moment. Without pods, no member tells what it ran last.
    let is_over = rollout.reversible == Some(false) && (is_last_restarting || !view.observed.has_pods());
    match lower[..] {
        _ if is_over => Some(false),
        [] if has_left_minor(view, rollout) => Some(false),
        // Whoever was to run the newer one does not, and counts with what it ran before.
        [] => rollout.reversible.filter(|reversible| !reversible),
        _ if is_returning(view) => None,
        _ => Some(true),
    }
}

/// Whether the members have left the minor version that the lowest of them had when the rollout was last looked at.
fn has_left_minor(view: &ClusterView<'_>, rollout: &Rollout) -> bool {
    let left = rollout.path.as_ref().and_then(|path| {
        let left = path.versions.get(path.step.checked_sub(1)?)?;
        Minor::of(left)
    });
    let versions = member_versions(view);
    let lowest = versions.values().flatten().min().and_then(Minor::of);
    left.is_some() && left < lowest
}
