//! Changes of the minor version. Each begins only when every member is healthy on the version before it, and can be reversed
//! until the last member of the lower minor version goes: from then on etcd raises the version of the cluster, and members of
//! the lower one cannot start any more.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_etcd::version::{Minor, Version};
use jiff::SignedDuration;

use super::{PendingCause, gate};
use crate::blocker::Blocker;
use crate::observed_state::Ordinal;
use crate::persisted_state::PersistedState;
use crate::plan::ClusterView;

/// The minor version whose members do not run beside those of the next one while authentication is enabled.
const WITHOUT_AUTHENTICATION: Minor = Minor::V3_4;
/// The first minor version whose members tell the version of their files.
const STORAGE_VERSION_SINCE: Minor = Minor::V3_6;

/// The version that each member runs, or ran when it was last seen. One whose pod was made from the current pod template may
/// start with the version of that at any moment. None where nobody ever told.
pub fn member_versions(view: &ClusterView<'_>) -> BTreeMap<Ordinal, Option<Version>> {
    let observed = view.observed;
    let set = observed.set.as_ref();
    let ordinals = observed.persisted.members.keys().copied();
    let version = |ordinal: Ordinal| {
        let member = observed.member(ordinal);
        if let Some(status) = member.status() {
            return Some(status.version.clone());
        }
        let of_template = set.filter(|set| {
            let pod = member.pod.as_ref();
            pod.is_some_and(|pod| pod.spec_hash.is_some() && pod.spec_hash == set.spec_hash)
        });
        let of_template = of_template.and_then(|set| set.version.as_ref());
        observed.recorded_versions.get(&ordinal).max(of_template).cloned()
    };
    ordinals.map(|ordinal| (ordinal, version(ordinal))).collect()
}

/// Whether the pod template is to change to a newer minor version.
pub fn is_next_minor(view: &ClusterView<'_>) -> bool {
    let template = view.observed.set.as_ref().and_then(|set| set.version.as_ref());
    template.is_some_and(|template| Minor::of(&view.observed.wanted.version) > Minor::of(template))
}

/// Whether every member runs a newer minor version than the pod template names: nothing that is made from it could start.
pub fn is_template_behind(view: &ClusterView<'_>) -> bool {
    let template = view.observed.set.as_ref().and_then(|set| set.version.as_ref());
    let versions = member_versions(view);
    let lowest = versions.values().flatten().min();
    template
        .zip(lowest)
        .is_some_and(|(template, lowest)| Minor::of(template) < Minor::of(lowest))
}

/// What a newer minor version waits for; none if the pod template may change to it.
pub fn wait_before_next_minor(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<PendingCause> {
    let observed = view.observed;
    let Some(known) = view.known() else {
        return Some(PendingCause::Members);
    };
    if !gate::are_members_settled(view, persisted) || !gate::are_all_voters_healthy(view, known) {
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
    (minor >= STORAGE_VERSION_SINCE && !is_stored).then_some(PendingCause::StorageVersion)
}

/// What the user has to change before the next minor version.
pub fn blocker(view: &ClusterView<'_>) -> Option<Blocker> {
    let observed = view.observed;
    let template = observed.set.as_ref().and_then(|set| set.version.as_ref())?;
    let is_rejected = is_next_minor(view)
        && Minor::of(template) == Some(WITHOUT_AUTHENTICATION)
        && observed.is_auth_enabled == Some(true);
    is_rejected.then_some(Blocker::AuthenticationEnabled)
}

/// The members that run a lower minor version than the pod template names.
fn members_of_lower_minor(view: &ClusterView<'_>) -> Vec<Ordinal> {
    let template = view.observed.set.as_ref().and_then(|set| set.version.as_ref());
    let Some(template) = template.and_then(Minor::of) else {
        return Vec::new();
    };
    let is_lower = |version: &Version| Minor::of(version).is_some_and(|minor| minor < template);
    let versions = member_versions(view).into_iter();
    let lower = versions.filter(|(_, version)| version.as_ref().is_some_and(is_lower));
    lower.map(|(ordinal, _)| ordinal).collect()
}

/// Whether the member at a place is the last one of the lower minor version: once it is gone, nobody can return to that.
pub fn is_last_of_lower_minor(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    members_of_lower_minor(view) == [ordinal]
}

/// How long the last member of the lower minor version still stays, as the others have to show first that they serve.
pub fn wait_before_last(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<SignedDuration> {
    let observed = view.observed;
    if !is_last_of_lower_minor(view, ordinal) {
        return None;
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
    (shortest < wanted).then(|| wanted.saturating_sub(shortest))
}

/// Whether setting the spec back returns the members to the lower minor version; none before a minor version changes. `was` is
/// what was known before.
pub fn is_reversible(view: &ClusterView<'_>, restarting: Option<Ordinal>, was: Option<bool>) -> Option<bool> {
    let template = view.observed.set.as_ref().and_then(|set| set.version.as_ref());
    // It is being set back.
    if template.and_then(Minor::of) > Minor::of(&view.observed.wanted.version) {
        return None;
    }
    match members_of_lower_minor(view)[..] {
        [] => was.map(|_| false),
        // It was decided that it goes, and it may be gone at any moment.
        [last] if Some(last) == restarting && was == Some(false) => was,
        _ => Some(true),
    }
}
