//! Worlds of every kind, possible or not: whatever is seen, a plan must be safe on it.

use std::collections::BTreeMap;

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::id::{MemberId, RaftIndex, Revision};
use etcd_operator_etcd_types::membership::Role;
use etcd_operator_etcd_types::status::{Alarm, AlarmKind};
use proptest::prelude::*;

use super::scene::{Scene, id, ordinal};
use crate::observed_state::{Container, Digest, QueryResult, StartDelay, Unschedulable, ended_container};
use crate::pending_operation::{Cause, Discard, Join, Operation, PendingOperation, Replace};

/// What is at one place of a cluster that has formed.
#[derive(Clone, Debug)]
enum At {
    /// No member, no pod, no disk.
    Nothing,
    /// No member; a process waits there.
    Stranger(Verdict),
    /// No member; etcd found that it was removed.
    WasRemoved,
    /// A member.
    Member { role: Role, has_started: bool, how: How },
}

/// How a member is.
#[derive(Clone, Debug)]
enum How {
    Well,
    Lagging,
    WithoutLeader,
    Another,
    Silent,
    Unschedulable,
    NodeLost,
    PodGone,
    AllGone,
    Waits(Verdict),
    DiskGoes,
    OnAnotherVolume,
    WithoutNode,
}

/// Sizes, places and memberships of any kind.
pub fn worlds() -> impl Strategy<Value = Scene> {
    let versions = prop_oneof![Just("3.3.27"), Just("3.4.23"), Just("3.6.16")];
    let ordinals = prop::collection::vec(at(), 1..=9);
    let hints = (
        0..9_usize,
        operation(),
        prop::option::of(0..9_u16),
        prop::option::of(0..9_u16),
    );
    let rare = (
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.15, 0..9_u16),
    );
    (versions, 0..=9_u8, ordinals, hints, rare).prop_map(build)
}

type Rare = (bool, bool, bool, bool, Option<u16>);
type Hints = (usize, Option<Operation>, Option<u16>, Option<u16>);

