//! A world, put together and changed in few words.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::contract::{Fingerprint, Identity, Report, VERSION, Verdict};
use etcd_operator_etcd_types::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
use etcd_operator_etcd_types::membership::{Known, Member, Role};
use etcd_operator_etcd_types::status::{Position, Status};
use etcd_operator_etcd_types::version::Version;
use jiff::Timestamp;
use serde_json::json;

use crate::build::desired;
use crate::observed_state::{
    CallFailure, Claim, Container, ImageCheck, Membership, MembershipFailure, ObservedCluster,
    ObservedMember, ObservedStatefulSet, Ordinal, Pod, PodAdmission, QueryResult, StartDelay, WantedTemplate,
    ended_container,
};
use crate::persisted_state::{LastKnownIndex, MemberRecord, PersistedState, Rollout};
use crate::plan::{GracePeriod, Plan, Step};

/// How far a member has come that runs there.
fn last_index(observed_member: &ObservedMember, id: MemberId) -> Option<LastKnownIndex> {
    let status = observed_member
        .status()
        .filter(|status| status.position.member == id)?;
    Some(LastKnownIndex {
        pod: observed_member.pod.as_ref()?.uid.clone(),
        index: status.raft_index,
    })
}

/// The image of etcd.
const IMAGE: &str = "quay.io/coreos/etcd:v3.6.16";

/// A world under construction.
#[derive(Clone, Debug)]
pub struct Scene {
    /// As it is.
    pub observed: ObservedCluster,
    pub version: Version,
}

/// A place.
pub fn ordinal(number: u16) -> Ordinal {
    Ordinal::new(number).expect("a place")
}

/// The ID of the member that was first at a place.
pub fn id(number: u16) -> MemberId {
    MemberId::new(u64::from(number) + 0x10).expect("an ID")
}

/// No answer to the question who the members are.
pub fn no_answer() -> MembershipFailure {
    MembershipFailure::Call(CallFailure::from_text("no answer"))
}

/// A container that the kubelet reports as waiting with these words: a reason, and a message after a colon.
pub fn waiting(words: &str) -> Container {
    let (reason, message) = match words.split_once(": ") {
        Some((reason, message)) => (reason, Some(message)),
        None => (words, None),
    };
    Container::Waiting(StartDelay::from_kubelet(None, Some(reason), message))
}

fn cluster() -> ClusterId {
    ClusterId::new(0xc).expect("an ID")
}

impl Scene {
    /// A cluster that was just asked for.
    pub fn new(size: u8) -> Self {
        Self::of(size, "3.6.16")
    }

