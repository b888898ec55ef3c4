//! A world that goes on: what a step does when it succeeds, when it is refused, and what pods and members do by
//! themselves. As much of it as a plan can tell apart, and no more.

mod harm;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Permit, Verdict};
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::policy::Feature;

use super::scene::{Scene, id, no_answer};
use crate::observed_state::{
    Claim, Container, Membership, ObservedCluster, ObservedMember, Ordinal, Pod, QueryResult,
};
use crate::plan::{Plan, plan};

pub use harm::{Event, Harm};
pub use steps::is_superseded;

/// A world that goes on.
#[derive(Clone, Debug)]
pub struct Life {
    /// The world as it is seen.
    pub scene: Scene,
    version: &'static str,
    /// Who the members are, whether anybody can tell or not; none before the first has started.
    etcd: Option<Known>,
    /// What lies on each volume, by the UID of its claim.
    disks: BTreeMap<String, Disk>,
    /// How many processes there were in each pod, by its UID.
    processes: BTreeMap<String, u16>,
    /// How many UIDs, IDs and names were given out.
    given: u16,
}

/// What lies on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Disk {
    /// The data of this member.
    Of(MemberId),
    /// The same, attached elsewhere now.
    Moved(MemberId),
    /// Nothing that a member can start from; this is what a process finds.
    Found(Verdict),
}

/// After what a pass goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Nothing was written down.
    Plan,
    /// The objects are as they were.
    Status,
    /// The step was not taken.
    Objects,
    /// What came of the step was not written down.
    Step,
    /// It went to its end.
    Nothing,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: it was stale, or etcd did not want it.
    Refused,
    /// It was taken.
    Done,
    /// A member of this ID was added.
    Added(MemberId),
}

impl Life {
    /// A cluster that was just asked for.
    pub fn new(size: u8, version: &'static str) -> Self {
        Self {
            scene: Scene::of(size, version),
            version,
            etcd: None,
            disks: BTreeMap::new(),
            processes: BTreeMap::new(),
            given: 0,
        }
    }

    /// A cluster that has formed and is well.
    pub fn formed(size: u8, version: &'static str) -> Self {
        let mut scene = Scene::formed_of(size, version);
        let etcd = Some(scene.known().clone());
        for pod in scene
            .observed
            .members
            .values_mut()
            .filter_map(|observed_member| observed_member.pod.as_mut())
        {
            // They were made for it to form.
            pod.has_single_success_probe = true;
        }
        let disk = |number: u16| (format!("claim-{number}"), Disk::Of(id(number)));
        Self {
            etcd,
            disks: (0..u16::from(size)).map(disk).collect(),
            scene,
            ..Self::new(size, version)
        }
    }

    /// One pass, up to where it is cut, and what was planned in it.
    pub fn pass(&mut self, cut: Cut) -> Plan {
        let before = self.scene.observed.clone();
        let next = plan(&before);
        self.carry_out(&next, &before, cut);
        next
    }

    /// Carries out a plan that was made for this world, up to where it is cut.
    pub fn carry_out(&mut self, next: &Plan, before: &ObservedCluster, cut: Cut) -> Outcome {
        self.scene.observed.unfenced.clone_from(&next.unfenced);
        if cut >= Cut::Status {
            self.scene.observed.persisted = next.persisted.clone();
        }
        if cut >= Cut::Objects {
            self.scene.stored(next);
        }
        let step = next.step.as_ref().filter(|_| cut >= Cut::Step);
        let outcome = step.map_or(Outcome::Refused, |step| self.apply(step, before));
        if let Outcome::Added(id) = outcome
            && cut == Cut::Nothing
        {
            self.scene.observed.persisted = next.clone().with_added_member(id).persisted;
        }
        outcome
    }

    /// The operator dies, and another process of it goes on.
    pub fn crashes(&mut self) {
        self.given += 1;
        self.scene.observed.instance = format!("me-{}", self.given);
        self.scene.observed.unfenced.clear();
    }

    /// What happens by itself until nothing more does, but at the places that are slow.
    pub fn goes_on(&mut self, slow: u32) {
        for ordinal in self.ordinals() {
            if (slow >> ordinal.get()) & 1 == 0 {
                self.keep_pod(ordinal);
                self.start(ordinal);
            }
        }
        self.agree();
    }

    /// Whether most voters that ever started have their data, so that nothing that was written is lost.
    pub fn keeps_what_was_written(&self) -> bool {
        let Some(known) = self
            .etcd
            .as_ref()
            .filter(|_| self.scene.observed.persisted.has_formed())
        else {
            return true;
        };
        let started: Vec<_> = known.voters().filter(|voter| voter.has_started()).collect();
        let having = started.iter().filter(|voter| self.has_data(voter)).count();
        having > started.len() / 2
    }

