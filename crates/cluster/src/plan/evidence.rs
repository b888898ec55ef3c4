//! What shows that a member's data are gone or wrong, or that its node is. Nothing else is a reason to replace one: a
//! container that fails for a flag, a secret, an image or a full disk would fail again on a new disk.

use etcd_operator_api::contract::{Report, Verdict, kind};
use etcd_operator_api::names::{ANNOTATION_DISCARD, ANNOTATION_REPLACE};
use etcd_operator_etcd::membership::{Known, Member};
use jiff::Timestamp;

use super::{Situation, adopt, corrupt, request, safety};
use crate::intent::Cause;
use crate::world::{Container, Ordinal, Pod, last_words};

/// What is known of a member's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing against it.
    None,
    /// It must be replaced.
    Replace(Cause),
    /// Its own volume is attached elsewhere now: it may go on.
    Moved,
    /// It waits on the volume that was its own under an EtcdCluster of before, and a person wants that to be taken over.
    Kept,
    /// It waits, and only a person can help; why.
    Waits(String),
}

/// What etcd says as it dies of its own data. Anything that a full disk or a wrong flag can cause is not here.
const LAST_WORDS: [&str; 9] = [
    "walpb: crc mismatch",
    "wal: crc mismatch",
    "wal: max entry size limit exceeded",
    "wal: slice bounds out of range",
    "is out of range [lastIndex(",
    "checksum error",
    "invalid freelist page",
    "invalid database",
    "failed to find database snapshot file",
];

/// What is known of the data of this member, and whether a person gave it up.
pub fn evidence(situation: &Situation<'_>, known: &Known, place: Ordinal, member: &Member) -> Evidence {
    match of_data(situation, known, place, member) {
        Evidence::Replace(cause) => Evidence::Replace(cause),
        _ if request::is_requested(situation, member.id) => Evidence::Replace(Cause::Requested),
        other => other,
    }
}

fn of_data(situation: &Situation<'_>, known: &Known, place: Ordinal, member: &Member) -> Evidence {
    let world = situation.world;
    let seen = world.seen(place);
    if situation.may_start(place) {
        return Evidence::None;
    }
    if let Some((_, report)) = situation.report(place, world.memory.incarnation) {
        let name = world.name(place);
        return match &report.verdict {
            Verdict::Empty | Verdict::Unborn => Evidence::Replace(Cause::DiskEmpty),
            Verdict::Damaged => Evidence::Replace(Cause::DiskDamaged),
            Verdict::OtherIncarnation { found } if *found < world.memory.incarnation => {
                Evidence::Replace(Cause::OtherIncarnation)
            }
            Verdict::OtherIncarnation { found } => Evidence::Waits(format!(
                "{name} holds data of incarnation {found}, which is newer than {}: the status of this EtcdCluster may have been lost",
                world.memory.incarnation
            )),
            Verdict::Moved
                if is_its_own(situation, place, member)
                    && !is_put_back(situation, place, member)
                    && (!is_another(report) || is_vouched_for(situation, known, place, member)) =>
            {
                Evidence::Moved
            }
            Verdict::Moved => Evidence::Replace(Cause::OtherVolume),
            Verdict::Foreign | Verdict::Unreadable
                if situation.is_given_up(place) && !is_used_by_consent(situation, place, member) =>
            {
                Evidence::Replace(Cause::Discarded)
            }
            Verdict::Foreign if adopt::is_kept(situation, known.cluster, place, member.id) => Evidence::Kept,
            // A quorum was taken over by consent, and this one was to be.
            Verdict::Foreign if situation.is_taken_over(place) => Evidence::Replace(Cause::LeftBehind),
            Verdict::Foreign => Evidence::Waits(format!(
                "{name} found data of somebody else on its volume ({}): to delete them, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID of the PersistentVolumeClaim",
                report.detail
            )),
            Verdict::Unreadable if is_used_by_consent(situation, place, member) => Evidence::Waits(format!(
                "{name} cannot read its volume: {}. If it stays so, annotate this EtcdCluster with {ANNOTATION_REPLACE} and the ID {}: the member then gets another volume",
                report.detail, member.id
            )),
            Verdict::Unreadable => Evidence::Waits(format!(
                "{name} cannot read its volume: {}. If it stays so, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID of the PersistentVolumeClaim: the member then gets another volume",
                report.detail
            )),
            Verdict::Whole => Evidence::None,
            Verdict::Prepared { .. } => Evidence::Waits(format!("{name} holds what a restore prepared")),
        };
    }
    if is_exchanged(situation, place, member) || is_put_back(situation, place, member) {
        return Evidence::Replace(Cause::OtherVolume);
    }
    if corrupt::is_accused(situation, member.id) {
        return match corrupt::differs(situation, known, member) {
            Ok(()) => Evidence::Replace(Cause::Corrupt),
            Err(why) => Evidence::Waits(why),
        };
    }
    let Some(pod) = &seen.pod else {
        return Evidence::None;
    };
    if let Container::Ended { words, code } = &pod.container
        && *code != 0
        && seen.status().is_none()
        && last_words(words).any(|line| LAST_WORDS.iter().any(|signature| line.contains(signature)))
    {
        return Evidence::Replace(Cause::DiskDamaged);
    }
    if is_out_of_reach(situation, pod) && seen.status().is_none() {
        return Evidence::Replace(Cause::NodeLost);
    }
    Evidence::None
}

