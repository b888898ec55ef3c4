//! The restored cluster works: alarms that came with the data are taken back, members that could not be restored are
//! replaced, clients are let in once the data were compared, and the pods are rolled so that no credential stays in them.

use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_etcd::membership::Known;
use etcd_operator_etcd::status::{Alarm, AlarmKind};

use super::{asked, delete_stranger, majority, strangers, swap};
use crate::intent::What;
use crate::memory::{Memory, Phase, Restore};
use crate::plan::{Leave, PodRef, Proposal, Reason, Situation, Step, formed, remove};
use crate::world::{FetchFailure, Ordinal, Pod, World};

/// The size that etcd lets a database have unless it is told otherwise.
const QUOTA: u64 = 2 << 30;

/// Brings the restored cluster in order.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore) -> Proposal {
    let world = situation.world;
    let keep = |proposal: Proposal| Proposal {
        intent: memory.intent.clone().map(|intent| intent.what),
        ..proposal
    };
    if let Some(step) = delete_stranger(world, memory.incarnation) {
        let text = "A pod of another life of the data is deleted.";
        return keep(Proposal::idle(Reason::Restoring, text).step(step));
    }
    if let Some(late) = late_starts(situation, memory, &restore) {
        return late;
    }
    let Some(known) = situation.known() else {
        // No client has seen these data: they can be made once more.
        return swap::anew(situation, memory, &restore).unwrap_or_else(|| formed::pass(situation));
    };
    let has_quorum = situation.well(known).len() >= majority(known.voters().count());
    if has_quorum && let Some(proposal) = alarms(situation, known) {
        return keep(proposal);
    }
    let is_before_there = is_before_ready(world, memory.incarnation);
    if has_quorum && !restore.open && !is_before_there && may_open(situation, &restore) {
        restore.open = true;
        let text = format!("The EtcdRestore {}: clients are let in.", restore.name);
        memory.restore = Some(restore);
        return keep(Proposal::idle(Reason::Restoring, text));
    }
    if has_quorum && let Some(step) = release(situation, &restore) {
        let text = format!(
            "The EtcdRestore {}: a member that could not fetch the backup joins as a new one.",
            restore.name
        );
        return keep(Proposal::idle(Reason::Restoring, text).step(step));
    }
    let usual = formed::pass(situation);
    if usual.step.is_some() || usual.intent.is_some() || usual.why.reason != Reason::Converged {
        return usual;
    }
    if !restore.open {
        let what = match &world.next_restore {
            _ if is_before_there => {
                "no pod of before counts as ready any more: clients could be sent there".to_owned()
            }
            Some(next) => format!("the EtcdRestore {next} takes its place, or is deleted"),
            None => "what the members serve is compared with the backup".to_owned(),
        };
        let text = format!("The EtcdRestore {}: waiting until {what}.", restore.name);
        return Proposal::idle(Reason::Restoring, text);
    }
    let text = format!(
        "The EtcdRestore {}: the pods are made anew one by one, without what only the restore needed.",
        restore.name
    );
    // Who is going may still answer, and is not there any more a moment later.
    let mut going = world.members.iter().filter(|(_, seen)| {
        let pod = seen.pod.as_ref();
        pod.is_some_and(|pod| pod.deleting.is_some())
    });
    if let Some((place, _)) = going.next() {
        let waits = vec![format!("the pod {} is being deleted", world.name(*place))];
        return Proposal::idle(Reason::Restoring, text).blocked_by(waits);
    }
    // What lives with the pods would be gone with them, and of two voters neither decides alone; the next pod is made
    // without, whenever it comes.
    let may_roll = !world.desired.storage.is_ephemeral() && known.voters().count() != 2;
    if may_roll && let Some(step) = roll(situation, known) {
        return Proposal::idle(Reason::Restoring, text).step(step);
    }
    // Whoever reads that it is over finds all of them at work, also in the eyes of the nodes.
    let mut members = world.members.iter();
    let unready = members.find(|(_, seen)| seen.pod.as_ref().is_some_and(|pod| !pod.ready));
    if let Some((place, _)) = unready {
        let waits = vec![format!("the pod {} is not ready yet", world.name(*place))];
        return Proposal::idle(Reason::Restoring, text).blocked_by(waits);
    }
    restore.enter(Phase::Finished, world.now);
    memory.restore = Some(restore);
    usual
}

/// Members that were prepared in time and start late: they never ran, so they may.
fn late_starts(situation: &Situation<'_>, memory: &Memory, restore: &Restore) -> Option<Proposal> {
    let (step, targets, _) = swap::permits(situation, memory, restore);
    let text = format!(
        "The EtcdRestore {}: the last members start on the restored data.",
        restore.name
    );
    let proposal = Proposal::going(What::Swap(targets), Reason::Restoring, text);
    step.map(|step| proposal.step(step))
}

