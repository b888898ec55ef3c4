//! What is told of each member. Only what changes rarely: where it runs, what it is, whether it is well.

use std::collections::BTreeSet;

use etcd_operator_api::cluster::MemberStatus;
use etcd_operator_etcd::membership::Role;

use super::later;
use crate::memory::{LEARNER, Memory, Reached, VOTER};
use crate::plan::Situation;
use crate::world::Ordinal;

/// What is told of the members.
#[derive(Debug, Default)]
pub struct Told {
    /// Each in detail.
    pub members: Vec<MemberStatus>,
    /// Those that clients are sent to.
    pub ready: Option<Vec<String>>,
    /// Those that they are not.
    pub unready: Option<Vec<String>>,
    /// The version that runs, the oldest where there are several.
    pub version: Option<String>,
    /// Who leads.
    pub leader: Option<String>,
}

/// What is told of the members, given what was told before.
pub fn told(situation: &Situation<'_>, memory: &Memory, before: &[MemberStatus]) -> Told {
    let world = situation.world;
    let pods = world.members.iter().filter(|(_, seen)| seen.pod.is_some());
    let places: BTreeSet<Ordinal> = memory
        .members
        .keys()
        .copied()
        .chain(pods.map(|(place, _)| *place))
        .collect();
    let mut told = Told::default();
    let known = situation.known();
    for place in places {
        let seen = world.seen(place);
        let name = world.name(place);
        let member = known.and_then(|known| world.member_among(known, place));
        let admitted = memory.members.get(&place);
        let reached = admitted.and_then(|admitted| admitted.reached.as_ref());
        let was = before.iter().find(|was| was.name == name);
        let list = if seen
            .pod
            .as_ref()
            .is_some_and(|pod| pod.ready && pod.deleting.is_none())
        {
            &mut told.ready
        } else {
            &mut told.unready
        };
        list.get_or_insert_default().push(name.clone());
        let role = match member {
            Some(member) if member.role == Role::Voter => Some(VOTER),
            Some(_) => Some(LEARNER),
            None => admitted.map(|admitted| if admitted.votes { VOTER } else { LEARNER }),
        };
        let verdict = seen
            .report()
            .and_then(|report| serde_json::to_value(&report.verdict).ok())
            .and_then(|verdict| Some(verdict["kind"].as_str()?.to_owned()));
        let now = MemberStatus {
            id: admitted.map(|admitted| admitted.id.to_string()),
            role: role.map(str::to_owned),
            version: seen
                .status()
                .map(|status| status.version.to_string())
                .or_else(|| was.and_then(|was| was.version.clone())),
            healthy: known
                .zip(member)
                .is_some_and(|(known, member)| situation.is_well(known, member)),
            node: seen.pod.as_ref().and_then(|pod| pod.node.clone()),
            volume: Some(world.desired.storage.describe()),
            verdict,
            claim_uid: admitted.and_then(|admitted| admitted.claim.clone()),
            volume_name: admitted.and_then(|admitted| admitted.volume.clone()),
            pod_uid: reached.map(|reached| reached.pod.clone()),
            raft_index: reached.map(Reached::number),
            name,
            ..MemberStatus::default()
        };
        told.members.push(later::member(now, was));
    }
    let versions = world.members.values().filter_map(|seen| seen.status());
    told.version = versions
        .map(|status| &status.version)
        .min()
        .map(ToString::to_string);
    let leader = known.and_then(|known| known.members.get(&known.leader?));
    told.leader = leader.map(|leader| situation.call(leader));
    told
}

/// How far members have come by now: it is not worth writing by itself, and goes along with whatever else is.
pub fn refresh(members: &mut [MemberStatus], situation: &Situation<'_>) {
    for member in members {
        let world = situation.world;
        let mut all = world.members.iter();
        let Some((_, seen)) = all.find(|(place, _)| world.name(**place) == member.name) else {
            continue;
        };
        let (Some(pod), Some(status)) = (&seen.pod, seen.status()) else {
            continue;
        };
        let is_it = member.id == Some(status.position.member.to_string());
        if is_it && member.pod_uid.as_ref() == Some(&pod.uid) {
            let now = i64::try_from(status.raft_index.0).ok();
            member.raft_index = member.raft_index.max(now);
        }
    }
}
