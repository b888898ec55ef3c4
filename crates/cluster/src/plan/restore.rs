//! Carrying out a restore that was verified elsewhere: the old pods stop, members restore beside their old data, one
//! field of the status decides between commit and roll-back, and only then the restored data take the old ones' place.
//! While it stands nothing else is begun. Before the commit the old cluster can come back whole; after it there is only
//! forward.

mod back;
mod part;
mod prepare;
mod serve;
mod stop;
mod swap;

use std::time::Duration;

use etcd_operator_api::contract::{RestoreIntent, RestoreTerms, Verdict};
use etcd_operator_etcd::policy::Feature;

use super::shape::{Fetching, Shape};
use super::{Leave, PodRef, Proposal, Reason, Situation, Step, awaits, majority, safety};
use crate::desired::Size;
use crate::memory::{Memory, Phase, Restore};
use crate::world::{Container, Ordinal, Pod, Seen, World};

pub use part::told;

/// How long members that are not prepared are waited for once a quorum is.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long the old cluster stays stopped while nobody comes any further.
const STALLED: Duration = Duration::from_mins(30);

/// What to do about a restore; none if none is to be carried out, so that others have their say.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory) -> Option<Proposal> {
    let world = situation.world;
    if let Some(restore) = memory.restore.clone().filter(Restore::is_active) {
        if let Err(why) = &world.restore {
            let text = format!("What restore is asked for cannot be understood: {why}");
            return Some(Proposal {
                intent: memory.intent.clone().map(|intent| intent.what),
                ..Proposal::idle(Reason::Blocked, text)
            });
        }
        if let Some(proposal) = take_over(situation, memory, &restore) {
            return Some(proposal);
        }
        return Some(match restore.phase {
            Phase::Stopping => stop::pass(situation, memory, restore),
            Phase::Preparing => prepare::pass(situation, memory, restore),
            Phase::Committed => swap::pass(situation, memory, restore),
            Phase::RollingBack => back::pass(situation, memory, restore),
            Phase::Serving | Phase::Finished | Phase::RolledBack => serve::pass(situation, memory, restore),
        });
    }
    if world.restore == Ok(None) {
        // Whoever asked has seen how it ended. One that was carried out stays noted: should its object lose what it was told, it
        // would ask once more, and clients have written since.
        memory.restore = memory.restore.take().filter(|last| last.phase == Phase::Finished);
    }
    begin(situation, memory).or_else(|| late(situation, memory))
}

/// The world as it is for the time of a restore: of another size later.
pub fn frozen(world: &World) -> Option<World> {
    let restore = world
        .memory
        .restore
        .as_ref()
        .filter(|restore| restore.is_active())?;
    let mut frozen = world.clone();
    frozen.desired.size = Size::of(restore.size);
    Some(frozen)
}

/// The shape of the objects while a restore stands.
pub fn shape(shape: &mut Shape, world: &World, restore: &Restore) {
    let size = u16::from(restore.size);
    let now = world.set.as_ref().map_or(0, |set| set.replicas);
    let may_come_back = !restore.committed;
    // Whoever may have to come back keeps its pod.
    let kept = if may_come_back { now } else { 0 };
    let highest = shape.places.last().map_or(0, |place| place.replicas());
    shape.replicas = if restore.phase == Phase::RollingBack && awaits::waits_again(world, restore) {
        0
    } else {
        size.max(kept).max(highest)
    };
    shape.is_held = true;
    shape.serves = shape.serves && !restore.keeps_clients_out();
    shape.fetching = match asked(world, restore).filter(|_| restore.fetches()) {
        Some(intent) => Fetching::With(Box::new(intent.clone())),
        None if restore.fetches() => Fetching::AsBefore,
        None => Fetching::Nothing,
    };
}

/// The restore that is asked for and may begin.
fn wanted(world: &World) -> Option<&RestoreIntent> {
    let intent = world.restore.as_ref().ok()?.as_ref()?;
    (!world.is_stale).then_some(intent)
}

/// Another restore takes the place of one that is past its commit and cannot go on: nothing of its data ever worked, and what
/// it would restore may be gone for good; or what works is shown to nobody; or it has lost its quorum again. Whether it can
/// go on is for whoever asks to judge.
fn take_over(situation: &Situation<'_>, memory: &mut Memory, before: &Restore) -> Option<Proposal> {
    let world = situation.world;
    let is_of_no_use = before.phase == Phase::Serving && (!before.open || situation.known().is_none());
    let has_not_worked = before.fetches() || before.phase == Phase::Committed;
    let may_be_replaced = before.committed && (has_not_worked || is_of_no_use);
    let intent = wanted(world).filter(|intent| may_be_replaced && !memory.has_restored(&intent.uid))?;
    let mut restore = Restore {
        uid: intent.uid.clone(),
        name: intent.name.clone(),
        incarnation: memory.last_incarnation.max(before.incarnation) + 1,
        cluster: None,
        object_sha256: intent.object.sha256.clone(),
        // What the cluster of before was seen at an older operator has noted in the one of before only.
        revision_bump: match bump(world, memory, intent) {
            bump if bump > 0 && memory.restored_revision == 0 => bump.saturating_add(before.revision_bump),
            bump => bump,
        },
        keep_seconds: intent.keep_previous_seconds,
        open: false,
        message: None,
        ..before.clone()
    };
    if before.open && !world.desired.storage.is_ephemeral() {
        // Clients have worked with these data, and they lie on the volumes: they are what can come back.
        restore.committed = false;
        restore.previous_incarnation = before.incarnation;
        restore.previous_cluster = before.cluster;
    }
    restore.enter(Phase::Stopping, world.now);
    let text = format!(
        "The EtcdRestore {} takes the place of {}, which could not go on.",
        restore.name, before.name
    );
    take_up(memory, restore, intent);
    Some(Proposal::idle(Reason::Restoring, text))
}