/// Whether clients see nothing but the data of the backup: the very ones that are served were compared, or nobody is left who
/// would do it or have others served in their place. Who is there and does not ask any more, because somebody replaced the object without the annotation, asks again.
fn may_open(situation: &Situation<'_>, restore: &Restore) -> bool {
    let world = situation.world;
    let is_compared = |intent: &RestoreIntent| {
        let served = restore.cluster.map(|id| id.to_string());
        served.is_some() && intent.compared_cluster == served
    };
    let is_given_up = !world.is_asker_there && world.next_restore.is_none();
    asked(world, restore).map_or(is_given_up, is_compared)
}

/// Whether a pod of before still counts as ready: its node cannot say that it has ended, and clients are sent to it beside
/// the others until the node counts as lost.
fn is_before_ready(world: &World, incarnation: i64) -> bool {
    strangers(world, incarnation).any(|(_, pod)| pod.ready)
}

/// Alarms of members that are none, which came with the data: etcd refuses writes for them as for any other.
fn alarms(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let world = situation.world;
    let came_along = |alarm: &&Alarm| alarm.member.is_some_and(|id| !known.members.contains_key(&id));
    let alarm = world.alarms.iter().find(came_along)?;
    let running = world.members.values().filter_map(|seen| seen.status());
    let largest = running.map(|status| status.db_size).max().unwrap_or_default();
    // What they run with is not what is asked for by now: nothing of that is changed during a restore.
    let told = world
        .members
        .values()
        .filter_map(|seen| seen.status()?.db_quota)
        .min();
    let quota = told.or(world.desired.options.quota).unwrap_or(QUOTA);
    if alarm.kind == AlarmKind::NoSpace && largest >= quota {
        let text = format!(
            "The backup was made under the alarm NOSPACE, and its {largest} bytes are no less than the {quota} that a database may have here: restore it into another EtcdCluster with a larger spec.etcd.quotaBackendBytes, or create an EtcdRestore of another backup for this one, which takes the place of the present one."
        );
        return Some(Proposal::idle(Reason::Blocked, text));
    }
    let text = format!(
        "The alarm {} that came with the backup is taken back.",
        alarm.kind
    );
    Some(Proposal::idle(Reason::Restoring, text).step(Step::Disarm(*alarm)))
}

/// Deletes a pod that is still about to fetch: the next one starts without.
fn release(situation: &Situation<'_>, restore: &Restore) -> Option<Step> {
    let world = situation.world;
    let waits = |pod: &Pod| {
        let is_done = pod.fetch.as_ref().is_none_or(|fetch| fetch.is_done);
        !is_done && pod.deleting.is_none()
    };
    Ordinal::first(restore.size.into()).find_map(|place| {
        let pod = world.seen(place).pod.as_ref().filter(|pod| waits(pod))?;
        let uid = pod.uid.clone();
        Some(Step::DeletePod {
            pod: PodRef { place, uid },
            leave: Leave::Usual,
        })
    })
}

/// Deletes a pod that cannot fetch, where the others decide without it: whoever has data does not fetch. Where the data
/// live with the pods and nobody serves any more, one that never will can be deleted as well: it has nothing, and only a
/// pod that does not fetch can say so.
pub fn give_up_fetching(situation: &Situation<'_>) -> Option<Step> {
    let world = situation.world;
    let known = situation.known();
    let has_quorum =
        known.is_some_and(|known| situation.well(known).len() >= majority(known.voters().count()));
    let serves = known.is_some() || world.members.values().any(|seen| seen.status().is_some());
    let is_lost = !serves && world.desired.storage.is_ephemeral();
    let fails = |pod: &&Pod| {
        let fetch = pod.fetch.as_ref().filter(|fetch| !fetch.is_done);
        let failure = fetch.and_then(|fetch| fetch.failure.as_ref());
        let may_go = |failure: &FetchFailure| has_quorum || (is_lost && failure.is_lasting);
        failure.is_some_and(may_go) && pod.deleting.is_none()
    };
    let mut pods = world.members.iter();
    pods.find_map(|(place, seen)| {
        let uid = seen.pod.as_ref().filter(fails)?.uid.clone();
        Some(Step::DeletePod {
            pod: PodRef { place: *place, uid },
            leave: Leave::Usual,
        })
    })
}

/// Deletes the next pod that still has what brought the backup; the leader's last, and after handing leadership on.
fn roll(situation: &Situation<'_>, known: &Known) -> Option<Step> {
    let world = situation.world;
    let with_fetch = |(_, pod): &(Ordinal, &Pod)| pod.fetch.is_some() && pod.deleting.is_none();
    let pods = world.members.iter();
    let pods = pods.filter_map(|(place, seen)| Some((*place, seen.pod.as_ref()?)));
    let leads = |place: Ordinal| {
        world
            .member_at(place)
            .is_some_and(|member| known.leader == Some(member.id))
    };
    let (place, pod) = pods.filter(with_fetch).min_by_key(|(place, _)| leads(*place))?;
    if let Some(member) = world.member_at(place)
        && let Some(step) = remove::hand_on(situation, known, place, member.id)
    {
        return Some(step);
    }
    let uid = pod.uid.clone();
    Some(Step::DeletePod {
        pod: PodRef { place, uid },
        leave: Leave::Usual,
    })
}
