//! All members restore at once beside their old data; then the one field decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_api::contract::{Mode, Report};
use etcd_operator_etcd::id::ClusterId;
use jiff::Timestamp;

use super::part::{Part, bytes, failed_before, part};
use super::{
    PATIENCE, STALLED, are_too_few, asked, back, delete_stranger, majority, terms, unconfirmed, withdrawn,
};
use crate::intent::What;
use crate::memory::{Memory, Phase, Restore};
use crate::plan::grants::{self, Terms};
use crate::plan::{Leave, PodRef, Proposal, Reason, Situation, Step};
use crate::world::{Ordinal, Pod, World};

/// What the members have done, taken together.
#[derive(Debug, Default)]
struct Tally {
    prepared: usize,
    silent: usize,
    far: i64,
    is_at_work: bool,
    clusters: BTreeSet<ClusterId>,
    failures: Vec<String>,
    waits: Vec<String>,
}

/// Permits to restore into side directories, until enough are prepared.
pub fn pass(situation: &Situation<'_>, memory: &mut Memory, mut restore: Restore) -> Proposal {
    let world = situation.world;
    if let Some(why) = withdrawn(world, &restore) {
        return back::begin(situation, memory, restore, why);
    }
    let places: Vec<_> = Ordinal::first(restore.size.into()).collect();
    let first = grants::first(world, places.iter().copied());
    let mut tally = Tally::default();
    let mut unfit = None;
    let (mut targets, mut permits) = (BTreeMap::new(), Vec::new());
    for place in &places {
        let name = world.name(*place);
        let part = part(situation, &restore, *place);
        tally.far = tally.far.saturating_add(far(world, *place, &part));
        tally.is_at_work |= matches!(part, Part::Works("Preparing", _));
        match part {
            Part::Prepared { cluster, .. } => {
                tally.prepared += 1;
                tally.clusters.insert(cluster);
            }
            Part::Ready(pod, report) if cannot_fetch(world, &restore, pod, report) => {
                let uid = pod.uid.clone();
                unfit.get_or_insert(PodRef { place: *place, uid });
                tally.waits.push(format!(
                    "the pod {name} was made without what fetches the backup, and is made anew"
                ));
            }
            Part::Ready(pod, report) => {
                let grant = grants::grant(pod, report);
                let terms = Terms {
                    mode: Mode::Prepare,
                    incarnation: restore.incarnation,
                    cluster: None,
                    member: None,
                    first: first.clone(),
                    restore: Some(terms(world, &restore)),
                };
                let permit = grants::permit(world, *place, pod, &grant, terms);
                tally.is_at_work |= permit.is_some();
                permits.extend(permit);
                targets.insert(*place, grant);
                let failed = failed_before(&restore, report)
                    .map_or_else(String::new, |why| format!(" again after: {why}"));
                tally.waits.push(format!("{name} is to restore it{failed}"));
            }
            Part::Failed(why) => tally.failures.push(format!("{name}: {why}")),
            Part::Silent(why) => {
                tally.silent += 1;
                tally.waits.push(format!("{name} {why}"));
            }
            Part::Works(_, why) | Part::Other(why) => tally.waits.push(format!("{name} {why}")),
        }
    }
    let since = restore.come(tally.far, world.now);
    memory.restore = Some(restore.clone());
    let mut reason = Reason::Restoring;
    match decision(situation, memory, &restore, &tally, since) {
        Decision::Commit(cluster) => return commit(situation, memory, restore, cluster),
        Decision::GiveUp(why) if !restore.committed => return back::begin(situation, memory, restore, why),
        Decision::GiveUp(why) => {
            reason = Reason::Blocked;
            tally.waits.push(why);
        }
        Decision::Wait => {}
    }
    let mut text = format!(
        "The EtcdRestore {}: {} of {} members have the restored data beside the old ones.",
        restore.name,
        tally.prepared,
        places.len()
    );
    if restore.committed {
        text.push_str(&way_out(world, &restore));
    } else if restore.previous_incarnation == 0 && tally.silent == places.len() {
        // Nobody comes back here, so nothing ends it but a person.
        text.push_str(&pods_stay(&restore));
    }
    tally.waits.extend(tally.failures);
    tally.waits.extend(unconfirmed(world, memory.incarnation));
    let proposal = if targets.is_empty() {
        Proposal::idle(reason, text)
    } else {
        Proposal::going(What::Prepare(targets), reason, text)
    };
    let proposal = proposal.blocked_by(tally.waits);
    let anew = |pod| Step::DeletePod {
        pod,
        leave: Leave::Usual,
    };
    match delete_stranger(world, memory.incarnation).or(unfit.map(anew)) {
        Some(step) => proposal.step(step),
        None if permits.is_empty() => proposal,
        None => proposal.step(Step::Permit(permits)),
    }
}

