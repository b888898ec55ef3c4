//! What is told of each member. Only what changes rarely: where it runs, what it is, whether it is well.

use std::collections::BTreeSet;

use etcd_operator_api::cluster::MemberStatus;
use etcd_operator_etcd_types::membership::Role;

use super::unknown_fields;
use crate::observed_state::Ordinal;
use crate::persisted_state::{LEARNER, LastKnownIndex, PersistedState, VOTER};
use crate::plan::ClusterView;

/// What the status reports of the members.
#[derive(Debug, Default)]
pub struct MembersSummary {
    /// Each in detail.
    pub members: Vec<MemberStatus>,
    /// Those that clients are sent to.
    pub ready: Option<Vec<String>>,
    /// Those that they are not.
    pub unready: Option<Vec<String>>,
    /// The lowest version that a member runs, or ran when it was last seen; none where no member answers.
    pub version: Option<String>,
    /// Who leads.
    pub leader: Option<String>,
}

/// What the status reports of the members. One that does not answer keeps the version that it was last seen to run.
pub fn summarize(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
    before: &[MemberStatus],
) -> MembersSummary {
    let observed = view.observed;
    let pods = observed
        .members
        .iter()
        .filter(|(_, observed_member)| observed_member.pod.is_some());
    let ordinals: BTreeSet<Ordinal> = persisted
        .members
        .keys()
        .copied()
        .chain(pods.map(|(ordinal, _)| *ordinal))
        .collect();
    let mut summary = MembersSummary::default();
    let mut versions = Vec::new();
    let known = view.known();
    for ordinal in ordinals {
        let observed_member = observed.member(ordinal);
        let name = observed.name(ordinal);
        let member = known.and_then(|known| observed.etcd_member_in(known, ordinal));
        let record = persisted.members.get(&ordinal);
        let last_index = record.and_then(|record| record.last_index.as_ref());
        let was = before.iter().find(|was| was.name == name);
        let list = if observed_member
            .pod
            .as_ref()
            .is_some_and(|pod| pod.ready && pod.deleting.is_none())
        {
            &mut summary.ready
        } else {
            &mut summary.unready
        };
        list.get_or_insert_default().push(name.clone());
        let role = match member {
            Some(member) if member.role == Role::Voter => Some(VOTER),
            Some(_) => Some(LEARNER),
            None => record.map(|record| if record.is_voter { VOTER } else { LEARNER }),
        };
        // One that is silent for now comes back with what it ran last.
        let recorded_version = observed.recorded_versions.get(&ordinal);
        let version = observed_member
            .status()
            .map(|status| &status.version)
            .or(recorded_version.filter(|_| record.is_some()));
        versions.extend(version);
        let verdict = observed_member
            .report()
            .and_then(|report| serde_json::to_value(&report.verdict).ok())
            .and_then(|verdict| Some(verdict["kind"].as_str()?.to_owned()));
        let now = MemberStatus {
            id: record.map(|record| record.id.to_string()),
            role: role.map(str::to_owned),
            version: observed_member
                .status()
                .map(|status| status.version.to_string())
                .or_else(|| was.and_then(|was| was.version.clone())),
            healthy: known
                .zip(member)
                .is_some_and(|(known, member)| view.is_healthy(known, member)),
            node: observed_member.pod.as_ref().and_then(|pod| pod.node.clone()),
            volume: Some(observed.desired.storage.describe()),
            verdict,
            claim_uid: record.and_then(|record| record.claim.clone()),
            volume_name: record.and_then(|record| record.volume.clone()),
            pod_uid: last_index.map(|last_index| last_index.pod.clone()),
            raft_index: last_index.map(LastKnownIndex::as_i64),
            name,
            ..MemberStatus::default()
        };
        summary.members.push(unknown_fields::member(now, was));
    }
    let is_any_known = observed.members.values().any(|member| member.status().is_some());
    let lowest = versions.into_iter().min().filter(|_| is_any_known);
    summary.version = lowest.map(ToString::to_string);
    let leader = known.and_then(|known| known.members.get(&known.leader?));
    summary.leader = leader.map(|leader| view.display_name(leader));
    summary
}

/// Updates the Raft indexes of members. They are not worth a write of the status by themselves, so this is called only
/// if there is another change.
pub fn refresh(members: &mut [MemberStatus], view: &ClusterView<'_>) {
    for member in members {
        let observed = view.observed;
        let mut all = observed.members.iter();
        let Some((_, observed_member)) = all.find(|(ordinal, _)| observed.name(**ordinal) == member.name)
        else {
            continue;
        };
        let (Some(pod), Some(status)) = (&observed_member.pod, observed_member.status()) else {
            continue;
        };
        let is_it = member.id == Some(status.position.member.to_string());
        if is_it && member.pod_uid.as_ref() == Some(&pod.uid) {
            let now = i64::try_from(status.raft_index.0).ok();
            member.raft_index = member.raft_index.max(now);
        }
    }
}
