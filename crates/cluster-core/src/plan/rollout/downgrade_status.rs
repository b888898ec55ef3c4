//! What etcd says of a downgrade, by its members that answer. Pure.

use std::cmp::Reverse;

use etcd_operator_etcd_types::status::{Downgrade, Status};
use etcd_operator_etcd_types::version::Minor;

use crate::observed_state::{ObservedMember, Ordinal};
use crate::plan::cluster_view::ClusterView;

/// The processes of this cluster that answer. At the address of a pod that is gone another cluster may answer by now.
pub fn answering<'a>(view: &ClusterView<'a>) -> impl Iterator<Item = (Ordinal, &'a Status)> {
    let cluster = view.observed.persisted.cluster;
    let members = view.observed.members.iter();
    members.filter_map(move |(ordinal, member): (&Ordinal, &ObservedMember)| {
        let status = member.status()?;
        (cluster == Some(status.position.cluster)).then_some((*ordinal, status))
    })
}

/// The member that says that a downgrade is enabled, and to which minor version, if that can be read. The most advanced
/// one that follows a leader counts: one that is cut off tells what was. `None` if that one says no, or none tells, as
/// before 3.6.
pub fn enabled(view: &ClusterView<'_>) -> Option<(Ordinal, Option<Minor>)> {
    let telling = answering(view).filter(|(_, status)| status.downgrade.is_some());
    let (ordinal, status) = telling.max_by_key(|(ordinal, status)| {
        let index = status.applied.unwrap_or(status.raft_index);
        (status.leader.is_some(), index, Reverse(*ordinal))
    })?;
    match &status.downgrade {
        Some(Downgrade::Enabled { target }) => Some((ordinal, target.as_ref().and_then(Minor::of))),
        Some(Downgrade::Disabled) | None => None,
    }
}

/// Whether a downgrade is enabled, as far as members tell (`enabled`).
pub fn is_enabled(view: &ClusterView<'_>) -> bool {
    enabled(view).is_some()
}

/// Whether a downgrade to this minor version is enabled; false if its target cannot be read.
pub fn is_enabled_for(view: &ClusterView<'_>, minor: Option<Minor>) -> bool {
    minor.is_some() && enabled(view).is_some_and(|(_, target)| target == minor)
}
