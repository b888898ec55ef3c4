//! What becomes of a step, and when nothing does: what is looked at again before it is taken, and what etcd refuses.

use etcd_operator_api::contract::{Mode, Permit};
use etcd_operator_etcd_types::membership::{Member, Role};
use etcd_operator_etcd_types::policy::connected_to_add;

use super::{Life, Outcome, lose_pod};
use crate::observed_state::{ObservedCluster, Ordinal, Pod};
use crate::plan::tests::scene::id;
use crate::plan::{GracePeriod, Plan, PodRef, Step, majority};

/// Whether what a plan was made for is not what stands in the object by now.
pub fn is_superseded(plan: &Plan, before: &ObservedCluster, now: &ObservedCluster) -> bool {
    let is_same = now.generation == before.generation
        && now.replace == before.replace
        && now.discard == before.discard
        && now.persisted.pending == plan.persisted.pending
        && now.persisted.restore == plan.persisted.restore
        && now.persisted.incarnation == plan.persisted.incarnation;
    !is_same
}

fn done(is_done: bool) -> Outcome {
    if is_done { Outcome::Done } else { Outcome::Refused }
}

impl Life {
    /// Takes a step that was planned for the world of before; what is looked at again is as it is now.
    pub fn apply(&mut self, step: &Step, before: &ObservedCluster) -> Outcome {
        match step {
            Step::FencePods(_) => {
                self.scene.observed.unfenced.clear();
                Outcome::Done
            }
            // No EtcdBackup covers the cluster of a life.
            Step::RequestBackup(_)
            | Step::WriteLogEntries(_)
            | Step::EnableDowngrade { .. }
            | Step::CancelDowngrade { .. } => Outcome::Refused,
            Step::Permit(permits) => done(
                permits
                    .iter()
                    .all(|(pod, permit)| self.permit(pod, permit, before)),
            ),
            Step::DeletePod { pod, grace_period } => done(self.delete_pod(pod, *grace_period)),
            Step::RestartPod { pod, .. } | Step::DeleteStoppedPod { pod, .. } => {
                done(self.delete_pod(pod, GracePeriod::PodDefault))
            }
            Step::DeleteClaim { ordinal, uid } => done(self.delete_claim(*ordinal, uid, before)),
            Step::Add { .. }
            | Step::Promote { .. }
            | Step::MoveLeader { .. }
            | Step::Remove { .. }
            | Step::Disarm(_) => self.change_members(step, before),
        }
    }

    fn pod_now(&mut self, pod: &PodRef) -> Option<&mut Pod> {
        let observed_member = self.scene.observed.members.get_mut(&pod.ordinal)?;
        observed_member.pod.as_mut().filter(|now| now.uid == pod.uid)
    }

    fn permit(&mut self, pod: &PodRef, permit: &Permit, before: &ObservedCluster) -> bool {
        let noted = before.persisted.members.get(&pod.ordinal);
        let claim = self.scene.observed.member(pod.ordinal).claim.as_ref();
        let is_its_own = noted
            .zip(claim)
            .is_some_and(|(noted, claim)| noted.is_same_volume(claim));
        if permit.mode == Mode::Resume && !is_its_own {
            return false;
        }
        let Some(now) = self.pod_now(pod) else {
            return false;
        };
        now.permit = Some(permit.clone());
        true
    }

    fn delete_pod(&mut self, pod: &PodRef, grace_period: GracePeriod) -> bool {
        let now = self.scene.observed.now;
        let Some(there) = self.pod_now(pod) else {
            return false;
        };
        there.deleting.get_or_insert(now);
        let stays = there.node_lost_since.is_some() && grace_period != GracePeriod::Zero;
        if !stays && let Some(observed_member) = self.scene.observed.members.get_mut(&pod.ordinal) {
            lose_pod(observed_member);
        }
        true
    }

    fn delete_claim(&mut self, ordinal: Ordinal, uid: &str, before: &ObservedCluster) -> bool {
        let observed = &mut self.scene.observed;
        if before.persisted.has_formed() {
            let Some(known) = observed.known() else {
                return false;
            };
            let noted = before.persisted.members.get(&ordinal);
            let is_noted_one = noted.is_some_and(|noted| known.members.contains_key(&noted.id));
            if is_noted_one || observed.etcd_member_in(known, ordinal).is_some() {
                return false;
            }
        }
        let Some(observed_member) = observed.members.get_mut(&ordinal) else {
            return false;
        };
        let Some(claim) = observed_member.claim.as_mut().filter(|claim| claim.uid == uid) else {
            return false;
        };
        if observed_member.pod.is_some() {
            claim.deleting = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
        } else {
            observed_member.claim = None;
        }
        true
    }

    /// etcd takes care of its quorum, too: whoever is connected counts.
    fn change_members(&mut self, step: &Step, before: &ObservedCluster) -> Outcome {
        let running = self.running();
        let can_decide = self.scene.observed.known().is_some();
        let (Some(known), Some(now)) = (before.known(), &mut self.etcd) else {
            return Outcome::Refused;
        };
        if !can_decide || now.members != known.members || now.cluster != known.cluster {
            return Outcome::Refused;
        }
        let voters = now.voters().count();
        let connected = now.voters().filter(|voter| running.contains(&voter.id)).count();
        match step {
            Step::Add { ordinal, learner } => {
                if connected < connected_to_add(&now.version, voters) {
                    return Outcome::Refused;
                }
                self.given += 1;
                let id = id(1_000 + self.given);
                let member = Member {
                    id,
                    name: None,
                    peer_urls: vec![before.peer_url(*ordinal)],
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
                let ordinal = leader.and_then(|leader| before.ordinal_at(&leader.peer_urls));
                let is_voter = now.voters().any(|voter| voter.id == *to);
                if ordinal != Some(*from) || !is_voter || !running.contains(to) {
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
            Step::Disarm(alarm) => done(self.scene.observed.alarms.remove(alarm)),
            Step::FencePods(_)
            | Step::Permit(_)
            | Step::RestartPod { .. }
            | Step::DeleteStoppedPod { .. }
            | Step::DeletePod { .. }
            | Step::DeleteClaim { .. }
            | Step::RequestBackup(_)
            | Step::WriteLogEntries(_)
            | Step::EnableDowngrade { .. }
            | Step::CancelDowngrade { .. } => Outcome::Refused,
        }
    }
}
