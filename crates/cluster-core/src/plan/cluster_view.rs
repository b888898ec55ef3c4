//! What was seen means: who votes, who is healthy, what people asked for. Every flow stands on this.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::Report;
use etcd_operator_etcd_types::id::{MemberId, RaftIndex};
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::url::PeerUrl;
use etcd_operator_etcd_types::version::Version;

use super::quorum::{VoterCount, majority};
use crate::blocker::MemberProblem;
use crate::observed_state::{
    CallClass, Container, Membership, MembershipFailure, ObservedCluster, Ordinal, Pod, QueryResult,
};
use crate::pending_operation::Discard;
use crate::persisted_state::{LastKnownIndex, MemberRecord, PersistedState};

/// What keeps the operator from every pod that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No pod answers.
    Silent,
    /// TLS fails, or the operator has no certificates to connect with.
    Tls,
}

impl Unreachable {
    /// The explanation for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Silent => UNREACHABLE,
            Self::Tls => UNREACHABLE_BY_TLS,
        }
    }
}

const UNREACHABLE_BY_TLS: &str = "The operator cannot reach any member by TLS. It sees no member and changes nothing. Clients with other certificates may be served.";
const UNREACHABLE: &str = "No member can be reached from here, though their pods run: a NetworkPolicy, a mesh, or certificates that are missing or refused may keep the operator from ports 2379 and 2381.";

/// How many entries of the raft log a member may be behind and still count as healthy.
const MAX_LAG: u64 = 5_000;

/// What follows from an observed cluster: who votes, who is healthy, and what the user consents to. It caches nothing.
#[derive(Clone, Debug)]
pub struct ClusterView<'a> {
    /// What was seen.
    pub observed: &'a ObservedCluster,
}

impl<'a> ClusterView<'a> {
    /// Borrows what was observed; each method judges it anew.
    pub fn new(observed: &'a ObservedCluster) -> Self {
        Self { observed }
    }