/// From here on this is the restore of the cluster.
fn take_up(memory: &mut Memory, restore: Restore, intent: &RestoreIntent) {
    memory.incarnation = restore.incarnation;
    memory.last_incarnation = restore.incarnation;
    if restore.revision_bump > 0 {
        let target = intent.revision.saturating_add(restore.revision_bump);
        memory.restored_revision = memory.restored_revision.max(target);
    }
    memory.begin_restore(restore);
}

/// Begins with the restore that is asked for, whatever else was under way.
fn begin(situation: &Situation<'_>, memory: &mut Memory) -> Option<Proposal> {
    let world = situation.world;
    let intent = wanted(world)?;
    // It was carried out, or rolled back: never twice.
    if memory.has_restored(&intent.uid) {
        return None;
    }
    let recorded = memory.members.values().filter(|member| member.votes).count();
    let size = match world.desired.size.get() {
        0 => u8::try_from(recorded).unwrap_or_default(),
        size => size,
    };
    if size == 0 {
        let text = format!(
            "The EtcdRestore {} waits: spec.size is 0, and no size of before is known; set spec.size.",
            intent.name
        );
        return Some(Proposal::idle(Reason::Blocked, text));
    }
    let previous_cluster = memory.cluster;
    let mut restore = Restore {
        uid: intent.uid.clone(),
        name: intent.name.clone(),
        phase: Phase::Stopping,
        since: world.now,
        committed: false,
        incarnation: memory.last_incarnation.max(memory.incarnation) + 1,
        cluster: None,
        previous_incarnation: previous_cluster.map_or(0, |_| memory.incarnation),
        previous_cluster,
        size,
        object_sha256: intent.object.sha256.clone(),
        revision_bump: bump(world, memory, intent),
        keep_seconds: intent.keep_previous_seconds,
        furthest: None,
        open: false,
        message: None,
    };
    restore.enter(Phase::Stopping, world.now);
    let text = format!("The EtcdRestore {} begins.", restore.name);
    take_up(memory, restore, intent);
    Some(Proposal::idle(Reason::Restoring, text))
}

/// By how much the revision of the object is raised, so that it is above whatever the old cluster was seen at; not at all
/// where etcd's tool cannot. Where nobody runs any more, at least what it was raised to before is known.
fn bump(world: &World, memory: &Memory, intent: &RestoreIntent) -> i64 {
    let running = || world.members.values().filter_map(|seen| seen.status());
    let version = running().map(|status| status.version.clone()).min();
    let version = version.unwrap_or_else(|| world.desired.version(None));
    if intent.revision_bump <= 0 || !Feature::RevisionBump.is_in(&version) {
        return 0;
    }
    let raised = Some(memory.restored_revision).filter(|revision| *revision > 0);
    let last = running()
        .map(|status| status.position.revision.0)
        .max()
        .max(raised);
    let behind = last.map_or(0, |last| last.saturating_sub(intent.raised_from()).max(0));
    intent.revision_bump.saturating_add(behind)
}

/// A pod that the StatefulSet still made from a template of before, after all was over; or one that was kept for its data
/// and has lost them: it would fetch again what nobody keeps for it.
fn late(situation: &Situation<'_>, memory: &Memory) -> Option<Proposal> {
    let world = situation.world;
    // A restore that was rolled back is forgotten once nobody asks for it; its pods may come even later.
    let has_begun = memory.restore.is_some() || memory.has_formed();
    // Whoever serves the data of this life is no stranger, whatever number somebody wrote into the status.
    let serves = |seen: &Seen| {
        let cluster = seen.status().map(|status| status.position.cluster);
        cluster.is_some() && cluster == memory.cluster
    };
    let is_one = |place: &Ordinal| !serves(world.seen(*place)) && is_unneeded(situation, memory, *place);
    let stranger = has_begun
        .then(|| delete_stranger_at(world, memory.incarnation, is_one))
        .flatten();
    let (step, text) = match stranger {
        Some(step) => (step, "A pod of another life of the data is deleted."),
        None => (
            serve::give_up_fetching(situation)?,
            "A pod that lost its data cannot fetch the backup of a restore that is over: it is made anew without.",
        ),
    };
    Some(Proposal {
        intent: memory.intent.clone().map(|intent| intent.what),
        ..Proposal::idle(Reason::Recovering, text).step(step)
    })
}