/// Whether a pod of this very life has neither the backup nor what would fetch it: it was made while nobody knew what to fetch.
fn cannot_fetch(world: &World, restore: &Restore, pod: &Pod, report: &Report) -> bool {
    let is_there = report.fetched.as_ref() == Some(&restore.uid);
    asked(world, restore).is_some() && pod.fetch.is_none() && !is_there
}

/// How far one member is, as a number that only grows while it gets on: bytes, and beyond any number of them the steps that
/// follow.
fn far(world: &World, place: Ordinal, part: &Part<'_>) -> i64 {
    const STEP: i64 = 1 << 50;
    match part {
        Part::Prepared { .. } => 3 * STEP,
        Part::Works("Preparing", _) => 2 * STEP,
        Part::Ready(..) => STEP,
        Part::Works(..) => bytes(world, place),
        Part::Failed(_) | Part::Other(_) | Part::Silent(_) => 0,
    }
}

/// What helps where the old data are gone and the backup cannot be had.
fn way_out(world: &World, restore: &Restore) -> String {
    let name = &restore.name;
    if asked(world, restore).is_some() {
        format!(
            " The old data are gone, so it goes on for as long as it takes; to restore another backup, delete the EtcdRestore {name} and create another one."
        )
    } else if world.is_asker_there {
        format!(
            " The old data are gone. The EtcdCluster was replaced without what it was asked for; the EtcdRestore {name} asks again."
        )
    } else {
        format!(
            " The old data are gone and so is the EtcdRestore {name}: members go on as far as they can fetch its backup by themselves; create another EtcdRestore, which takes its place, if they do not."
        )
    }
}

/// What helps where no pod of a new cluster starts.
fn pods_stay(restore: &Restore) -> String {
    let name = &restore.name;
    format!(
        " Pods stay as they were made while it stands: if they cannot start, correct the spec, delete the EtcdRestore {name} and create another one."
    )
}

enum Decision {
    Commit(ClusterId),
    GiveUp(String),
    Wait,
}

fn decision(
    situation: &Situation<'_>,
    memory: &Memory,
    restore: &Restore,
    tally: &Tally,
    since: Timestamp,
) -> Decision {
    let world = situation.world;
    let size = usize::from(restore.size);
    if tally.clusters.len() > 1 {
        return Decision::GiveUp("the members have restored different clusters".to_owned());
    }
    let has_quorum = tally.prepared >= majority(size);
    if !tally.failures.is_empty() && !has_quorum {
        return Decision::GiveUp(tally.failures.join("; "));
    }
    let is_over = |limit: Duration, since: Timestamp| {
        let waited = Duration::try_from(world.now.duration_since(since)).unwrap_or_default();
        waited >= limit
    };
    // Clients have a cluster to come back to, and nobody else brings it back. Who is at work, or waits for a permit that is
    // only given now, holds nothing up.
    let is_stalled = !tally.is_at_work && is_over(STALLED, since);
    if !has_quorum && restore.previous_incarnation > 0 && is_stalled {
        let minutes = STALLED.as_secs() / 60;
        let waits = tally.waits.join("; ");
        return Decision::GiveUp(format!(
            "for {minutes} minutes no member came any further: {waits}"
        ));
    }
    let is_late = is_over(PATIENCE, restore.since);
    let is_enough = tally.prepared == size || (has_quorum && is_late);
    let is_stopped = are_too_few(&unconfirmed(world, memory.incarnation), memory, restore);
    match tally.clusters.first() {
        Some(cluster) if is_enough && is_stopped => Decision::Commit(*cluster),
        _ => Decision::Wait,
    }
}

/// From here only forward. Whoever writes this first decides: a roll-back is the same field.
fn commit(
    situation: &Situation<'_>,
    memory: &mut Memory,
    mut restore: Restore,
    cluster: ClusterId,
) -> Proposal {
    let text = format!(
        "The EtcdRestore {} is committed: the restored data take the place of the old ones.",
        restore.name
    );
    restore.enter(Phase::Committed, situation.world.now);
    restore.committed = true;
    restore.cluster = Some(cluster);
    memory.cluster = Some(cluster);
    memory.members = BTreeMap::new();
    memory.restore = Some(restore);
    Proposal::idle(Reason::Restoring, text)
}