    /// Whether so many members as these are there, each at its place, and all run and vote.
    pub fn is_complete(&self, size: u8) -> bool {
        let Some(known) = &self.etcd else { return false };
        let running = self.running();
        let voters = known.voters().filter(|voter| running.contains(&voter.id));
        let ordinals: BTreeSet<_> = voters
            .filter_map(|voter| self.scene.observed.ordinal_at(&voter.peer_urls))
            .collect();
        let wanted: BTreeSet<_> = Ordinal::first_n(size.into()).collect();
        known.members.len() == ordinals.len() && ordinals == wanted
    }

    fn has_data(&self, member: &Member) -> bool {
        let observed = &self.scene.observed;
        let Some(ordinal) = observed.ordinal_at(&member.peer_urls) else {
            return false;
        };
        let observed_member = observed.member(ordinal);
        let is_lost = observed_member
            .pod
            .as_ref()
            .is_some_and(|pod| pod.node_lost_since.is_some());
        let claim = observed_member
            .claim
            .as_ref()
            .filter(|claim| claim.deleting.is_none());
        let disk = claim.and_then(|claim| self.disks.get(&claim.uid));
        let is_its_own = matches!(disk, Some(Disk::Of(id) | Disk::Moved(id)) if *id == member.id);
        is_its_own && !is_lost
    }

    fn is_member(&self, id: MemberId) -> bool {
        let etcd = self.etcd.as_ref();
        etcd.is_some_and(|known| known.members.contains_key(&id))
    }

    /// The members that answer.
    fn running(&self) -> BTreeSet<MemberId> {
        let answers = self
            .scene
            .observed
            .members
            .values()
            .filter_map(|observed_member| observed_member.status());
        let ids = answers.map(|status| status.position.member);
        ids.filter(|id| self.is_member(*id)).collect()
    }

    fn ordinals(&self) -> BTreeSet<Ordinal> {
        let observed = &self.scene.observed;
        let kept = observed.set.as_ref().map_or(0, |set| set.replicas);
        observed
            .members
            .keys()
            .copied()
            .chain(Ordinal::first_n(kept))
            .collect()
    }

    /// What Kubernetes does at a place.
    fn keep_pod(&mut self, ordinal: Ordinal) {
        let observed = &mut self.scene.observed;
        let now = observed.now;
        let is_kept_volume = observed
            .set
            .as_ref()
            .is_some_and(|set| ordinal.get() < set.replicas);
        let observed_member = observed.members.entry(ordinal).or_insert(ObservedMember::ABSENT);
        let goes = observed_member.pod.as_mut().is_some_and(|pod| {
            if !is_kept_volume {
                pod.deleting.get_or_insert(now);
            }
            pod.deleting.is_some() && pod.node_lost_since.is_none()
        });
        if goes {
            lose_pod(observed_member);
        }
        let (has_pod, has_claim) = (observed_member.pod.is_some(), observed_member.claim.is_some());
        if is_kept_volume && !has_pod {
            self.make_pod(ordinal);
        } else if !has_pod && !has_claim {
            self.scene.gone(ordinal.get());
        }
    }

    fn make_pod(&mut self, ordinal: Ordinal) {
        self.given += 1;
        let (number, given, now) = (ordinal.get(), self.given, self.scene.observed.now);
        let claim = self.scene.claim_at(number);
        if claim.is_none() {
            let uid = format!("claim-{number}-{given}");
            self.disks.insert(uid.clone(), Disk::Found(Verdict::Empty));
            *claim = Some(Claim {
                uid,
                volume: Some(format!("volume-{number}-{given}")),
                deleting: None,
                created: Some(now),
                node: None,
                class: None,
            });
        }
        self.scene.pod(number, &format!("pod-{number}-{given}"));
    }

    /// What the process in the pod at a place does.
    fn start(&mut self, ordinal: Ordinal) {
        let number = ordinal.get();
        let observed_member = self.scene.observed.member(ordinal);
        let (Some(pod), Some(claim)) = (observed_member.pod.clone(), observed_member.claim.clone()) else {
            return;
        };
        if pod.node_lost_since.is_some() || pod.deleting.is_some() {
            return;
        }
        let pod_awaiting_join = Disk::Found(Verdict::Empty);
        let mut disk = self.disks.get(&claim.uid).cloned().unwrap_or(pod_awaiting_join);
        let process = self.process(&pod.uid);
        if let Some(permit) = pod.permit.as_ref().filter(|permit| permit.process == process) {
            disk = self.permitted(ordinal, permit, disk);
            self.end_process(&pod.uid);
        }
        match &disk {
            Disk::Of(id) if self.is_member(*id) => {
                self.scene.runs(number, *id);
                *self.scene.pod_at(number) = Pod {
                    ready: true,
                    container: Container::Running,
                    ..pod
                };
            }
            Disk::Of(_) => self.scene.ended(number, 0),
            Disk::Moved(_) => {
                let process = self.process(&pod.uid);
                self.scene.waits(number, &process, &Verdict::Moved);
            }
            Disk::Found(verdict) => {
                let process = self.process(&pod.uid);
                self.scene.waits(number, &process, verdict);
            }
        }
        self.disks.insert(claim.uid, disk);
    }

