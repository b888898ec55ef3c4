//! What a world means: who votes, who is well, what is remembered from now on. Every pass stands on this.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::Report;
use etcd_operator_etcd::id::{ClusterId, MemberId, RaftIndex};
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_etcd::version::Version;

use super::request;
use crate::intent::Discard;
use crate::memory::{Admitted, Memory, Reached, Restore};
use crate::world::{Container, Ordinal, Pod, Seen, Set, World};

/// How etcd begins what it tells to whoever it does not know.
const LOCKED: &str = "not authorised: ";

/// What is said where nobody is reached.
pub const CUT_OFF: &str = "No member can be reached from here, though their pods run: a NetworkPolicy, a mesh, or certificates that are missing or refused may keep the operator from ports 2379 and 2381.";

/// How many entries of the log a voter may be behind and still count as well.
const BEHIND: u64 = 5_000;

/// What a world means.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// What was seen.
    pub world: &'a World,
}

/// How many of so many voters it takes to decide.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

impl<'a> Situation<'a> {
    /// What this world means.
    pub fn of(world: &'a World) -> Self {
        Self { world }
    }

    /// The members, if they are known and are of this cluster.
    pub fn known(&self) -> Option<&'a Known> {
        let known = self.world.known()?;
        let is_ours = self.world.memory.cluster.is_none_or(|id| id == known.cluster);
        is_ours.then_some(known)
    }

    /// What the process that waits at this place says, if it is believed: it is the one in the pod that was seen, made
    /// for this cluster and for the life of the data that is to run.
    pub fn report(&self, place: Ordinal, incarnation: i64) -> Option<(&'a Pod, &'a Report)> {
        let seen = self.world.members.get(&place)?;
        let (pod, report) = (seen.pod.as_ref()?, seen.report()?);
        let is_believed = report.pod_uid == pod.uid
            && report.cluster_uid == self.world.uid
            && report.expected_incarnation == incarnation
            && pod.deleting.is_none();
        is_believed.then_some((pod, report))
    }

    /// Whether the member at this place answers there as itself, follows a leader and is not far behind.
    pub fn is_well(&self, known: &Known, member: &Member) -> bool {
        let Some(place) = self.place(member) else {
            return false;
        };
        self.world.seen(place).status().is_some_and(|status| {
            status.position.cluster == known.cluster
                && status.position.member == member.id
                && status.leader.is_some()
                && status.raft_index.0 + BEHIND >= known.raft_index.0
        })
    }

    /// The voters that are well.
    pub fn well(&self, known: &Known) -> BTreeSet<MemberId> {
        let well = known.voters().filter(|member| self.is_well(known, member));
        well.map(|member| member.id).collect()
    }

    /// The place of a member, if it is one of the cluster's.
    pub fn place(&self, member: &Member) -> Option<Ordinal> {
        self.place_of(&member.peer_urls)
    }

    /// Whether pods run for long enough to answer, and not one of them can be reached. One that its node finds ready is not
    /// asked for a report, as it has none.
    pub fn is_cut_off(&self) -> bool {
        let running = self.world.members.values().filter(|seen| {
            seen.pod
                .as_ref()
                .is_some_and(|pod| pod.container == Container::Running && pod.deleting.is_none())
        });
        let mut any = false;
        for seen in running {
            any = true;
            let refused = |why: &str| why.contains("refused");
            let silent = |why: Option<&str>| why.is_some_and(|why| !refused(why));
            let is_ready = seen.pod.as_ref().is_some_and(|pod| pod.ready);
            let has_no_report = is_ready || silent(seen.report.silence());
            if !has_no_report || !silent(seen.status.silence()) {
                return false;
            }
        }
        any
    }

    /// Whether members answer and tell nothing to whoever does not say who they are.
    pub fn is_locked_out(&self) -> bool {
        let mut members = self.world.members.values();
        members.any(|seen| seen.status.silence().is_some_and(|why| why.contains(LOCKED)))
    }

    /// Whether the process that waits at this place holds a permit that it can still use, and so may start, or have
    /// started, at any moment: what it reports is no evidence then.
    pub fn may_start(&self, place: Ordinal) -> bool {
        let Some((pod, report)) = self.report(place, self.world.memory.incarnation) else {
            return false;
        };
        let is_its = |process: &str, nonce: &str| process == report.process && nonce == report.nonce;
        let intent = self.world.memory.intent.as_ref();
        let granted = intent.and_then(|intent| intent.what.grant(place));
        pod.permit
            .as_ref()
            .is_some_and(|permit| is_its(&permit.process, &permit.nonce))
            || granted.is_some_and(|grant| is_its(&grant.process, &grant.nonce))
    }

    /// Whether a person gave up what lies on the volume at this place.
    pub fn is_given_up(&self, place: Ordinal) -> bool {
        let claim = self.world.seen(place).claim.as_ref();
        claim.is_some_and(|claim| self.world.discard.contains(&claim.uid))
    }

    /// Whether a person wants what lies on the volume at this place to be taken over.
    pub fn is_taken_over(&self, place: Ordinal) -> bool {
        let claim = self.world.seen(place).claim.as_ref();
        claim.is_some_and(|claim| self.world.adopt.contains(&claim.uid))
    }

    /// Whether the volume at this place holds less than the member that was there last had, and nobody vouches for it.
    pub fn is_put_back(&self, place: Ordinal) -> bool {
        let before = self.world.memory.members.get(&place);
        let pod = self.world.seen(place).pod.as_ref();
        let has_gone_back = before
            .zip(pod)
            .is_some_and(|(before, pod)| before.has_gone_back(pod));
        has_gone_back && !self.is_taken_over(place)
    }

    /// What holds data at this place.
    pub fn disk(&self, place: Ordinal) -> Discard {
        let seen = self.world.seen(place);
        Discard {
            place,
            claim: seen.claim.as_ref().map(|claim| claim.uid.clone()),
            pod: seen.pod.as_ref().map(|pod| pod.uid.clone()),
        }
    }

    /// The place that one of these addresses is of.
    pub fn place_of(&self, urls: &[PeerUrl]) -> Option<Ordinal> {
        self.world.place_of(urls)
    }

    /// Whether a member has run at an address that is no place of this cluster, so that it may live at any of them.
    pub fn is_anybody_elsewhere(&self, known: &Known) -> bool {
        let mut members = known.members.values();
        members.any(|member| member.has_started() && self.place(member).is_none())
    }

    /// A member for people: by its name where it has a place.
    pub fn call(&self, member: &Member) -> String {
        match self.place(member) {
            Some(place) => self.world.name(place),
            None => format!("member {}", member.id),
        }
    }

    /// The oldest version that runs, if any answers.
    pub fn oldest_running(&self) -> Option<&'a Version> {
        let running = self.world.members.values().filter_map(|seen| seen.status());
        running.map(|status| &status.version).min()
    }

    /// What this version of etcd can do decides how members come in: the oldest that runs.
    pub fn oldest_version(&self, known: &Known) -> Version {
        self.oldest_running().map_or_else(
            || known.version.clone(),
            |oldest| oldest.min(&known.version).clone(),
        )
    }

    /// What is remembered from now on, before any pass: what was remembered, brought up to what was seen.
    pub fn memory(&self) -> Memory {
        let mut memory = self.world.memory.clone();
        memory.generation = self.world.generation;
        self.repair(&mut memory);
        request::note(self, &mut memory);
        if let Some(known) = self.known().filter(|_| memory.has_formed()) {
            memory.members = self.admitted_all(known);
        }
        self.take_over(&mut memory);
        memory
    }

    /// A volume that a person says to be a member's own is noted as its own, whatever was noted before.
    fn take_over(&self, memory: &mut Memory) {
        for (place, member) in &mut memory.members {
            let claim = self.world.seen(*place).claim.as_ref();
            let claim = claim.filter(|claim| claim.deleting.is_none() && claim.volume.is_some());
            if let Some(claim) = claim.filter(|claim| self.world.adopt.contains(&claim.uid)) {
                member.claim = Some(claim.uid.clone());
                member.volume.clone_from(&claim.volume);
                // What it held before counts no more.
                let seen = self.world.seen(*place);
                if let (Some(pod), Some(status)) = (&seen.pod, seen.status())
                    && status.position.member == member.id
                    && member.has_gone_back(pod)
                {
                    member.reached = reached(None, pod, status.raft_index);
                }
            }
        }
    }

    /// All members that have a place, as they are remembered.
    pub fn admitted_all(&self, known: &Known) -> BTreeMap<Ordinal, Admitted> {
        let placed = known.members.values().filter_map(|member| {
            let place = self.place(member)?;
            Some((place, self.admitted(place, member)))
        });
        placed.collect()
    }

    /// One lost copy of the cluster's ID and incarnation is repaired from the other, and where they differ though no restore
    /// moves them, somebody wrote into one of them: those who run decide, or else the copy on the StatefulSet, as a status is
    /// more often written by hand.
    fn repair(&self, memory: &mut Memory) {
        let Some(set) = &self.world.set else {
            return;
        };
        memory.last_incarnation = memory.last_incarnation.max(set.incarnation);
        if memory.incarnation == 0 {
            memory.incarnation = set.incarnation;
        }
        let is_moved = memory.restore.as_ref().is_some_and(Restore::is_active);
        if memory.cluster.is_none() && (memory.intent.is_none() || !is_moved) {
            memory.cluster = set.cluster;
        }
        if is_moved || !memory.has_formed() {
            return;
        }
        if set.cluster.is_some() && !self.answers(memory.cluster) {
            memory.cluster = set.cluster;
        }
        if let Some(incarnation) = self.lived(memory.cluster, set) {
            memory.incarnation = incarnation;
        }
    }

    /// Whether a member answers as one of this cluster.
    fn answers(&self, cluster: Option<ClusterId>) -> bool {
        let mut answers = self.world.members.values().filter_map(Seen::status);
        answers.any(|status| Some(status.position.cluster) == cluster)
    }

    /// The incarnation of this cluster, which has one alone: that of the pods in which it runs, whatever is written anywhere.
    /// Where nobody answers, that on which the StatefulSet and all pods that are there agree.
    fn lived(&self, cluster: Option<ClusterId>, set: &Set) -> Option<i64> {
        let pods = self.world.members.values().filter_map(|seen| {
            let pod = seen.pod.as_ref()?;
            let runs = seen
                .status()
                .is_some_and(|status| Some(status.position.cluster) == cluster);
            Some((pod.incarnation, runs))
        });
        let (running, others): (Vec<_>, Vec<_>) = pods.partition(|(_, runs)| *runs);
        let all = if running.is_empty() { &others } else { &running };
        let first = all
            .first()
            .map_or(set.incarnation, |(incarnation, _)| *incarnation);
        let is_agreed = all.iter().all(|(incarnation, _)| *incarnation == first);
        let is_noted = first == set.incarnation && cluster == set.cluster;
        (is_agreed && (!running.is_empty() || is_noted)).then_some(first)
    }

    /// A member as it is remembered. Its volume is noted the first time it is seen to run, and then stays noted for as
    /// long as the member lives: whatever lies in its place later is another one.
    fn admitted(&self, place: Ordinal, member: &Member) -> Admitted {
        let seen = self.world.seen(place);
        let before = self
            .world
            .memory
            .members
            .get(&place)
            .filter(|before| before.id == member.id);
        let runs = seen
            .status()
            .is_some_and(|status| status.position.member == member.id);
        let now = seen
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
        let reached = match (&seen.pod, seen.status().filter(|_| runs)) {
            (Some(pod), Some(status)) => reached(before, pod, status.raft_index),
            _ => before.and_then(|before| before.reached.clone()),
        };
        Admitted {
            id: member.id,
            votes: member.role == Role::Voter,
            claim,
            volume,
            reached,
        }
    }
}

/// By how much data must have grown to be worth a change of the status by itself.
const WORTH_NOTING: u64 = 100_000;

/// How far a member has come that runs in this pod. What was seen before another pod came stays for as long as that one
/// holds less.
fn reached(before: Option<&Admitted>, pod: &Pod, index: RaftIndex) -> Option<Reached> {
    let noted = before.and_then(|before| before.reached.as_ref());
    let stays = before.is_some_and(|before| before.has_gone_back(pod))
        || noted.is_some_and(|noted| noted.pod == pod.uid && index.0 < noted.index.0 + WORTH_NOTING);
    if stays {
        return noted.cloned();
    }
    Some(Reached {
        pod: pod.uid.clone(),
        index,
    })
}