    /// The same in a version of etcd.
    pub fn of(size: u8, version: &str) -> Self {
        let object: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"size": size, "version": version, "storage": {"size": "1Gi"}},
        }))
        .expect("a cluster");
        let observed = ObservedCluster {
            now: Timestamp::from_second(1_000_000).expect("a time"),
            instance: "me".to_owned(),
            uid: "cluster-uid".to_owned(),
            namespace: "ns".to_owned(),
            created: Timestamp::from_second(900_000).expect("a time"),
            generation: 1,
            desired: desired(&object).expect("a valid spec"),
            persisted: PersistedState::default(),
            discard: BTreeSet::new(),
            adopt: BTreeSet::new(),
            restore: Ok(None),
            is_stale: false,
            is_requester_present: true,
            next_restore: None,
            wanted: WantedTemplate {
                spec_hash: "as-asked".to_owned(),
                version: version.parse().expect("a version"),
                image: IMAGE.to_owned(),
                later_versions: Vec::new(),
                snapshot_count: None,
                version_blocker: None,
                restarted_at: None,
                is_restart_requested: false,
                has_slot: true,
            },
            set: None,
            members: BTreeMap::new(),
            recorded_versions: BTreeMap::new(),
            cluster_version: None,
            is_auth_enabled: None,
            membership: Membership::Unknown(vec![no_answer()]),
            local_membership: BTreeMap::new(),
            alarms_failure: None,
            alarms: BTreeSet::new(),
            digests: BTreeMap::new(),
            server_certificate: None,
            replace: None,
            unfenced: BTreeSet::new(),
            upgrade_backups: Vec::new(),
            running_backups: Vec::new(),
            pod_admission: PodAdmission::NotAsked,
            image_check: ImageCheck::NotAsked,
        };
        Self {
            observed,
            version: version.parse().expect("a version"),
        }
    }

    /// A cluster that formed with this many members, all well.
    pub fn formed(size: u8) -> Self {
        Self::formed_of(size, "3.6.16")
    }

    /// The same in a version of etcd.
    pub fn formed_of(size: u8, version: &str) -> Self {
        let mut scene = Self::of(size, version);
        scene.observed.persisted = PersistedState {
            cluster: Some(cluster()),
            incarnation: 1,
            last_incarnation: 1,
            generation: 1,
            rollout: Some(Rollout::begin("as-asked", version, scene.observed.now)),
            served_spec_hashes: vec!["as-asked".to_owned()],
            ..PersistedState::default()
        };
        scene.set(u16::from(size), 1);
        scene.observed.membership = Membership::Known(Known {
            cluster: cluster(),
            members: BTreeMap::new(),
            leader: Some(id(0)),
            reader: id(0),
            version: scene.version.clone(),
            raft_index: RaftIndex(100),
            term: RaftTerm(2),
            revision: Revision(50),
        });
        for number in 0..u16::from(size) {
            scene.member(number, id(number), Role::Voter, true);
            scene.runs(number, id(number));
        }
        scene.remember();
        scene
    }

    /// The user has changed what reaches the pods.
    pub fn edited(&mut self, spec_hash: &str) {
        self.observed.generation += 1;
        spec_hash.clone_into(&mut self.observed.wanted.spec_hash);
    }

    /// A change was pending already when an operator took over that rolls changes out.
    pub fn pending_from_before(&mut self, spec_hash: &str) {
        spec_hash.clone_into(&mut self.observed.wanted.spec_hash);
        self.observed.persisted.rollout = None;
    }

    /// The members as they are now are those that were last seen.
    pub fn remember(&mut self) {
        let known = self.known().clone();
        let placed = known.members.values().filter_map(|member| {
            let ordinal = self.observed.ordinal_at(&member.peer_urls)?;
            let claim = self.observed.member(ordinal).claim.as_ref();
            Some((
                ordinal,
                MemberRecord {
                    id: member.id,
                    is_voter: member.role == Role::Voter,
                    claim: claim.map(|claim| claim.uid.clone()),
                    volume: claim.and_then(|claim| claim.volume.clone()),
                    last_index: last_index(self.observed.member(ordinal), member.id),
                },
            ))
        });
        self.observed.persisted.members = placed.collect();
    }

    /// What etcd says of its members, to be changed.
    pub fn known(&mut self) -> &mut Known {
        match &mut self.observed.membership {
            Membership::Known(known) => known,
            Membership::Unknown(_) => panic!("the members are not known in this scene"),
        }
    }

    /// Nobody can tell any more who the members are.
    pub fn unknown(&mut self) {
        self.observed.membership = Membership::Unknown(vec![no_answer()]);
    }

    /// The StatefulSet is this.
    pub fn set(&mut self, replicas: u16, incarnation: i64) {
        self.observed.set = Some(ObservedStatefulSet {
            replicas,
            incarnation,
            cluster: self.observed.persisted.cluster,
            voters: BTreeSet::new(),
            spec_hash: Some("as-asked".to_owned()),
            version: Some(self.version.clone()),
            image: Some(IMAGE.to_owned()),
            quota: None,
            snapshot_count: None,
            unseen_generation: None,
            secure_peers: false,
            secure_clients: false,
            has_single_success_probe: false,
        });
    }

    /// etcd has a member at a place.
    pub fn member(&mut self, number: u16, id: MemberId, role: Role, has_started: bool) {
        let url = self.observed.peer_url(ordinal(number));
        let name = has_started.then(|| self.observed.name(ordinal(number)));
        self.known().members.insert(
            id,
            Member {
                id,
                name,
                peer_urls: vec![url],
                client_urls: Vec::new(),
                role,
            },
        );
    }

    /// etcd has no such member any more.
    pub fn left(&mut self, id: MemberId) {
        self.known().members.remove(&id);
    }

    pub fn at(&mut self, number: u16) -> &mut ObservedMember {
        self.observed
            .members
            .entry(ordinal(number))
            .or_insert(ObservedMember::ABSENT)
    }

    /// There is a pod of this UID with a volume at a place, and nothing answers in it.
    pub fn pod(&mut self, number: u16, uid: &str) {
        let incarnation = self.observed.persisted.incarnation.max(1);
        let claim = Claim {
            uid: format!("claim-{number}"),
            volume: Some(format!("volume-{number}")),
            deleting: None,
            created: Some(Timestamp::from_second(950_000).expect("a time")),
            node: None,
            class: None,
        };
        let observed_member = self.at(number);
        observed_member.claim.get_or_insert(claim);
        observed_member.pod = Some(Pod {
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
            node: Some("n".to_owned()),
            ip: Some([10, 0, 0, 1].into()),
            ready: false,
            ready_since: None,
            unready_since: None,
            created: None,
            deleting: None,
            incarnation,
            spec_hash: Some("as-asked".to_owned()),
            snapshot_count: None,
            unschedulable: None,
            unscheduled_since: None,
            image: Some(IMAGE.to_owned()),
            container: Container::Running,
            node_lost_since: None,
            permit: None,
            permit_delivery: None,
            fetch: None,
            volume_position: None,
            has_single_success_probe: false,
            is_crash_looping: false,
            end: None,
        });
        observed_member.report = QueryResult::NoAnswer(CallFailure::connection_refused("connection refused"));
        observed_member.status = QueryResult::NoAnswer(CallFailure::connection_refused("connection refused"));
    }

    /// A member runs at a place and is well.
    pub fn runs(&mut self, number: u16, id: MemberId) {
        self.pod(number, &format!("pod-{number}"));
        let version = self.version.clone();
        let is_learner = match &self.observed.membership {
            Membership::Known(known) => known.learners().any(|learner| learner.id == id),
            Membership::Unknown(_) => false,
        };
        let observed_member = self.at(number);
        observed_member.report = QueryResult::OtherResponder;
        observed_member.status = QueryResult::Answer(Status {
            position: Position {
                cluster: cluster(),
                member: id,
                revision: Revision(50),
                term: RaftTerm(2),
            },
            version,
            leader: Some(super::scene::id(0)),
            raft_index: RaftIndex(100),
            applied: Some(RaftIndex(100)),
            is_learner,
            db_size: 0,
            db_in_use: None,
            db_quota: None,
            storage_version: None,
            downgrade: None,
            errors: Vec::new(),
        });
        if let Some(pod) = &mut observed_member.pod {
            pod.ready = true;
        }
    }

    /// The member at a place does not answer.
    pub fn silent(&mut self, number: u16) {
        let observed_member = self.at(number);
        observed_member.status = QueryResult::NoAnswer(CallFailure::from_text("no answer"));
        observed_member.report = QueryResult::NoAnswer(CallFailure::from_text("no answer"));
        if let Some(pod) = &mut observed_member.pod {
            pod.ready = false;
        }
    }

    /// The container at a place has ended with this code and without a word.
    pub fn ended(&mut self, number: u16, code: i32) {
        self.silent(number);
        self.pod_at(number).container = ended_container(code, "");
    }

    /// A process waits at a place and reports this.
    pub fn waits(&mut self, number: u16, process: &str, verdict: &Verdict) {
        if self.at(number).pod.is_none() {
            self.pod(number, &format!("pod-{number}"));
        }
        let incarnation = self.observed.persisted.incarnation.max(1);
        let uid = self.observed.uid.clone();
        let identity = Identity {
            version: VERSION,
            cluster_uid: uid.clone(),
            cluster_id: None,
            member: self.observed.name(ordinal(number)),
            member_id: None,
            incarnation,
            fingerprint: Fingerprint::default(),
            ran: true,
            starts: 1,
        };
        let observed_member = self.at(number);
        let pod = observed_member.pod.as_mut().expect("a pod");
        pod.ready = false;
        pod.container = Container::Running;
        let report = json!({
            "version": VERSION,
            "clusterUid": uid,
            "podUid": pod.uid,
            "process": process,
            "nonce": format!("{process}-nonce"),
            "expectedIncarnation": incarnation,
            "verdict": verdict,
            "identity": identity,
        });
        let report: Report = serde_json::from_value(report).expect("a report");
        observed_member.report = QueryResult::Answer(report);
        observed_member.status = QueryResult::NotQueried;
    }

    /// The report at a place, to be changed.
    pub fn report(&mut self, number: u16) -> &mut Report {
        match &mut self.at(number).report {
            QueryResult::Answer(report) => report,
            _ => panic!("nobody reports at {number}"),
        }
    }

    /// The pod at a place, to be changed.
    pub fn pod_at(&mut self, number: u16) -> &mut Pod {
        self.at(number).pod.as_mut().expect("a pod")
    }

    /// What etcd says of itself at a place, to be changed; none if it does not answer.
    pub fn status(&mut self, number: u16) -> Option<&mut Status> {
        match &mut self.at(number).status {
            QueryResult::Answer(status) => Some(status),
            _ => None,
        }
    }

    /// The claim at a place, to be changed.
    pub fn claim_at(&mut self, number: u16) -> &mut Option<Claim> {
        &mut self.at(number).claim
    }

    /// Nothing is left at a place.
    pub fn gone(&mut self, number: u16) {
        self.observed.members.remove(&ordinal(number));
    }

    /// The spec asks for another size.
    pub fn asks_for(&mut self, size: u8) {
        let other = Self::of(size, &self.version.to_string());
        self.observed.desired = other.observed.desired;
        self.observed.generation += 1;
    }

    /// The spec asks for disks that go with their pods.
    pub fn is_fleeting(&mut self) {
        let object: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"size": 3, "storage": {"medium": "EmptyDir"}},
        }))
        .expect("a cluster");
        self.observed.desired.storage = desired(&object).expect("a valid spec").storage;
    }

    /// What a plan decided is stored.
    pub fn stored(&mut self, plan: &Plan) {
        self.observed.persisted = plan.persisted.clone();
        if let Some(layout) = &plan.layout {
            let set = self.observed.set.take();
            let version = set.as_ref().and_then(|set| set.version.clone());
            let before = set.and_then(|set| set.spec_hash);
            self.set(layout.replicas, layout.incarnation);
            if let (Some(set), Some(before)) = (&mut self.observed.set, before) {
                let wanted = &self.observed.wanted;
                let is_updated = layout.may_update_template();
                set.spec_hash = Some(if is_updated {
                    wanted.spec_hash.clone()
                } else {
                    before
                });
                set.version = is_updated.then(|| wanted.version.clone()).or(version);
            }
        }
    }

    /// A step in few words.
    pub fn step(&self, step: &Step) -> String {
        let name = |ordinal: &Ordinal| self.observed.name(*ordinal);
        match step {
            Step::FencePods(pods) => format!("take over {}", pods.len()),
            Step::RestartPod { pod, departure, .. } => {
                format!("restart {} ({departure:?})", name(&pod.ordinal))
            }
            Step::DeleteStoppedPod { pod, .. } => format!("delete stopped {}", name(&pod.ordinal)),
            Step::Permit(permits) => {
                let given: Vec<_> = permits
                    .iter()
                    .map(|(pod, permit)| {
                        format!("{:?} {} for {}", permit.mode, name(&pod.ordinal), permit.process)
                    })
                    .collect();
                given.join(", ")
            }
            Step::Add {
                ordinal,
                learner: true,
            } => format!("add learner {}", name(ordinal)),
            Step::Add {
                ordinal,
                learner: false,
            } => format!("add voter {}", name(ordinal)),
            Step::Promote { ordinal, .. } => format!("promote {}", name(ordinal)),
            Step::MoveLeader { from, to } => format!("move leader from {} to {to}", name(from)),
            Step::Remove {
                ordinal: Some(ordinal),
                id,
            } => format!("remove {} ({id})", name(ordinal)),
            Step::Remove { ordinal: None, id } => format!("remove {id}"),
            Step::DeletePod { pod, grace_period } => {
                let how = match grace_period {
                    GracePeriod::PodDefault => "delete",
                    GracePeriod::OneSecond => "stop",
                    GracePeriod::Zero => "delete now",
                };
                format!("{how} pod {}", pod.uid)
            }
            Step::DeleteClaim { uid, .. } => format!("delete claim {uid}"),
            Step::WriteLogEntries(snapshot) => format!("write {} log entries", snapshot.missing),
            Step::RequestBackup(request) => format!("request backup of {}", request.backup),
            Step::EnableDowngrade { target } => format!("enable downgrade to {target}"),
            Step::CancelDowngrade { ordinal } => format!("cancel downgrade through {}", name(ordinal)),
            Step::Disarm(alarm) => format!("disarm {}", alarm.kind),
        }
    }
}

impl Scene {
    /// The pod at a place is gone, its volume is still there.
    pub fn at_gone_pod(&mut self, number: u16) {
        let observed_member = self.at(number);
        observed_member.pod = None;
        observed_member.report = QueryResult::NotQueried;
        observed_member.status = QueryResult::NotQueried;
    }
}
