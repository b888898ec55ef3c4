//! From nothing to a cluster. All members start together, once, and who may have started is written down before.
//!
//! A member whose disk was lost after it may have started must never start as the same member again while the cluster
//! has not formed: it could forget what it agreed to. If no quorum can be had without such members, all begins anew
//! under another incarnation.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{Mode, Verdict};
use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};
use etcd_operator_api::refusal;
use etcd_operator_etcd::membership::Known;

use super::grants::{self, Terms};
use super::{
    CUT_OFF, Leave, Proposal, Reason, Situation, Step, adopt, awaits, corrected, majority, remove, silent,
    start_over,
};
use crate::intent::{Grant, What};
use crate::memory::Memory;
use crate::world::{Ordinal, Pod, World};

/// What to do while the cluster has never been seen to work.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory) -> Proposal {
    let world = situation.world;
    let intent = memory.intent.as_ref().map(|intent| intent.what.clone());
    if let Some(known) = situation.known() {
        return latch(situation, memory, known, intent.as_ref());
    }
    match intent {
        Some(What::Bootstrap(targets)) => started(situation, memory, targets),
        Some(What::StartOver) => start_over::pass(situation, memory),
        Some(What::Discard(discard)) => {
            remove::discard(situation, discard).unwrap_or_else(|| begin(situation, memory))
        }
        _ if world.desired.size.get() == 0 => {
            Proposal::idle(Reason::Hibernated, "The size is 0 and nothing was ever started.")
        }
        _ => adopt::pass(situation, memory)
            .or_else(|| awaits::pass(situation, memory))
            .unwrap_or_else(|| begin(situation, memory)),
    }
}