/// Whether nobody needs what may lie in a pod that was made for another life. Where data live with their pods, or nobody says
/// what lies there, its container may just begin anew on data of this life.
fn is_unneeded(situation: &Situation<'_>, memory: &Memory, place: Ordinal) -> bool {
    let world = situation.world;
    let has_nothing = world
        .seen(place)
        .report()
        .is_some_and(|report| match report.verdict {
            Verdict::Empty | Verdict::Unborn => true,
            _ => !world.desired.storage.is_ephemeral(),
        });
    let pod = world.seen(place).pod.as_ref();
    let still_fetches = pod
        .and_then(|pod| pod.fetch.as_ref())
        .is_some_and(|fetch| !fetch.is_done);
    if has_nothing || still_fetches || !memory.has_formed() {
        return true;
    }
    situation.known().is_some_and(|known| {
        let mut members = known.members.values();
        let member = members.find(|member| situation.place(member) == Some(place));
        member.is_none_or(|member| safety::against_removing(situation, known, member.id).is_empty())
    })
}

/// What is asked for, if it is still this restore.
fn asked<'a>(world: &'a World, restore: &Restore) -> Option<&'a RestoreIntent> {
    let intent = world.restore.as_ref().ok()?.as_ref()?;
    let is_same = intent.uid == restore.uid && intent.object.sha256 == restore.object_sha256;
    is_same.then_some(intent)
}

/// Why it is given up, if the old cluster can still come back. Who asked decides that, not the annotation: whoever takes it
/// away may be behind, and somebody may have replaced the object without it, or with that of a restore of long ago.
fn withdrawn(world: &World, restore: &Restore) -> Option<String> {
    let asks_nothing = world.restore == Ok(None) || world.is_stale;
    let asks_for_another = asked(world, restore).is_none() && !asks_nothing;
    let is_withdrawn = !restore.committed && (!world.is_asker_there || asks_for_another);
    is_withdrawn.then(|| {
        format!(
            "the EtcdRestore {} was deleted, or asks for something else by now",
            restore.name
        )
    })
}

/// What permits of a restore say of it. An older operator has noted nothing of how long the data of before are kept.
fn terms(world: &World, restore: &Restore) -> RestoreTerms {
    let asked = asked(world, restore).map_or(0, |intent| intent.keep_previous_seconds);
    RestoreTerms {
        uid: restore.uid.clone(),
        object_sha256: restore.object_sha256.clone(),
        revision_bump: restore.revision_bump,
        keep_seconds: restore.keep_seconds.max(asked),
    }
}

/// Whether the pods' template has this incarnation: a pod that is deleted before would come back as it was.
fn is_template_new(world: &World, incarnation: i64) -> bool {
    world
        .set
        .as_ref()
        .is_some_and(|set| set.incarnation == incarnation)
}

/// Pods that were made for another life of the data.
fn strangers(world: &World, incarnation: i64) -> impl Iterator<Item = (Ordinal, &Pod)> {
    let pods = world.members.iter();
    let pods = pods.filter_map(|(place, seen)| Some((*place, seen.pod.as_ref()?)));
    pods.filter(move |(_, pod)| pod.incarnation != incarnation)
}

/// Deletes one of them.
fn delete_stranger(world: &World, incarnation: i64) -> Option<Step> {
    delete_stranger_at(world, incarnation, |_| true)
}

/// The same at one of these places.
fn delete_stranger_at(world: &World, incarnation: i64, is_one: impl Fn(&Ordinal) -> bool) -> Option<Step> {
    if !is_template_new(world, incarnation) {
        return None;
    }
    let mut strangers = strangers(world, incarnation);
    let (place, pod) = strangers.find(|(place, pod)| pod.deleting.is_none() && is_one(place))?;
    let uid = pod.uid.clone();
    Some(Step::DeletePod {
        pod: PodRef { place, uid },
        leave: Leave::Short,
    })
}

/// Those of them that may still run: a pod is gone when its object is, or when kubelet says that its container has ended.
fn unconfirmed(world: &World, incarnation: i64) -> Vec<String> {
    let running = strangers(world, incarnation).filter(|(_, pod)| {
        let has_ended = matches!(pod.container, Container::Ended { .. });
        !(has_ended && pod.deleting.is_some())
    });
    running
        .map(|(place, pod)| {
            let node = pod.node.as_deref().unwrap_or("no node");
            format!(
                "the pod {} of before is not confirmed gone; it is on {node}",
                world.name(place)
            )
        })
        .collect()
}

/// Whether so few of the old pods may still run that they decide nothing. Who votes among data that were put in place and
/// never seen to serve is not noted: there are as many as were restored.
fn are_too_few(unconfirmed: &[String], memory: &Memory, restore: &Restore) -> bool {
    let voters = memory.members.values().filter(|member| member.votes).count();
    let voters = if restore.committed && voters == 0 {
        usize::from(restore.size)
    } else {
        voters
    };
    unconfirmed.len() < majority(voters)
}
