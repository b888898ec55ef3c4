//! The versions that members go through while the version changes, from the one that they ran before. Pure.

use std::cmp::Ordering;

use etcd_operator_etcd_types::version::{Minor, Version};

use super::versions;
use crate::persisted_state::VersionPath;
use crate::plan::cluster_view::ClusterView;

/// The path from here to what the spec asks for; none if every member has told that it runs that. `before` is what was known of it:
/// the versions that all members have left stay, unless the spec leads the other way by now.
pub fn version_path(view: &ClusterView<'_>, before: Option<&VersionPath>) -> Option<VersionPath> {
    let wanted = &view.observed.wanted;
    let Some(left_first) = left_first(versions::told_versions(view), wanted.target()) else {
        return before.cloned();
    };
    let mut ahead: Vec<_> = [left_first, &wanted.version]
        .into_iter()
        .chain(&wanted.later_versions)
        .cloned()
        .collect();
    ahead.dedup();
    if ahead.len() < 2 {
        return None;
    }
    let before = before.filter(|before| direction(&before.versions) == direction(&ahead));
    let passed = before.and_then(|before| {
        let mut versions = before.versions.iter();
        let passed = versions.position(|version| version == left_first)?;
        before.versions.get(..passed)
    });
    let passed = passed.unwrap_or_default();
    Some(VersionPath {
        step: passed.len() + 1,
        versions: passed.iter().chain(&ahead).cloned().collect(),
    })
}

/// The version that members leave first: the lowest on the way up, and the highest on the way down.
fn left_first<'a>(
    running: impl Iterator<Item = &'a Version> + Clone,
    target: &Version,
) -> Option<&'a Version> {
    let highest = running.clone().max()?;
    if Minor::of(highest) > Minor::of(target) {
        return Some(highest);
    }
    running.min()
}

/// Whether versions lead to a newer minor version, to a lower one, or to another patch of the same.
fn direction(versions: &[Version]) -> Option<Ordering> {
    let (first, last) = versions.first().zip(versions.last())?;
    Some(Minor::of(first).cmp(&Minor::of(last)))
}
