//! Steps of an operator, judged when they arrive: calls to members, and writes to the API server that take members or
//! their data away.

use std::sync::Arc;

use etcd_operator_api::names::ANNOTATION_DISCARD;
use etcd_operator_etcd::id::{ClusterId, MemberId};
use serde_json::Value;

use super::restores::GivingWay;
use super::{BLINDNESS, Disrupted, ENDING, Ledger, Promise};
use crate::etcd::{DiskId, Step, StepKind, Truth, Voter};
use crate::fake::Verb;

/// How a voter is taken away that is to leave the cluster.
const REMOVED: &str = "removed";

/// A write of an operator to the API server, before it arrives.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is done.
    pub verb: Verb,
    /// The plural name of the resource, with its subresource behind a slash if there is one.
    pub resource: String,
    /// In which namespace.
    pub namespace: String,
    /// To which object; empty for a creation.
    pub name: String,
    /// What is sent.
    pub body: Arc<Value>,
}

/// Whether these voters are enough for a decision of so many.
fn decides(well: usize, voters: usize) -> bool {
    well > voters / 2
}

impl Ledger {
    /// Whether a voter does its part, or stopped so lately that nobody need have noticed, unless it was the operator
    /// itself that took it away.
    fn is_well(&self, cluster: ClusterId, voter: &Voter<'_>) -> bool {
        let key = (cluster, voter.member.id);
        let is_taken = self.with(|state| state.disrupted.contains_key(&key));
        !is_taken && voter.ill_for.is_none_or(|time| time < BLINDNESS)
    }

