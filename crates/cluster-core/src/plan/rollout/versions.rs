//! Which versions of etcd the members run, and how those of the pod template and of the spec stand to them. Pure.

use std::collections::BTreeMap;

use etcd_operator_etcd_types::version::{Minor, Version};

use crate::desired::Image;
use crate::observed_state::{Container, Ordinal};
use crate::plan::cluster_view::ClusterView;

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

/// The version that the member at an ordinal told last. One that restarts with another version has that once it answers.
pub fn told_version<'a>(view: &ClusterView<'a>, ordinal: Ordinal) -> Option<&'a Version> {
    let observed = view.observed;
    let status = observed.member(ordinal).status().map(|status| &status.version);
    status.or_else(|| observed.recorded_versions.get(&ordinal))
}

/// The versions that the members told last; a member that never told one is left out.
pub fn told_versions<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = &'a Version> + Clone {
    let ordinals = view.observed.persisted.members.keys();
    ordinals.filter_map(|ordinal| told_version(view, *ordinal))
}

/// The last known versions of members that do not answer and may be starting with the pod template, where that names
/// another version.
pub fn versions_before_restart<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = &'a Version> {
    let observed = view.observed;
    let restarts =
        observed.persisted.members.keys().filter(|ordinal| {
            observed.member(**ordinal).status().is_none() && may_run_template(view, **ordinal)
        });
    let template = template_version(view);
    let told = restarts.filter_map(|ordinal| told_version(view, *ordinal));
    told.filter(move |version| template.is_some_and(|template| template != *version))
}

/// Whether a member restarts with another minor version and has not told yet that it runs it.
pub fn restarts_with_another_minor(view: &ClusterView<'_>) -> bool {
    let template = template_version(view).and_then(Minor::of);
    versions_before_restart(view).any(|version| Minor::of(version) != template)
}

/// Whether etcd may run, or start at any moment, with the current pod template where no member answers. False if the
/// pod has another spec hash, or has stopped and has not served with it as far as is known.
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
pub fn template_version<'a>(view: &ClusterView<'a>) -> Option<&'a Version> {
    view.observed.set.as_ref()?.version.as_ref()
}

/// Whether the cluster version must be read from etcd: a member or the pod template has another minor version than the
/// target. False before the cluster has formed.
pub fn needs_cluster_version(view: &ClusterView<'_>, target: &Version) -> bool {
    let versions = member_versions(view);
    let mut versions = versions.values().flatten().chain(template_version(view));
    view.observed.persisted.has_formed() && versions.any(|version| Minor::of(version) != Minor::of(target))
}

/// Whether the pod template is to change to a newer minor version, and no member runs that or a newer one yet.
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

/// The members of the lower minor version while members run two of them; else empty.
pub fn members_of_lower_minor(view: &ClusterView<'_>) -> Vec<Ordinal> {
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

/// The minor version of the member at an ordinal among `versions`; `None` if its version is unknown or is no known
/// minor.
pub fn minor_of(versions: &BTreeMap<Ordinal, Option<Version>>, ordinal: Ordinal) -> Option<Minor> {
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

/// Whether the pod template is to change to a lower minor version than every member runs.
pub fn is_previous_minor(view: &ClusterView<'_>) -> bool {
    let wanted = Minor::of(&view.observed.wanted.version);
    let is_lower = template_version(view).is_some_and(|template| wanted < Minor::of(template));
    is_lower && lowest_member(view).is_some_and(|lowest| wanted < Some(lowest))
}

/// The lowest minor version in [`member_versions`], where a silent member may count with the newer pod template. `None`
/// if no version is known, or if one of them is of a minor version that the operator does not know.
fn lowest_member(view: &ClusterView<'_>) -> Option<Minor> {
    let versions = member_versions(view);
    let minors = versions.values().flatten().map(Minor::of);
    minors.min().flatten()
}

/// Whether the pod template is of a lower minor version than every member runs, so that its pods start only while a downgrade
/// is enabled.
pub fn is_template_below(view: &ClusterView<'_>) -> bool {
    let template = template_version(view).and_then(Minor::of);
    let lowest = lowest_member(view);
    template.is_some() && lowest.is_some() && template < lowest
}

/// Whether the pod template returns to the minor version that every member runs. It does so at once: a downgrade is canceled
/// after that, and members that join meanwhile need it.
pub fn is_template_returning(view: &ClusterView<'_>) -> bool {
    is_template_below(view) && Minor::of(&view.observed.wanted.version) >= lowest_member(view)
}
