//! Beginning anew: the cluster was never seen to work, and no quorum can be had without members that lost their disks. All
//! pods come back under another incarnation, and nothing is begun where a client may have written something.

use std::collections::BTreeMap;

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::ANNOTATION_DISCARD;
use etcd_operator_etcd::id::RaftTerm;

use super::{
    Leave, PodRef, Proposal, Reason, Situation, Step, Why, bootstrap, grants, majority, remove, silent,
};
use crate::intent::What;
use crate::memory::Memory;
use crate::world::{Container, Ordinal};

/// The term in which members begin: nobody leads in it.
const FIRST_TERM: RaftTerm = RaftTerm(1);

/// Whether the data at a place live with its pod, and it may have agreed to something with others that are not there any
/// more: nothing would tell once the pod is gone. Who waits has not begun. Who was in no term after the first has never
/// heard of a leader, and hears of none if too few run to elect one.
fn may_be_all_there_is(situation: &Situation<'_>, place: Ordinal) -> bool {
    let world = situation.world;
    let seen = world.seen(place);
    let Some(pod) = seen.pod.as_ref().filter(|_| world.desired.storage.is_ephemeral()) else {
        return false;
    };
    if let Some((_, report)) = situation.report(place, pod.incarnation) {
        let has_begun = !matches!(report.verdict, Verdict::Empty | Verdict::Unborn);
        return has_begun && report.wal_client_entries != Some(false);
    }
    match seen.status() {
        Some(status) => status.position.term > FIRST_TERM || may_elect(situation),
        None => pod.container == Container::Running,
    }
}

/// Whether so many members may run that they could elect a leader at any moment.
fn may_elect(situation: &Situation<'_>) -> bool {
    let world = situation.world;
    let runs = |place: &Ordinal| {
        let pod = world.seen(*place).pod.as_ref();
        pod.is_some_and(|pod| {
            pod.container == Container::Running && situation.report(*place, pod.incarnation).is_none()
        })
    };
    let running = world.members.keys().filter(|place| runs(place)).count();
    let members = world.set.as_ref().map_or(0, |set| usize::from(set.replicas));
    running >= majority(members)
}

/// Every pod of the former incarnation goes; then all begins anew, unless a disk holds what a client wrote.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory) -> Proposal {
    let world = situation.world;
    let going = |text: &str| Proposal::going(What::StartOver, Reason::Bootstrapping, text);
    let made_for = world.set.as_ref().and_then(|set| set.intent.as_ref());
    let of_before = world.members.iter().find_map(|(place, seen)| {
        let pod = seen.pod.as_ref()?;
        let is_outdated = pod.incarnation != memory.incarnation || bootstrap::is_for_another(pod, made_for);
        (is_outdated && pod.deleting.is_none()).then(|| PodRef {
            place: *place,
            uid: pod.uid.clone(),
        })
    });
    // The template must be the new one first, or the pod would come back as it was.
    let is_template_new = world
        .set
        .as_ref()
        .is_some_and(|set| set.incarnation == memory.incarnation);
    if !is_template_new {
        return going("Starting over: the pods' template gets the new incarnation.");
    }
    if let Some(pod) = of_before {
        if may_be_all_there_is(situation, pod.place) {
            let name = world.name(pod.place);
            let text = format!(
                "{name} has run since before the cluster was seen to work, and its data go with its pod: it may hold what clients wrote. If they wrote nothing, delete the pod {name}: all begins anew then."
            );
            return Proposal {
                why: Why::new(Reason::QuorumLost, text),
                ..going("")
            };
        }
        let text = format!("Starting over: {} is re-created.", world.name(pod.place));
        return going(&text).step(Step::DeletePod {
            pod,
            leave: Leave::Usual,
        });
    }
    let wanted = u16::from(world.desired.size.get());
    let size = world.set.as_ref().map_or(wanted, |set| set.replicas.max(wanted));
    let (mut targets, mut waits) = (BTreeMap::new(), Vec::new());
    for place in Ordinal::first(size) {
        let Some((pod, report)) = situation.report(place, memory.incarnation) else {
            waits.push(format!("{} {}", world.name(place), silent::why(situation, place)));
            continue;
        };
        let is_blank = match report.verdict {
            Verdict::Empty | Verdict::Unborn => true,
            Verdict::OtherIncarnation { .. } => report.wal_client_entries == Some(false),
            _ => false,
        };
        if !is_blank && situation.is_given_up(place) {
            let discard = remove::discard(situation, situation.disk(place));
            let discard = discard.unwrap_or_else(|| going("Starting over."));
            return Proposal {
                intent: Some(What::StartOver),
                ..discard
            };
        }
        if !is_blank {
            let uid = world.seen(place).claim.as_ref().map(|claim| claim.uid.as_str());
            let text = format!(
                "{} may hold what clients wrote before the cluster was seen to work ({}): a person must decide. To give it up and begin anew, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID {}; or restore a backup into it.",
                world.name(place),
                bootstrap::said(&report.detail, &report.verdict),
                uid.unwrap_or("of its PersistentVolumeClaim")
            );
            return Proposal {
                why: Why::new(Reason::QuorumLost, text),
                ..going("")
            };
        }
        targets.insert(place, grants::grant(pod, report));
    }
    if waits.is_empty() {
        bootstrap::started(situation, memory, targets)
    } else {
        going("Starting over: waiting for all members to report.").blocked_by(waits)
    }
}