/// The first linearizable read: from now on the cluster exists, and a lost disk is a member to be replaced.
fn latch(situation: &Situation<'_>, memory: &mut Memory, known: &Known, intent: Option<&What>) -> Proposal {
    let places: Option<BTreeSet<_>> = known
        .members
        .values()
        .map(|member| situation.place(member))
        .collect();
    let expected = match intent {
        Some(What::Bootstrap(targets)) => Some(targets.keys().copied().collect::<BTreeSet<_>>()),
        _ => None,
    };
    let is_as_expected = match (&places, &expected) {
        (Some(places), Some(expected)) => places == expected,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if !is_as_expected {
        let text = format!(
            "etcd cluster {} answers, with members that were not started here: it is left alone.",
            known.cluster
        );
        return Proposal {
            intent: intent.cloned(),
            ..Proposal::idle(Reason::Blocked, text)
        };
    }
    memory.cluster = Some(known.cluster);
    memory.members = situation.admitted_all(known);
    let text = format!("The cluster has formed; etcd's ID of it is {}.", known.cluster);
    // Who was permitted to start stays known: a permit that is under way must not be taken for a lost disk.
    Proposal {
        intent: intent.cloned(),
        ..Proposal::idle(Reason::Bootstrapping, text)
    }
}

/// Nothing was permitted yet: wait until every member reports an empty disk.
fn begin(situation: &Situation<'_>, memory: &mut Memory) -> Proposal {
    let world = situation.world;
    if memory.incarnation == 0 {
        memory.incarnation = memory.last_incarnation + 1;
        memory.last_incarnation = memory.incarnation;
    }
    if let Some(found) = later_life(situation, memory.incarnation) {
        memory.incarnation = found;
        memory.last_incarnation = memory.last_incarnation.max(found);
        let text = format!(
            "Volumes of this very EtcdCluster hold incarnation {found}, of which nothing is noted any more: the pods are made anew for it."
        );
        return Proposal::going(What::StartOver, Reason::Bootstrapping, text);
    }
    if is_outdated(situation) {
        memory.incarnation = memory.last_incarnation + 1;
        memory.last_incarnation = memory.incarnation;
        let text = "The spec has changed before anything was started: the pods are made anew.";
        return Proposal::going(What::StartOver, Reason::Bootstrapping, text);
    }
    let size = u16::from(world.desired.size.get());
    let mut targets = BTreeMap::new();
    let mut waits = Vec::new();
    let mut asks = false;
    for place in Ordinal::first(size) {
        match ready_to_start(situation, place, memory.incarnation) {
            Ok(grant) => {
                targets.insert(place, grant);
            }
            Err(Unready::Waits(why)) => waits.push(why),
            Err(Unready::Asks(why)) => {
                asks = true;
                waits.push(why);
            }
        }
    }
    if let Some(discard) = consented(situation, size) {
        return discard;
    }
    if situation.is_cut_off() {
        return Proposal::idle(Reason::MembersUnreachable, CUT_OFF).blocked_by(waits);
    }
    if asks {
        waits.extend(misspelt(world));
        let text = "Volumes of before were found, and a person must say what becomes of them.";
        return Proposal::idle(Reason::Blocked, text).blocked_by(waits);
    }
    if !waits.is_empty() {
        let text = format!("Waiting for all {size} members to report an empty disk.");
        return Proposal::idle(Reason::Bootstrapping, text).blocked_by(waits);
    }
    started(situation, memory, targets)
}

/// The latest incarnation on the disks of this very cluster, if it is later than what is noted: status and StatefulSet have
/// been lost, and the data have not.
fn later_life(situation: &Situation<'_>, noted: i64) -> Option<i64> {
    let world = situation.world;
    let found = world.members.keys().filter_map(|place| {
        let (_, report) = situation.report(*place, noted)?;
        let identity = report.identity.as_ref()?;
        let is_ours = identity.cluster_uid == world.uid && identity.member == world.name(*place);
        (is_ours && identity.incarnation > noted).then_some(identity.incarnation)
    });
    found.max()
}

/// Whether a pod was made for what the user no longer asks for. It would never change by itself, and what kept it from
/// starting may just have been corrected.
fn is_outdated(situation: &Situation<'_>) -> bool {
    let world = situation.world;
    let wanted = world.set.as_ref().and_then(|set| set.intent.as_ref());
    let pods = world.members.values().filter_map(|seen| seen.pod.as_ref());
    pods.into_iter()
        .any(|pod| pod.deleting.is_none() && is_for_another(pod, wanted))
}

/// Whether both are known, and the pod was made for something else.
pub fn is_for_another(pod: &Pod, wanted: Option<&String>) -> bool {
    wanted
        .zip(pod.intent.as_ref())
        .is_some_and(|(wanted, made_for)| wanted != made_for)
}

/// A disk of somebody else in the place of a member, which a person has given up.
fn consented(situation: &Situation<'_>, size: u16) -> Option<Proposal> {
    let world = situation.world;
    Ordinal::first(size).find_map(|place| {
        let (_, report) = situation.report(place, world.memory.incarnation)?;
        let is_given_up = report.verdict != Verdict::Empty && situation.is_given_up(place);
        is_given_up.then(|| remove::discard(situation, situation.disk(place)))?
    })
}

/// How long a UID is.
const UID: usize = 36;

/// A consent that names none of the volumes that are there, such as one with the name of a claim instead of its UID.
pub fn misspelt(world: &World) -> Vec<String> {
    let claims = world.members.values().filter_map(|seen| seen.claim.as_ref());
    let uids: BTreeSet<&str> = claims.map(|claim| claim.uid.as_str()).collect();
    let given = [
        (ANNOTATION_ADOPT, &world.adopt),
        (ANNOTATION_DISCARD, &world.discard),
    ];
    let unknown = given.into_iter().flat_map(|(annotation, named)| {
        // The volumes that were given up before are gone, and nobody takes annotations away.
        let is_of_before = move |uid: &str| annotation == ANNOTATION_DISCARD && uid.len() == UID;
        let unknown = named.iter().filter(|uid| !uids.contains(uid.as_str()));
        let unknown = unknown.filter(move |uid| !is_of_before(uid));
        unknown.map(move |uid| (annotation, uid))
    });
    unknown
        .map(|(annotation, uid)| {
            let uid = refusal::bounded(uid, 64);
            format!("the annotation {annotation} names {uid}, which is the UID of none of its PersistentVolumeClaims")
        })
        .collect()
}

/// Why the process at a place does not start with the others.
enum Unready {
    /// It may yet.
    Waits(String),
    /// A person must decide.
    Asks(String),
}

/// Whether the process at a place may start with the others.
fn ready_to_start(situation: &Situation<'_>, place: Ordinal, incarnation: i64) -> Result<Grant, Unready> {
    let world = situation.world;
    let name = world.name(place);
    let Some((pod, report)) = situation.report(place, incarnation) else {
        return Err(Unready::Waits(format!(
            "{name} {}",
            silent::why(situation, place)
        )));
    };
    if report.verdict != Verdict::Empty {
        let uid = world
            .seen(place)
            .claim
            .as_ref()
            .map_or("of its claim", |claim| &claim.uid);
        return Err(Unready::Asks(format!(
            "{name} found a disk that is not empty: {}. To start from kept volumes, annotate this EtcdCluster with {ANNOTATION_ADOPT} and the UIDs of their PersistentVolumeClaims; to delete what is on this one, with {ANNOTATION_DISCARD} and the UID {uid}",
            said(&report.detail, &report.verdict)
        )));
    }
    let claim = world.seen(place).claim.as_ref();
    let older = claim.filter(|claim| claim.created.is_some_and(|created| created < world.created));
    if let Some(claim) = older.filter(|claim| !world.discard.contains(&claim.uid)) {
        return Err(Unready::Asks(format!(
            "{name} has a volume that is older than this EtcdCluster (PersistentVolumeClaim UID {}): annotate the EtcdCluster with {ANNOTATION_DISCARD} and that UID to use it",
            claim.uid
        )));
    }
    Ok(grants::grant(pod, report))
}

/// What a disk is, in words.
pub fn said(detail: &str, verdict: &Verdict) -> String {
    if detail.is_empty() {
        format!("{verdict:?}")
    } else {
        detail.to_owned()
    }
}

/// A member whose etcd ended for how it is called, and which is called like that still.
fn misled(situation: &Situation<'_>, targets: &BTreeMap<Ordinal, Grant>) -> Option<String> {
    let world = situation.world;
    let made_for = world.set.as_ref().and_then(|set| set.intent.as_ref());
    targets.keys().find_map(|place| {
        let pod = world.seen(*place).pod.as_ref()?;
        let pod = (!is_for_another(pod, made_for)).then_some(pod)?;
        let end = pod.end.as_ref().filter(|end| silent::takes_no_flag(end))?;
        let how = silent::ended(&world.desired, end);
        Some(format!("etcd in {} {how}", world.name(*place)))
    })
}

/// Permits are being given. One process of each member gets them, and no other ever.
pub fn started(
    situation: &Situation<'_>,
    memory: &mut Memory,
    mut targets: BTreeMap<Ordinal, Grant>,
) -> Proposal {
    let world = situation.world;
    let first = grants::first(world, targets.keys().copied());
    let mut permits = Vec::new();
    let mut forgetful = 0;
    let mut waits = Vec::new();
    for (place, grant) in &mut targets {
        let Some((pod, report)) = situation.report(*place, memory.incarnation) else {
            if world.seen(*place).status().is_none() {
                waits.push(format!(
                    "{} {}",
                    world.name(*place),
                    silent::why(situation, *place)
                ));
            }
            continue;
        };
        if report.process != grant.process || pod.uid != grant.pod {
            // Whoever cannot read its disk may have lost nothing.
            if report.verdict == Verdict::Unreadable {
                let name = world.name(*place);
                waits.push(format!("{name} cannot read its volume: {}", report.detail));
            } else {
                forgetful += 1;
            }
            continue;
        }
        grant.nonce.clone_from(&report.nonce);
        let terms = Terms {
            mode: Mode::Bootstrap,
            incarnation: memory.incarnation,
            cluster: None,
            member: None,
            first: first.clone(),
            restore: None,
        };
        permits.extend(grants::permit(world, *place, pod, grant, terms));
    }
    let members = targets.len();
    if forgetful > 0
        && let Some(why) = misled(situation, &targets)
    {
        let text = "etcd ends as soon as it is started, for how it is called: all would begin anew for ever.";
        return Proposal {
            intent: Some(What::Bootstrap(targets)),
            ..Proposal::idle(Reason::Blocked, text).blocked_by(vec![why])
        };
    }
    if members - forgetful < majority(members) {
        memory.incarnation = memory.last_incarnation + 1;
        memory.last_incarnation = memory.incarnation;
        let text = format!(
            "{forgetful} of {members} members lost their disks before the cluster formed: it starts over."
        );
        return Proposal::going(What::StartOver, Reason::Bootstrapping, text);
    }
    if let Some(pod) = corrected::pod(situation, &targets) {
        let text = format!(
            "The spec was corrected before the cluster formed: {} is re-created.",
            world.name(pod.place)
        );
        let proposal = Proposal::going(What::Bootstrap(targets), Reason::Bootstrapping, text);
        return proposal.step(Step::DeletePod {
            pod,
            leave: Leave::Usual,
        });
    }
    let text = format!("Starting {members} members together.");
    let proposal = Proposal::going(What::Bootstrap(targets), Reason::Bootstrapping, text).blocked_by(waits);
    if permits.is_empty() {
        proposal
    } else {
        proposal.step(Step::Permit(permits))
    }
}