    fn process(&self, pod: &str) -> String {
        let before = self.processes.get(pod).copied().unwrap_or_default();
        format!("{pod}-process-{before}")
    }

    /// Whoever comes next in this pod is another process: no permit of before is for it.
    fn end_process(&mut self, pod: &str) {
        *self.processes.entry(pod.to_owned()).or_default() += 1;
    }

    /// What lies on the disk of a process once it has used its permit.
    fn permitted(&mut self, ordinal: Ordinal, permit: &Permit, disk: Disk) -> Disk {
        let member = permit.member_id.as_deref();
        let member = member.and_then(|id| id.parse::<MemberId>().ok());
        match (permit.mode, disk, member) {
            (Mode::Bootstrap, Disk::Found(Verdict::Empty), _) => {
                let members = permit.initial_cluster.split(',').count();
                let size = u8::try_from(members).expect("nine at most");
                let version = self.version;
                let formed = || Scene::formed_of(size, version).known().clone();
                self.etcd.get_or_insert_with(formed);
                Disk::Of(id(ordinal.get()))
            }
            (Mode::Join, Disk::Found(Verdict::Empty | Verdict::Unborn), Some(id)) => {
                let name = self.scene.observed.name(ordinal);
                let member = self.etcd.as_mut().and_then(|known| known.members.get_mut(&id));
                match member {
                    Some(member) => {
                        member.name = Some(name);
                        Disk::Of(id)
                    }
                    None => Disk::Found(Verdict::Unborn),
                }
            }
            (Mode::Resume, Disk::Moved(own), Some(id)) if own == id => Disk::Of(own),
            (_, disk, _) => disk,
        }
    }

    /// Whoever was removed ends, somebody leads, and it is known who the members are, or not.
    fn agree(&mut self) {
        let was_removed = |observed_member: &ObservedMember| {
            let status = observed_member.status();
            status.is_some_and(|status| !self.is_member(status.position.member))
        };
        let members = self.scene.observed.members.iter();
        let removed = members.filter(|(_, observed_member)| was_removed(observed_member));
        let removed: Vec<_> = removed.map(|(ordinal, _)| *ordinal).collect();
        for ordinal in removed {
            self.scene.ended(ordinal.get(), 0);
        }
        let running = self.running();
        let Some(known) = &mut self.etcd else { return };
        let observed = &mut self.scene.observed;
        let voters: BTreeSet<_> = known.voters().map(|voter| voter.id).collect();
        let healthy: BTreeSet<_> = voters.intersection(&running).copied().collect();
        let has_quorum = healthy.len() >= known.quorum();
        let leader = known.leader.filter(|leader| healthy.contains(leader));
        known.leader = leader.or(healthy.first().copied());
        known.reader = known.leader.unwrap_or(known.reader);
        for observed_member in observed.members.values_mut() {
            if let QueryResult::Answer(status) = &mut observed_member.status {
                status.leader = known.leader.filter(|_| has_quorum);
                let member = known.members.get(&status.position.member);
                status.is_learner = member.is_some_and(|member| member.role == Role::Learner);
            }
        }
        let noted = observed
            .persisted
            .members
            .values()
            .filter(|member| member.is_voter);
        let is_overheard = !has_quorum && noted.count() == 1 && healthy.len() == 1;
        let is_overheard = is_overheard && !Feature::Learners.is_in(&known.version);
        observed.local_membership = if is_overheard {
            known.members.clone()
        } else {
            BTreeMap::new()
        };
        observed.membership = if has_quorum {
            Membership::Known(known.clone())
        } else {
            Membership::Unknown(vec![no_answer()])
        };
    }
}

/// Nobody runs here any more; a volume that was to go goes with its pod.
fn lose_pod(observed_member: &mut ObservedMember) {
    observed_member.pod = None;
    observed_member.report = QueryResult::NotQueried;
    observed_member.status = QueryResult::NotQueried;
    if observed_member
        .claim
        .as_ref()
        .is_some_and(|claim| claim.deleting.is_some())
    {
        observed_member.claim = None;
    }
}