fn build((version, size, ordinals, hints, rare): (&'static str, u8, Vec<At>, Hints, Rare)) -> Scene {
    let (leader, operation, corrupt, given_up) = hints;
    let (is_unknown, is_paused, remembers_nothing, are_old, asked_out) = rare;
    let count = u8::try_from(ordinals.len()).expect("nine at most");
    let mut scene = Scene::formed_of(count, version);
    let members: Vec<MemberId> = (0..u16::from(count)).map(id).collect();
    let leader = leader % members.len();
    scene.known().leader = Some(members[leader]);
    scene.known().raft_index = RaftIndex(100_000);
    for (number, at) in (0..).zip(&ordinals) {
        put(&mut scene, number, at);
    }
    // Somebody always votes: whoever else there is.
    let leader = u16::try_from(leader).expect("nine at most");
    scene.member(leader, id(leader), Role::Voter, true);
    if remembers_nothing {
        scene.observed.persisted.members = BTreeMap::new();
    }
    let alarm = |number| Alarm {
        kind: AlarmKind::Corrupt,
        member: Some(id(number)),
    };
    scene.observed.alarms = corrupt.map(alarm).into_iter().collect();
    scene.observed.replace = asked_out.map(|number| id(number).to_string());
    for pod in scene
        .observed
        .members
        .values_mut()
        .filter_map(|observed_member| observed_member.pod.as_mut())
    {
        // Nobody looks twice where nobody learns.
        pod.has_single_success_probe = are_old && version != "3.3.27";
    }
    // All have the same, but for the one that is accused, or for its neighbour.
    for number in 0..u16::from(count) {
        let hash = u32::from(corrupt.is_some_and(|of| of / 2 == number / 2 && of >= number));
        let compacted = Revision(1);
        let digest = QueryResult::Answer(Digest { hash, compacted });
        scene.observed.digests.insert(id(number), digest);
    }
    scene.observed.discard = given_up
        .map(|number| format!("claim-{number}"))
        .into_iter()
        .collect();
    if is_unknown {
        scene.unknown();
    }
    if size != count {
        scene.asks_for(size);
    }
    scene.observed.desired.paused = is_paused;
    scene.observed.persisted.pending = operation.map(|operation| PendingOperation {
        instance: "me".to_owned(),
        incarnation: 1,
        operation,
    });
    scene
}

fn at() -> impl Strategy<Value = At> {
    let role = prop_oneof![4 => Just(Role::Voter), 1 => Just(Role::Learner)];
    let member = (role, prop::bool::weighted(0.9), how());
    prop_oneof![
        1 => Just(At::Nothing),
        1 => verdict().prop_map(At::Stranger),
        1 => Just(At::WasRemoved),
        8 => member.prop_map(|(role, has_started, how)| At::Member { role, has_started, how }),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        8 => Just(How::Well),
        1 => Just(How::Lagging),
        1 => Just(How::WithoutLeader),
        1 => Just(How::Another),
        1 => Just(How::Silent),
        1 => Just(How::Unschedulable),
        1 => Just(How::NodeLost),
        1 => Just(How::PodGone),
        1 => Just(How::AllGone),
        1 => Just(How::DiskGoes),
        1 => Just(How::OnAnotherVolume),
        1 => Just(How::WithoutNode),
        3 => verdict().prop_map(How::Waits),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => Just(Verdict::Empty),
        1 => Just(Verdict::Unborn),
        1 => Just(Verdict::Whole),
        1 => Just(Verdict::Damaged),
        1 => Just(Verdict::Foreign),
        1 => Just(Verdict::OtherIncarnation { found: 0 }),
        1 => Just(Verdict::OtherIncarnation { found: 7 }),
        1 => Just(Verdict::Moved),
        1 => Just(Verdict::Unreadable),
    ]
}

fn operation() -> impl Strategy<Value = Option<Operation>> {
    let cause = prop_oneof![
        Just(Cause::DiskEmpty),
        Just(Cause::DiskDamaged),
        Just(Cause::NodeLost),
        Just(Cause::Requested),
        Just(Cause::OtherVolume),
        Just(Cause::Corrupt),
    ];
    let operation = (0..9_u16, 0..4_u8, cause, 1..4_i64).prop_map(|(number, kind, cause, attempt)| {
        let (pod, claim) = (Some(format!("pod-{number}")), Some(format!("claim-{number}")));
        let ordinal = ordinal(number);
        match kind {
            0 => Operation::Join(Join {
                ordinal,
                id: Some(id(number)),
                grant: None,
                attempt,
            }),
            1 => Operation::Remove {
                ordinal,
                id: id(number),
            },
            2 => Operation::Replace(Replace {
                ordinal,
                id: id(number),
                cause,
                pod,
                claim,
                attempt,
            }),
            _ => Operation::Discard(Discard { ordinal, claim, pod }),
        }
    });
    prop::option::of(operation)
}

fn put(scene: &mut Scene, number: u16, at: &At) {
    match at {
        At::Nothing => {
            scene.left(id(number));
            scene.gone(number);
        }
        At::Stranger(verdict) => {
            scene.left(id(number));
            scene.waits(number, "p", verdict);
        }
        At::WasRemoved => {
            scene.left(id(number));
            scene.silent(number);
            scene.pod_at(number).container = ended_container(0, "");
        }
        At::Member {
            role,
            has_started,
            how,
        } => {
            scene.left(id(number));
            scene.member(number, id(number), *role, *has_started);
            if *has_started {
                scene.runs(number, id(number));
            } else {
                scene.waits(number, "p", &Verdict::Empty);
            }
            harm(scene, number, how);
        }
    }
}

fn harm(scene: &mut Scene, number: u16, how: &How) {
    match how {
        How::Well => {
            if let Some(status) = scene.status(number) {
                status.raft_index = RaftIndex(100_000);
            }
        }
        // As it was made: far behind.
        How::Lagging => {}
        How::WithoutLeader => {
            if let Some(status) = scene.status(number) {
                status.raft_index = RaftIndex(100_000);
                status.leader = None;
            }
        }
        How::Another => {
            if let Some(status) = scene.status(number) {
                status.position.member = id(99);
            }
        }
        How::Silent => scene.silent(number),
        How::Unschedulable => {
            scene.silent(number);
            let pod = scene.pod_at(number);
            pod.unschedulable = Some(Unschedulable::from_scheduler("0/3 nodes are available"));
            pod.container = Container::Waiting(StartDelay::NotScheduled);
        }
        How::OnAnotherVolume => {
            if let Some(claim) = scene.claim_at(number) {
                claim.uid = "another".to_owned();
            }
            if let Some(status) = scene.status(number) {
                status.raft_index = RaftIndex(100_000);
            }
        }
        How::WithoutNode => {
            scene.silent(number);
            let now = scene.observed.now;
            let pod = scene.pod_at(number);
            pod.unschedulable = Some(Unschedulable::from_scheduler("0/3 nodes are available"));
            pod.unscheduled_since = Some(now - jiff::SignedDuration::from_mins(10));
            pod.container = Container::Waiting(StartDelay::NotScheduled);
        }
        How::NodeLost => {
            scene.silent(number);
            let now = scene.observed.now;
            scene.pod_at(number).node_lost_since = Some(now - jiff::SignedDuration::from_mins(10));
        }
        How::PodGone => scene.at_gone_pod(number),
        How::AllGone => scene.gone(number),
        How::Waits(verdict) => scene.waits(number, "p", verdict),
        How::DiskGoes => {
            scene.silent(number);
            if let Some(claim) = scene.claim_at(number) {
                claim.deleting = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
            }
        }
    }
}