    /// The members, if a linearizable read returned them and the cluster ID is the recorded one. Before the cluster has
    /// formed, any cluster ID counts.
    pub fn known(&self) -> Option<&'a Known> {
        let known = self.observed.known()?;
        let is_ours = self
            .observed
            .persisted
            .cluster
            .is_none_or(|id| id == known.cluster);
        is_ours.then_some(known)
    }

    /// The report of the process that waits for a permit in the pod of this ordinal, if it is believed and for this incarnation.
    /// A process that refuses its image waits for no permit, and what it says of its volume leads to nothing.
    pub fn report(&self, ordinal: Ordinal, incarnation: i64) -> Option<(&'a Pod, &'a Report)> {
        let report = self.waiting_process(ordinal, incarnation);
        report.filter(|(_, report)| report.refused_image.is_none())
    }

    /// The report of the process that waits in the pod of this ordinal, also of one that refuses its image, if it is
    /// believed and for this incarnation.
    pub fn waiting_process(&self, ordinal: Ordinal, incarnation: i64) -> Option<(&'a Pod, &'a Report)> {
        let report = self.believed_report(ordinal);
        report.filter(|(_, report)| report.expected_incarnation == incarnation)
    }

    /// Why the process that waits in the pod of this ordinal does not start etcd: the image holds another version than
    /// expected. `None` if it accepts the image, or no process waits. The incarnation does not matter.
    pub fn refused_image(&self, ordinal: Ordinal) -> Option<MemberProblem> {
        let (pod, report) = self.believed_report(ordinal)?;
        let refused = report.refused_image.as_ref()?;
        Some(MemberProblem::ImageVersionDiffers {
            image: pod.image.clone(),
            found: refused.found.clone(),
            named: refused.expected.clone(),
            runs: false,
        })
    }

    /// A report is believed if it is for this cluster and of the observed pod. Where etcd answers nothing waits any more: a report
    /// beside its answer is older, or not of that pod.
    fn believed_report(&self, ordinal: Ordinal) -> Option<(&'a Pod, &'a Report)> {
        let observed_member = self.observed.members.get(&ordinal)?;
        let (pod, report) = (observed_member.pod.as_ref()?, observed_member.report()?);
        let is_believed = report.pod_uid == pod.uid
            && report.cluster_uid == self.observed.uid
            && observed_member.status().is_none()
            && pod.deleting.is_none();
        is_believed.then_some((pod, report))
    }

    /// Whether a member, voter or learner, answers at its ordinal with its own member ID, has a leader, and is at most
    /// `MAX_LAG` entries behind. The readiness of its pod does not count.
    pub fn is_healthy(&self, known: &Known, member: &Member) -> bool {
        let Some(ordinal) = self.ordinal(member) else {
            return false;
        };
        self.observed.member(ordinal).status().is_some_and(|status| {
            status.position.cluster == known.cluster
                && status.position.member == member.id
                && status.leader.is_some()
                && status.raft_index.0 + MAX_LAG >= known.raft_index.0
        })
    }

    /// The IDs of the voters for which `is_healthy` holds.
    pub fn healthy_voters(&self, known: &Known) -> BTreeSet<MemberId> {
        let healthy = known.voters().filter(|member| self.is_healthy(known, member));
        healthy.map(|member| member.id).collect()
    }

    /// The voters but for this member, and how many of them are healthy.
    pub fn voters_without(&self, known: &Known, id: MemberId) -> VoterCount {
        let healthy = self.healthy_voters(known);
        let others = known.voters().filter(|voter| voter.id != id);
        VoterCount {
            voters: others.count(),
            healthy: healthy.iter().filter(|other| **other != id).count(),
        }
    }

    /// Whether this member can be removed safely: the healthy voters have quorum now, to commit the removal, and those
    /// that are left have it afterwards. False for the only voter.
    pub fn keeps_quorum_without(&self, known: &Known, id: MemberId) -> bool {
        let now = VoterCount {
            voters: known.voters().count(),
            healthy: self.healthy_voters(known).len(),
        };
        let left = self.voters_without(known, id);
        left.voters > 0 && now.has_quorum() && left.has_quorum()
    }

    /// The ordinal in the peer URLs of a member; `None` if they are not of this cluster.
    pub fn ordinal(&self, member: &Member) -> Option<Ordinal> {
        self.ordinal_at(&member.peer_urls)
    }

    /// Why none of the running pods can be reached: each was called, and every call failed. `None` if no pod runs, or
    /// if one answers, rejects a call or was not called. Unless TLS fails or the pod is ready, the call for its report
    /// must have failed, too: etcd may not run yet.
    pub fn unreachable(&self) -> Option<Unreachable> {
        let running = self.observed.members.values().filter(|observed_member| {
            observed_member
                .pod
                .as_ref()
                .is_some_and(|pod| pod.container == Container::Running && pod.deleting.is_none())
        });
        let mut found = None;
        for observed_member in running {
            let has_no_report = || {
                let is_ready = observed_member.pod.as_ref().is_some_and(|pod| pod.ready);
                let failure = observed_member.report.failure();
                is_ready || failure.is_some_and(|failure| failure.class == CallClass::Other)
            };
            let unreachable = match observed_member.status.failure()?.class {
                CallClass::Tls(_) => Unreachable::Tls,
                CallClass::NoTransport if has_no_report() => Unreachable::Tls,
                CallClass::Other if has_no_report() => Unreachable::Silent,
                _ => return None,
            };
            if found != Some(Unreachable::Tls) {
                found = Some(unreachable);
            }
        }
        found
    }

    /// Whether a member rejects the operator's calls because authentication is enabled, while a majority of the voters
    /// responds: without it there is no quorum, and that matters more. etcd before 3.6 returns its status all the same, and
    /// rejects the linearizable read before the membership.
    pub fn is_auth_enabled(&self) -> bool {
        let voters = self
            .observed
            .persisted
            .members
            .iter()
            .filter(|(_, one)| one.is_voter);
        let ordinals: Vec<_> = voters.map(|(ordinal, _)| *ordinal).collect();
        let responds = |ordinal: &&Ordinal| match &self.observed.member(**ordinal).status {
            QueryResult::Answer(_) => true,
            other => other
                .failure()
                .is_some_and(|failure| failure.class == CallClass::Unauthenticated),
        };
        if ordinals.iter().filter(responds).count() < majority(ordinals.len()) {
            return false;
        }
        let of_status = self
            .observed
            .members
            .values()
            .filter_map(|one| one.status.failure());
        let of_membership = match &self.observed.membership {
            Membership::Unknown(failures) => failures.as_slice(),
            Membership::Known(_) => &[],
        };
        let of_membership = of_membership.iter().filter_map(|failure| match failure {
            MembershipFailure::Call(failure) => Some(failure),
            MembershipFailure::NoTransport(_)
            | MembershipFailure::NoLeader { .. }
            | MembershipFailure::OtherCluster { .. } => None,
        });
        let mut failures = of_status.chain(of_membership);
        failures.any(|failure| failure.class == CallClass::Unauthenticated)
    }

    /// Whether the process that waits at this ordinal has a permit that it can still use, and so may start, or have
    /// started, at any moment: what it reports is no evidence then. False if no process reports there.
    pub fn may_start(&self, ordinal: Ordinal) -> bool {
        let Some((pod, report)) = self.report(ordinal, self.observed.persisted.incarnation) else {
            return false;
        };
        let is_same_process = |process: &str, nonce: &str| process == report.process && nonce == report.nonce;
        let pending = self.observed.persisted.pending.as_ref();
        let grant = pending.and_then(|pending| pending.operation.grant(ordinal));
        pod.permit
            .as_ref()
            .is_some_and(|permit| is_same_process(&permit.process, &permit.nonce))
            || grant.is_some_and(|grant| is_same_process(&grant.process, &grant.nonce))
    }

    /// Whether the user gave up the data of this ordinal's PVC: the annotation `discard` names its UID.
    pub fn is_discard_requested(&self, ordinal: Ordinal) -> bool {
        let claim = self.observed.member(ordinal).claim.as_ref();
        claim.is_some_and(|claim| self.observed.discard.contains(&claim.uid))
    }

    /// Whether the user wants the data of this ordinal's PVC to be used: the annotation `adopt` names its UID.
    pub fn is_adoption_requested(&self, ordinal: Ordinal) -> bool {
        let claim = self.observed.member(ordinal).claim.as_ref();
        claim.is_some_and(|claim| self.observed.adopt.contains(&claim.uid))
    }

    /// Whether the volume came to this ordinal's pod with a lower raft index than its member was last seen with, so
    /// that it would vote without entries it acknowledged. False where that is unknown, or the user adopts the volume.
    pub fn has_reverted_volume(&self, ordinal: Ordinal) -> bool {
        let before = self.observed.persisted.members.get(&ordinal);
        let pod = self.observed.member(ordinal).pod.as_ref();
        let is_behind_record = before
            .zip(pod)
            .is_some_and(|(before, pod)| before.is_behind_record(pod));
        is_behind_record && !self.is_adoption_requested(ordinal)
    }

    /// The UIDs of the PVC and the pod of this ordinal, so that later exactly these are deleted. With ephemeral storage
    /// it has no PVC: one of that name is not the operator's.
    pub fn disk(&self, ordinal: Ordinal) -> Discard {
        let observed_member = self.observed.member(ordinal);
        // Where the data live with the pods, a claim of that name is somebody else's.
        let claim = observed_member
            .claim
            .as_ref()
            .filter(|_| !self.observed.desired.storage.is_ephemeral());
        Discard {
            ordinal,
            claim: claim.map(|claim| claim.uid.clone()),
            pod: observed_member.pod.as_ref().map(|pod| pod.uid.clone()),
        }
    }

    /// The ordinal of the first of these peer URLs that is of this cluster; `None` if none is.
    pub fn ordinal_at(&self, urls: &[PeerUrl]) -> Option<Ordinal> {
        self.observed.ordinal_at(urls)
    }

    /// Whether a started member has no peer URL of this cluster, so that any pod may be its: meanwhile no volume is
    /// discarded and no member is restarted for a rollout.
    pub fn has_member_elsewhere(&self, known: &Known) -> bool {
        let mut members = known.members.values();
        members.any(|member| member.has_started() && self.ordinal(member).is_none())
    }

    /// The name of a member in messages: that of its pod, or `member` and its ID if it has no ordinal.
    pub fn display_name(&self, member: &Member) -> String {
        match self.ordinal(member) {
            Some(ordinal) => self.observed.name(ordinal),
            None => format!("member {}", member.id),
        }
    }

    /// The oldest version that runs, if any answers.
    pub fn oldest_running_version(&self) -> Option<&'a Version> {
        let running = self
            .observed
            .members
            .values()
            .filter_map(|observed_member| observed_member.status());
        running.map(|status| &status.version).min()
    }

    /// The oldest version of etcd among the members that answer and the member that returned the membership. Only
    /// features of this version may be used.
    pub fn oldest_version(&self, known: &Known) -> Version {
        self.oldest_running_version().map_or_else(
            || known.version.clone(),
            |oldest| oldest.min(&known.version).clone(),
        )
    }

    /// Records the pod templates with which voters are healthy.
    pub fn record_served_specs(&self, persisted: &mut PersistedState, known: &Known) {
        let healthy = known.voters().filter(|voter| self.is_healthy(known, voter));
        let ordinals = healthy.filter_map(|voter| self.ordinal(voter));
        let pods = ordinals.filter_map(|ordinal| self.observed.member(ordinal).pod.as_ref());
        for spec_hash in pods.filter_map(|pod| pod.spec_hash.as_deref()) {
            persisted.record_served_spec(spec_hash);
        }
    }

    /// Whether a voter was ever seen healthy with the template that this pod was made from. What is not known counts as no.
    pub fn has_served_template(&self, pod: &Pod) -> bool {
        let spec_hash = pod.spec_hash.as_deref();
        spec_hash.is_some_and(|spec_hash| self.observed.persisted.has_served_spec(spec_hash))
    }

    /// Records of all members that have an ordinal, learners included, to be kept in the status. A member at another
    /// address has none.
    pub fn record_all_members(&self, known: &Known) -> BTreeMap<Ordinal, MemberRecord> {
        let placed = known.members.values().filter_map(|member| {
            let ordinal = self.ordinal(member)?;
            Some((ordinal, self.record_member(ordinal, member)))
        });
        placed.collect()
    }

    /// The record of one member. Its PVC and volume are recorded when it is first seen to run, and kept for as long as
    /// it has its ID: a volume that is there later is another one.
    fn record_member(&self, ordinal: Ordinal, member: &Member) -> MemberRecord {
        let observed_member = self.observed.member(ordinal);
        let before = self
            .observed
            .persisted
            .members
            .get(&ordinal)
            .filter(|before| before.id == member.id);
        let runs = observed_member
            .status()
            .is_some_and(|status| status.position.member == member.id);
        let now = observed_member
            .claim
            .as_ref()
            .filter(|claim| runs && claim.deleting.is_none());
        let claim = before
            .and_then(|before| before.claim.clone())
            .or_else(|| now.map(|now| now.uid.clone()));
        let volume = before.and_then(|before| before.volume.clone()).or_else(|| {
            now.filter(|now| Some(&now.uid) == claim.as_ref())
                .and_then(|now| now.volume.clone())
        });
        let last_index = match (&observed_member.pod, observed_member.status().filter(|_| runs)) {
            (Some(pod), Some(status)) => update_last_index(before, pod, status.raft_index),
            _ => before.and_then(|before| before.last_index.clone()),
        };
        MemberRecord {
            id: member.id,
            is_voter: member.role == Role::Voter,
            claim,
            volume,
            last_index,
        }
    }
}

/// How many entries a member must have advanced in one pod before its record is updated: each update writes the status.
const MIN_INDEX_STEP: u64 = 100_000;

/// The raft index to record for a member that runs in this pod. The earlier record stays while the pod's volume is
/// behind it, and in the same pod until the member has advanced by `MIN_INDEX_STEP`.
pub fn update_last_index(
    before: Option<&MemberRecord>,
    pod: &Pod,
    index: RaftIndex,
) -> Option<LastKnownIndex> {
    let noted = before.and_then(|before| before.last_index.as_ref());
    let is_kept_volume = before.is_some_and(|before| before.is_behind_record(pod))
        || noted.is_some_and(|noted| noted.pod == pod.uid && index.0 < noted.index.0 + MIN_INDEX_STEP);
    if is_kept_volume {
        return noted.cloned();
    }
    Some(LastKnownIndex {
        pod: pod.uid.clone(),
        index,
    })
}
