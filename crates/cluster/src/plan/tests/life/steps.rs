//! What becomes of a step, and when nothing does: what is looked at again before it is taken, and what etcd refuses.

use etcd_operator_api::contract::{Mode, Permit};
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::policy::connected_to_add;

use super::{Life, Outcome, lose_pod};
use crate::plan::tests::scene::id;
use crate::plan::{Leave, Plan, PodRef, Step, majority};
use crate::world::{Ordinal, Pod, World};

/// Whether what a plan was made for is not what stands in the object by now.
pub fn is_superseded(plan: &Plan, before: &World, now: &World) -> bool {
    let is_same = now.generation == before.generation
        && now.replace == before.replace
        && now.discard == before.discard
        && now.memory.intent == plan.memory.intent
        && now.memory.restore == plan.memory.restore
        && now.memory.incarnation == plan.memory.incarnation;
    !is_same
}

fn done(is_done: bool) -> Outcome {
    if is_done { Outcome::Done } else { Outcome::Refused }
}

impl Life {
    /// Takes a step that was planned for the world of before; what is looked at again is as it is now.
    pub fn apply(&mut self, step: &Step, before: &World) -> Outcome {
        match step {
            Step::TakeOver(_) => {
                self.scene.world.owed.clear();
                Outcome::Done
            }
            Step::Permit(permits) => done(
                permits
                    .iter()
                    .all(|(pod, permit)| self.permit(pod, permit, before)),
            ),
            Step::DeletePod { pod, leave } => done(self.delete_pod(pod, *leave)),
            Step::DeleteClaim { place, uid } => done(self.delete_claim(*place, uid, before)),
            Step::Add { .. }
            | Step::Promote { .. }
            | Step::MoveLeader { .. }
            | Step::Remove { .. }
            | Step::Disarm(_) => self.change_members(step, before),
        }
    }

    fn pod_now(&mut self, pod: &PodRef) -> Option<&mut Pod> {
        let seen = self.scene.world.members.get_mut(&pod.place)?;
        seen.pod.as_mut().filter(|now| now.uid == pod.uid)
    }

    fn permit(&mut self, pod: &PodRef, permit: &Permit, before: &World) -> bool {
        let noted = before.memory.members.get(&pod.place);
        let claim = self.scene.world.seen(pod.place).claim.as_ref();
        let is_its_own = noted.zip(claim).is_some_and(|(noted, claim)| noted.is_on(claim));
        if permit.mode == Mode::Resume && !is_its_own {
            return false;
        }
        let Some(now) = self.pod_now(pod) else {
            return false;
        };
        now.permit = Some(permit.clone());
        true
    }

    fn delete_pod(&mut self, pod: &PodRef, leave: Leave) -> bool {
        let now = self.scene.world.now;
        let Some(there) = self.pod_now(pod) else {
            return false;
        };
        there.deleting.get_or_insert(now);
        let stays = there.node_lost.is_some() && leave != Leave::None;
        if !stays && let Some(seen) = self.scene.world.members.get_mut(&pod.place) {
            lose_pod(seen);
        }
        true
    }

    fn delete_claim(&mut self, place: Ordinal, uid: &str, before: &World) -> bool {
        let world = &mut self.scene.world;
        if before.memory.has_formed() {
            let Some(known) = world.known() else {
                return false;
            };
            let noted = before.memory.members.get(&place);
            let is_noted_one = noted.is_some_and(|noted| known.members.contains_key(&noted.id));
            if is_noted_one || world.member_among(known, place).is_some() {
                return false;
            }
        }
        let Some(seen) = world.members.get_mut(&place) else {
            return false;
        };
        let Some(claim) = seen.claim.as_mut().filter(|claim| claim.uid == uid) else {
            return false;
        };
        if seen.pod.is_some() {
            claim.deleting = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
        } else {
            seen.claim = None;
        }
        true
    }

    /// etcd takes care of its quorum, too: whoever is connected counts.
    fn change_members(&mut self, step: &Step, before: &World) -> Outcome {
        let running = self.running();
        let can_decide = self.scene.world.known().is_some();
        let (Some(known), Some(now)) = (before.known(), &mut self.etcd) else {
            return Outcome::Refused;
        };
        if !can_decide || now.members != known.members || now.cluster != known.cluster {
            return Outcome::Refused;
        }
        let voters = now.voters().count();
        let connected = now.voters().filter(|voter| running.contains(&voter.id)).count();
        match step {
            Step::Add { place, learner } => {
                if connected < connected_to_add(&now.version, voters) {
                    return Outcome::Refused;
                }
                self.given += 1;
                let id = id(1_000 + self.given);
                let member = Member {
                    id,
                    name: None,
                    peer_urls: vec![before.peer_url(*place)],
                    client_urls: Vec::new(),
                    role: if *learner { Role::Learner } else { Role::Voter },
                };
                now.members.insert(id, member);
                Outcome::Added(id)
            }
            Step::Promote { id, .. } => {
                let learner = now.members.get_mut(id).filter(|_| running.contains(id));
                let Some(learner) = learner else {
                    return Outcome::Refused;
                };
                learner.role = Role::Voter;
                Outcome::Done
            }
            Step::MoveLeader { from, to } => {
                let leader = now.leader.and_then(|leader| now.members.get(&leader));
                let place = leader.and_then(|leader| before.place_of(&leader.peer_urls));
                let is_voter = now.voters().any(|voter| voter.id == *to);
                if place != Some(*from) || !is_voter || !running.contains(to) {
                    return Outcome::Refused;
                }
                now.leader = Some(*to);
                Outcome::Done
            }
            Step::Remove { id, .. } => {
                let is_voter = now.voters().any(|voter| voter.id == *id);
                let is_needed = is_voter && running.contains(id) && connected <= majority(voters - 1);
                if is_needed || voters == usize::from(is_voter) {
                    return Outcome::Refused;
                }
                done(now.members.remove(id).is_some())
            }
            Step::Disarm(alarm) => done(self.scene.world.alarms.remove(alarm)),
            Step::TakeOver(_) | Step::Permit(_) | Step::DeletePod { .. } | Step::DeleteClaim { .. } => {
                Outcome::Refused
            }
        }
    }
}