    fn well(&self, cluster: ClusterId, voters: &[Voter<'_>]) -> usize {
        voters.iter().filter(|voter| self.is_well(cluster, voter)).count()
    }

    /// Forgets who has come back, or is no longer a voter.
    fn welcome(&self, truth: &Truth<'_>, cluster: ClusterId, voters: &[Voter<'_>]) {
        let now = truth.now();
        self.with(|state| {
            state.disrupted.retain(|(of, member), disrupted| {
                let known = voters.iter().find(|voter| voter.member.id == *member);
                // It has ended and started again meanwhile, or it was never told to end.
                let is_new = |voter: &Voter<'_>| {
                    let since = truth.up_since(cluster, voter.member.id);
                    since.is_some_and(|since| since > disrupted.at)
                };
                let is_back = |voter: &Voter<'_>| {
                    voter.ill_for.is_none() && (now >= disrupted.at + ENDING || is_new(voter))
                };
                *of != cluster || known.is_some_and(|voter| !is_back(voter))
            });
        });
    }

    pub(super) fn judge_call(&self, truth: &Truth<'_>, step: &Step) {
        let voters = truth.voters(step.cluster);
        self.welcome(truth, step.cluster, &voters);
        match &step.what {
            StepKind::Remove(id) => self.judge_removal(truth, step.cluster, *id, &voters),
            StepKind::RemoveRefused(id) => self.with(|state| {
                let key = (step.cluster, *id);
                let is_asked = state.disrupted.get(&key).is_some_and(|was| was.how == REMOVED);
                if is_asked {
                    state.disrupted.remove(&key);
                }
            }),
            // Who has a vote already gets none, which is what an operator finds that comes too late.
            StepKind::Promote(id) if truth.is_voter(step.cluster, *id) => {}
            StepKind::Promote(id) => {
                let is_there = truth
                    .ill_for(step.cluster, *id)
                    .is_none_or(|time| time < BLINDNESS);
                let well = self.well(step.cluster, &voters) + usize::from(is_there);
                if truth.members(step.cluster).contains_key(id) && !decides(well, voters.len() + 1) {
                    let what = format!(
                        "{id} gets a vote: then {well} of {} voters are well",
                        voters.len() + 1
                    );
                    self.blame(truth.now(), Promise::S2, what);
                }
            }
            // A member at these addresses already: etcd takes it for no change and refuses it.
            StepKind::AddVoter(urls) if voters.iter().any(|voter| voter.member.peer_urls == *urls) => {}
            StepKind::AddVoter(_) => {
                let well = self.well(step.cluster, &voters);
                if well < voters.len() {
                    let what = format!("a voter is added while {well} of {} are well", voters.len());
                    self.blame(truth.now(), Promise::S2, what);
                }
            }
            StepKind::AddLearner(_)
            | StepKind::Update(..)
            | StepKind::MoveLeader(_)
            | StepKind::Defragment
            | StepKind::EnableDowngrade(_)
            | StepKind::CancelDowngrade => {}
        }
    }

    fn judge_removal(&self, truth: &Truth<'_>, cluster: ClusterId, id: MemberId, voters: &[Voter<'_>]) {
        let Some(leaving) = voters.iter().find(|voter| voter.member.id == id) else {
            return;
        };
        let left = self.well(cluster, voters) - usize::from(self.is_well(cluster, leaving));
        if !decides(left, voters.len() - 1) {
            let what = format!(
                "{id} is removed: then {left} of {} voters are well",
                voters.len() - 1
            );
            self.blame(truth.now(), Promise::S2, what);
        }
        if leaving.ill_for.is_none() {
            self.disrupt(truth, cluster, leaving, REMOVED);
        }
    }

    /// A well voter is taken away. Another one may be only when the last has come back, or is no longer one.
    fn disrupt(&self, truth: &Truth<'_>, cluster: ClusterId, voter: &Voter, how: &str) {
        let own = voter.member.id;
        let others = self.with(|state| {
            let disrupted = Disrupted {
                at: truth.now(),
                how: how.to_owned(),
            };
            let others = state
                .disrupted
                .iter()
                .filter(|((of, member), _)| *of == cluster && *member != own);
            let others: Vec<String> = others
                .map(|((_, member), disrupted)| format!("{member}, which was {}", disrupted.how))
                .collect();
            state.disrupted.insert((cluster, own), disrupted);
            others
        });
        if let Some(other) = others.first() {
            let what = format!("{own} is {how} although {other}, is not back");
            self.blame(truth.now(), Promise::OneAtATime, what);
        }
    }

    /// Looks at a write of an operator to the API server.
    pub fn judge_request(&self, request: &Request) {
        let is_deletion = request.verb == Verb::Delete;
        match request.resource.as_str() {
            "pods" if is_deletion => self.judge_pod_gone(request, "deleted"),
            "pods/eviction" if request.verb == Verb::Create => self.judge_pod_gone(request, "evicted"),
            "pods" | "pods/status" => self.judge_permit(request),
            "persistentvolumeclaims" if is_deletion => self.judge_claim_gone(request),
            "statefulsets" | "statefulsets/scale" => self.judge_shrinking(request),
            "etcdclusters/status" => self.note_commits(request),
            _ => {}
        }
    }

    /// The member whose address a pod of this name has, in every cluster that knows it.
    fn members_of(&self, truth: &Truth<'_>, request: &Request, pod: &str) -> Vec<(ClusterId, MemberId)> {
        let stored = self
            .0
            .machine
            .fake()
            .stored_one("v1", "Pod", &request.namespace, pod);
        let subdomain = stored.as_ref().and_then(|pod| pod["spec"]["subdomain"].as_str());
        let Some(subdomain) = subdomain else {
            return Vec::new();
        };
        let host = format!("{pod}.{subdomain}.{}.svc", request.namespace);
        let members = truth.clusters_at(&host).into_iter();
        members.map(|(cluster, member)| (cluster, member.id)).collect()
    }

    fn is_about_this(&self, request: &Request, kind: &str) -> bool {
        let stored = self
            .0
            .machine
            .fake()
            .stored_one("v1", kind, &request.namespace, &request.name);
        let options = [
            &request.body["preconditions"],
            &request.body["deleteOptions"]["preconditions"],
        ];
        let wanted = options.into_iter().find_map(|options| options["uid"].as_str());
        stored.is_some_and(|stored| wanted.is_none_or(|wanted| stored["metadata"]["uid"] == wanted))
    }

    fn judge_pod_gone(&self, request: &Request, how: &str) {
        if !self.is_about_this(request, "Pod") {
            return;
        }
        let own_disk = self.own_disk(&request.namespace, &request.name);
        let way = self.gives_way(&request.namespace, &request.name, own_disk);
        self.0.etcds.clone().truth(|truth| {
            for (cluster, id) in self.members_of(truth, request, &request.name) {
                let voters = truth.voters(cluster);
                self.welcome(truth, cluster, &voters);
                let Some(leaving) = voters.iter().find(|voter| voter.member.id == id) else {
                    continue;
                };
                if leaving.ill_for.is_some() || self.may_give_way(truth, (cluster, &voters), way.as_ref()) {
                    continue;
                }
                let left = self.well(cluster, &voters) - usize::from(self.is_well(cluster, leaving));
                // One of two may go for a moment while the other one is well: nobody could restart it otherwise.
                let is_bearable = voters.len() <= 2 && left + 1 == voters.len();
                if !decides(left, voters.len()) && !is_bearable {
                    let what = format!(
                        "{} is {how}: then {left} of {} voters are well",
                        request.name,
                        voters.len()
                    );
                    self.blame(truth.now(), Promise::S2, what);
                }
                if own_disk {
                    let what = format!("{} is {how}, and the disk of {id} goes with it", request.name);
                    self.blame(truth.now(), Promise::S4, what);
                }
                self.disrupt(truth, cluster, leaving, how);
            }
        });
    }

    /// Whether what a pod holds of this cluster is what the restore is there to replace: also where the cluster was never
    /// recorded, once it has lost its quorum by itself.
    fn may_give_way(
        &self,
        truth: &Truth<'_>,
        (cluster, voters): (ClusterId, &[Voter<'_>]),
        way: Option<&GivingWay>,
    ) -> bool {
        let runs = |voter: &&Voter<'_>| voter.ill_for.is_none_or(|time| time < BLINDNESS);
        let is_without_quorum = || !decides(voters.iter().filter(runs).count(), voters.len());
        way.is_some_and(|way| {
            way.is_of_before || !truth.has_decided(cluster) || self.is_past(cluster) || is_without_quorum()
        })
    }

    /// Whether a pod's disk ends with the pod.
    fn own_disk(&self, namespace: &str, pod: &str) -> bool {
        let stored = self.0.machine.fake().stored_one("v1", "Pod", namespace, pod);
        let volumes = stored.as_ref().and_then(|pod| pod["spec"]["volumes"].as_array());
        let mut volumes = volumes.into_iter().flatten();
        volumes.any(|volume| volume["name"] == "data" && volume["emptyDir"].is_object())
    }

    fn judge_claim_gone(&self, request: &Request) {
        if !self.is_about_this(request, "PersistentVolumeClaim") {
            return;
        }
        let Some(disk) = self.0.machine.disk(&request.namespace, &request.name) else {
            return;
        };
        if self.is_given_up(request) {
            return;
        }
        self.0.etcds.clone().truth(|truth| {
            let Some((cluster, id)) = truth.owner(disk) else {
                return;
            };
            // What nobody ever agreed on with a majority is over once all was begun anew and that agrees.
            let mut clusters = truth.clusters().into_iter();
            let is_begun_anew = clusters.any(|other| truth.has_decided(other)) || self.is_restored(request);
            let is_past = !truth.has_decided(cluster) && is_begun_anew;
            // A copy may go while the member has what it is a copy of.
            let is_copy = || {
                let own = self.disk_of(truth, &request.namespace, (cluster, id));
                own.is_some_and(|own| own != disk && truth.owner(own) == Some((cluster, id)))
            };
            if truth.members(cluster).contains_key(&id) && !is_past && !self.is_past(cluster) && !is_copy() {
                let what = format!(
                    "{} is deleted, and {id}, whose data it holds, is a member",
                    request.name
                );
                self.blame(truth.now(), Promise::S4, what);
            }
        });
    }

    /// Whether a restore without a way back has taken the place of all that was before, be it that nobody ever agreed there.
    fn is_restored(&self, request: &Request) -> bool {
        let fake = self.0.machine.fake();
        let clusters = fake.stored("etcd.database.coreos.com/v1beta2", "EtcdCluster");
        let mut here = clusters
            .iter()
            .filter(|cluster| cluster["metadata"]["namespace"] == *request.namespace);
        here.any(|cluster| cluster["status"]["restore"]["committed"] == true)
    }

    /// The disk behind the claim of a member.
    fn disk_of(
        &self,
        truth: &Truth,
        namespace: &str,
        (cluster, id): (ClusterId, MemberId),
    ) -> Option<DiskId> {
        let members = truth.members(cluster);
        let host = members.get(&id)?.peer_urls.first()?.host();
        let pod = host.split('.').next().unwrap_or_default();
        self.0.machine.disk(namespace, &format!("data-{pod}"))
    }

    /// Whether a person named the claim as one that may go.
    fn is_given_up(&self, request: &Request) -> bool {
        let fake = self.0.machine.fake();
        let stored = fake.stored_one("v1", "PersistentVolumeClaim", &request.namespace, &request.name);
        let Some(uid) = stored.and_then(|claim| claim["metadata"]["uid"].as_str().map(str::to_owned)) else {
            return false;
        };
        let clusters = fake.stored("etcd.database.coreos.com/v1beta2", "EtcdCluster");
        clusters.iter().any(|cluster| {
            let consent = cluster["metadata"]["annotations"].get(ANNOTATION_DISCARD);
            consent
                .and_then(Value::as_str)
                .is_some_and(|uids| uids.contains(&uid))
        })
    }

    /// A StatefulSet that gets fewer pods must not lose a member's, unless all of them rest or are stopped by a restore.
    fn judge_shrinking(&self, request: &Request) {
        let Some(replicas) = request.body["spec"]["replicas"].as_u64() else {
            return;
        };
        let stored =
            self.0
                .machine
                .fake()
                .stored_one("apps/v1", "StatefulSet", &request.namespace, &request.name);
        let before = stored
            .as_ref()
            .and_then(|set| set["spec"]["replicas"].as_u64())
            .unwrap_or(0);
        if replicas == 0 {
            return;
        }
        self.0.etcds.clone().truth(|truth| {
            let of = |ordinal| self.members_of(truth, request, &format!("{}-{ordinal}", request.name));
            // Whoever never agreed on anything has no voters any more once all was begun anew and that agrees.
            let mut all = (0..before).flat_map(of);
            let is_begun_anew =
                all.any(|(cluster, _)| truth.has_decided(cluster)) || self.is_restored(request);
            for ordinal in replicas..before {
                let pod = format!("{}-{ordinal}", request.name);
                let own_disk = self.own_disk(&request.namespace, &pod);
                let way = self.gives_way(&request.namespace, &pod, own_disk);
                for (cluster, id) in of(ordinal) {
                    let is_past = (is_begun_anew && !truth.has_decided(cluster)) || self.is_past(cluster);
                    let is_stopped = self.is_stopped_by_restore(request, cluster, own_disk)
                        || self.may_give_way(truth, (cluster, &truth.voters(cluster)), way.as_ref());
                    if is_past || is_stopped || !truth.is_voter(cluster, id) {
                        continue;
                    }
                    let what = format!("{pod} is scaled away, and {id} is a voter");
                    self.blame(truth.now(), Promise::S2, what);
                }
            }
        });
    }
}
