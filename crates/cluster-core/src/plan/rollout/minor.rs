//! Changes of the minor version. Each begins only when every member is healthy on the version before it, and can be reversed
//! until the last member of the lower minor version goes: from then on etcd raises the version of the cluster, and members of
//! the lower one cannot start any more.

use std::collections::BTreeSet;
use std::fmt;

use etcd_operator_etcd_types::version::{Minor, Version};
use jiff::SignedDuration;

use super::pending_cause::PendingCause;
use super::versions::{
    STORAGE_VERSION_SINCE, is_next_minor, is_previous_minor, is_returning, member_versions,
    members_of_lower_minor, minor_of, template_version,
};
use super::{downgrade_status, health, log_snapshot};
use crate::blocker::Blocker;
use crate::observed_state::Ordinal;
use crate::persisted_state::{PersistedState, Rollout};
use crate::plan::cluster_view::ClusterView;

/// The minor version whose members do not run beside those of the next one while authentication is enabled.
const WITHOUT_AUTHENTICATION: Minor = Minor::V3_4;

/// Whether the cluster has no pods, and its pod template is of a newer minor version than the spec asks for: members that never ran
/// it are to start with their own.
pub fn is_return_asleep(view: &ClusterView<'_>) -> bool {
    let observed = view.observed;
    let template = template_version(view);
    let is_lower = template.is_some_and(|template| Minor::of(&observed.wanted.version) < Minor::of(template));
    // The cluster version may have risen, though no member has told that it runs the newer one.
    let rollout = observed.persisted.rollout.as_ref();
    let is_over = rollout.is_some_and(|rollout| rollout.reversible == Some(false));
    is_lower && !is_over && !observed.has_pods() && !is_previous_minor(view)
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
    if downgrade_status::is_enabled(view) {
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

/// The blocker of a change from 3.4 while authentication is enabled, as 3.4 and 3.5 then cannot run side by side.
/// `None` for any other change, and while it is unknown (`wait_before_next_minor`).
pub fn blocker(view: &ClusterView<'_>) -> Option<Blocker> {
    let observed = view.observed;
    let template = template_version(view)?;
    let is_rejected = is_next_minor(view)
        && Minor::of(template) == Some(WITHOUT_AUTHENTICATION)
        && observed.is_auth_enabled == Some(true);
    is_rejected.then_some(Blocker::AuthenticationEnabled)
}

/// Whether a restart would take the member at an ordinal from the lower minor version although the spec asks for no
/// newer one by now. False if all members run one minor version, or the pod template has returned to its own.
pub fn must_keep_minor(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let own = minor_of(&member_versions(view), ordinal);
    let would_leave = template_version(view).is_none_or(|template| Minor::of(template) > own);
    would_leave && is_returning(view) && members_of_lower_minor(view).contains(&ordinal)
}

/// Whether the member at an ordinal is the last one of the lower minor version, also where it is the only member: once
/// it is gone, the cluster cannot return to that.
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

/// What the last member of the lower minor version still stays for; `None` for any other member, and once the others
/// have been ready for `updates.minReadySeconds`.
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
        [] if has_left_minor(view, rollout) || rollout.reversible == Some(false) => Some(false),
        // Whoever was to run the newer one does not, and counts with what it ran before.
        [] if !is_template_ahead(view) => None,
        _ if is_returning(view) => None,
        _ => Some(true),
    }
}

/// Whether the pod template is of a newer minor version than every member, and at least one member answers with its own
/// and is not being deleted.
fn is_template_ahead(view: &ClusterView<'_>) -> bool {
    let template = template_version(view).and_then(Minor::of);
    let versions = member_versions(view);
    let is_lower = |version: &Version| Minor::of(version) < template;
    let mut members = view.observed.members.values();
    let stays = members.any(|member| {
        let pod = member.pod.as_ref().filter(|pod| pod.deleting.is_none());
        pod.and(member.status())
            .is_some_and(|status| is_lower(&status.version))
    });
    stays && versions.values().flatten().all(is_lower)
}

/// Whether the members have left the minor version that the lowest of them had when the rollout was last looked at.
fn has_left_minor(view: &ClusterView<'_>, rollout: &Rollout) -> bool {
    let left = rollout.path.as_ref().and_then(|path| Minor::of(path.left()?));
    let versions = member_versions(view);
    let lowest = versions.values().flatten().min().and_then(Minor::of);
    left.is_some() && left < lowest
}