/// Whether what lies on a volume was copied there, where nobody says by consent that it is the member's own.
pub fn is_foreign_to_its_member(situation: &Situation<'_>, place: Ordinal, report: &Report) -> bool {
    is_another(report) && !situation.is_taken_over(place)
}

/// Whether a person says that a copy is the member's own volume. Nobody takes annotations away, and the next copy may be an
/// old one: where the others hold quorum without it they are believed more.
fn is_vouched_for(situation: &Situation<'_>, known: &Known, place: Ordinal, member: &Member) -> bool {
    situation.is_taken_over(place) && !safety::leaves_quorum(situation, known, member.id)
}

/// Whether what lies on a volume was copied there, file by file: its directory is another one than the one that the member
/// made, whatever device it lies on. Files of long ago may lie on the right volume.
fn is_another(report: &Report) -> bool {
    let before = report.identity.as_ref().map(|identity| &identity.fingerprint.0);
    let is_another = |of: &str| {
        let (before, now) = (
            before.and_then(|before| before.get(of)),
            report.fingerprint.0.get(of),
        );
        before.zip(now).is_some_and(|(before, now)| before != now)
    };
    is_another(kind::INODE) || is_another(kind::BIRTH)
}

/// Whether the volume is the very one that the member was last seen to run on: only its attachment is new.
fn is_its_own(situation: &Situation<'_>, place: Ordinal, member: &Member) -> bool {
    let world = situation.world;
    let (Some(before), Some(claim)) = (world.memory.members.get(&place), &world.seen(place).claim) else {
        return false;
    };
    before.id == member.id && before.is_on(claim)
}

/// Whether the volume is older than the cluster and the member's own all the same: a person consented to its use with the
/// annotation that later would be one to delete it, and nobody takes annotations away.
fn is_used_by_consent(situation: &Situation<'_>, place: Ordinal, member: &Member) -> bool {
    let claim = situation.world.seen(place).claim.as_ref();
    let is_older = claim
        .and_then(|claim| claim.created)
        .is_some_and(|created| created < situation.world.created);
    is_older && is_its_own(situation, place, member)
}

/// Whether a member runs on another volume than the one that is noted as its own: it had nothing by which it could be told
/// when it started, and may be a copy of long ago.
pub fn is_exchanged(situation: &Situation<'_>, place: Ordinal, member: &Member) -> bool {
    let world = situation.world;
    let seen = world.seen(place);
    let runs = seen
        .status()
        .is_some_and(|status| status.position.member == member.id);
    let (Some(before), Some(claim)) = (world.memory.members.get(&place), &seen.claim) else {
        return false;
    };
    runs && before.id == member.id && claim.deleting.is_none() && before.is_elsewhere(claim)
}

/// Whether a member is on its own volume as that was some time ago: it looks whole, and would vote without what it had
/// agreed to since.
pub fn is_put_back(situation: &Situation<'_>, place: Ordinal, member: &Member) -> bool {
    let before = situation.world.memory.members.get(&place);
    before.is_some_and(|before| before.id == member.id) && situation.is_put_back(place)
}

/// Whether a pod is on a node that is lost for longer than anybody waits: it is never heard of again, and the API server
/// keeps its object until somebody takes it away.
pub fn is_out_of_reach(situation: &Situation<'_>, pod: &Pod) -> bool {
    pod.node_lost.is_some_and(|since| is_overdue(situation, since))
}

/// Whether no node has taken the pod at a place for longer than anybody waits.
pub fn is_without_node(situation: &Situation<'_>, place: Ordinal) -> bool {
    let pod = situation.world.seen(place).pod.as_ref();
    pod.and_then(|pod| pod.unscheduled_since)
        .is_some_and(|since| is_overdue(situation, since))
}

fn is_overdue(situation: &Situation<'_>, since: Timestamp) -> bool {
    let world = situation.world;
    let gone = world.now.duration_since(since);
    gone >= world
        .desired
        .replace_after
        .try_into()
        .unwrap_or(jiff::SignedDuration::MAX)
}
