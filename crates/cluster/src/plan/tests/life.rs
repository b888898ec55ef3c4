//! A world that goes on: what a step does when it succeeds, when it is refused, and what pods and members do by
//! themselves. As much of it as a plan can tell apart, and no more.

mod harm;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Permit, Verdict};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member, Role};
use etcd_operator_etcd::policy::Feature;

use super::scene::{Scene, id};
use crate::plan::{Plan, plan};
use crate::world::{Asked, Claim, Container, Membership, Ordinal, Pod, Seen, World};

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
            .world
            .members
            .values_mut()
            .filter_map(|seen| seen.pod.as_mut())
        {
            // They were made for it to form.
            pod.looks_once = true;
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
        let before = self.scene.world.clone();
        let next = plan(&before);
        self.carry_out(&next, &before, cut);
        next
    }

    /// Carries out a plan that was made for this world, up to where it is cut.
    pub fn carry_out(&mut self, next: &Plan, before: &World, cut: Cut) -> Outcome {
        self.scene.world.owed.clone_from(&next.owed);
        if cut >= Cut::Status {
            self.scene.world.memory = next.memory.clone();
        }
        if cut >= Cut::Objects {
            self.scene.stored(next);
        }
        let step = next.step.as_ref().filter(|_| cut >= Cut::Step);
        let outcome = step.map_or(Outcome::Refused, |step| self.apply(step, before));
        if let Outcome::Added(id) = outcome
            && cut == Cut::Nothing
        {
            self.scene.world.memory = next.clone().with_added(id).memory;
        }
        outcome
    }

    /// The operator dies, and another process of it goes on.
    pub fn crashes(&mut self) {
        self.given += 1;
        self.scene.world.instance = format!("me-{}", self.given);
        self.scene.world.owed.clear();
    }

    /// What happens by itself until nothing more does, but at the places that are slow.
    pub fn goes_on(&mut self, slow: u32) {
        for place in self.places() {
            if (slow >> place.get()) & 1 == 0 {
                self.keep_pod(place);
                self.start(place);
            }
        }
        self.agree();
    }

    /// Whether most voters that ever started have their data, so that nothing that was written is lost.
    pub fn keeps_what_was_written(&self) -> bool {
        let Some(known) = self
            .etcd
            .as_ref()
            .filter(|_| self.scene.world.memory.has_formed())
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
        let places: BTreeSet<_> = voters
            .filter_map(|voter| self.scene.world.place_of(&voter.peer_urls))
            .collect();
        let wanted: BTreeSet<_> = Ordinal::first(size.into()).collect();
        known.members.len() == places.len() && places == wanted
    }

    fn has_data(&self, member: &Member) -> bool {
        let world = &self.scene.world;
        let Some(place) = world.place_of(&member.peer_urls) else {
            return false;
        };
        let seen = world.seen(place);
        let is_lost = seen.pod.as_ref().is_some_and(|pod| pod.node_lost.is_some());
        let claim = seen.claim.as_ref().filter(|claim| claim.deleting.is_none());
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
        let answers = self.scene.world.members.values().filter_map(|seen| seen.status());
        let ids = answers.map(|status| status.position.member);
        ids.filter(|id| self.is_member(*id)).collect()
    }

    fn places(&self) -> BTreeSet<Ordinal> {
        let world = &self.scene.world;
        let kept = world.set.as_ref().map_or(0, |set| set.replicas);
        world
            .members
            .keys()
            .copied()
            .chain(Ordinal::first(kept))
            .collect()
    }

    /// What Kubernetes does at a place.
    fn keep_pod(&mut self, place: Ordinal) {
        let world = &mut self.scene.world;
        let now = world.now;
        let is_kept = world.set.as_ref().is_some_and(|set| place.get() < set.replicas);
        let seen = world.members.entry(place).or_insert(Seen::NOTHING);
        let goes = seen.pod.as_mut().is_some_and(|pod| {
            if !is_kept {
                pod.deleting.get_or_insert(now);
            }
            pod.deleting.is_some() && pod.node_lost.is_none()
        });
        if goes {
            lose_pod(seen);
        }
        let (has_pod, has_claim) = (seen.pod.is_some(), seen.claim.is_some());
        if is_kept && !has_pod {
            self.make_pod(place);
        } else if !has_pod && !has_claim {
            self.scene.gone(place.get());
        }
    }

    fn make_pod(&mut self, place: Ordinal) {
        self.given += 1;
        let (number, given, now) = (place.get(), self.given, self.scene.world.now);
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
    fn start(&mut self, place: Ordinal) {
        let number = place.get();
        let seen = self.scene.world.seen(place);
        let (Some(pod), Some(claim)) = (seen.pod.clone(), seen.claim.clone()) else {
            return;
        };
        if pod.node_lost.is_some() || pod.deleting.is_some() {
            return;
        }
        let blank = Disk::Found(Verdict::Empty);
        let mut disk = self.disks.get(&claim.uid).cloned().unwrap_or(blank);
        let process = self.process(&pod.uid);
        if let Some(permit) = pod.permit.as_ref().filter(|permit| permit.process == process) {
            disk = self.permitted(place, permit, disk);
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
    fn permitted(&mut self, place: Ordinal, permit: &Permit, disk: Disk) -> Disk {
        let member = permit.member_id.as_deref();
        let member = member.and_then(|id| id.parse::<MemberId>().ok());
        match (permit.mode, disk, member) {
            (Mode::Bootstrap, Disk::Found(Verdict::Empty), _) => {
                let members = permit.initial_cluster.split(',').count();
                let size = u8::try_from(members).expect("nine at most");
                let version = self.version;
                let formed = || Scene::formed_of(size, version).known().clone();
                self.etcd.get_or_insert_with(formed);
                Disk::Of(id(place.get()))
            }
            (Mode::Join, Disk::Found(Verdict::Empty | Verdict::Unborn), Some(id)) => {
                let name = self.scene.world.name(place);
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
        let was_removed = |seen: &Seen| {
            let status = seen.status();
            status.is_some_and(|status| !self.is_member(status.position.member))
        };
        let members = self.scene.world.members.iter();
        let removed = members.filter(|(_, seen)| was_removed(seen));
        let removed: Vec<_> = removed.map(|(place, _)| *place).collect();
        for place in removed {
            self.scene.ended(place.get(), 0);
        }
        let running = self.running();
        let Some(known) = &mut self.etcd else { return };
        let world = &mut self.scene.world;
        let voters: BTreeSet<_> = known.voters().map(|voter| voter.id).collect();
        let well: BTreeSet<_> = voters.intersection(&running).copied().collect();
        let has_quorum = well.len() >= known.quorum();
        let leader = known.leader.filter(|leader| well.contains(leader));
        known.leader = leader.or(well.first().copied());
        known.reader = known.leader.unwrap_or(known.reader);
        for seen in world.members.values_mut() {
            if let Asked::Answer(status) = &mut seen.status {
                status.leader = known.leader.filter(|_| has_quorum);
                let member = known.members.get(&status.position.member);
                status.is_learner = member.is_some_and(|member| member.role == Role::Learner);
            }
        }
        let noted = world.memory.members.values().filter(|member| member.votes);
        let is_overheard = !has_quorum && noted.count() == 1 && well.len() == 1;
        let is_overheard = is_overheard && !Feature::Learners.is_in(&known.version);
        world.overheard = if is_overheard {
            known.members.clone()
        } else {
            BTreeMap::new()
        };
        world.membership = if has_quorum {
            Membership::Known(known.clone())
        } else {
            Membership::Unknown(vec!["no quorum".to_owned()])
        };
    }
}

/// Nobody runs here any more; a volume that was to go goes with its pod.
fn lose_pod(seen: &mut Seen) {
    seen.pod = None;
    seen.report = Asked::Not;
    seen.status = Asked::Not;
    if seen.claim.as_ref().is_some_and(|claim| claim.deleting.is_some()) {
        seen.claim = None;
    }
}
