//! What one member has done of a restore, from what its pod shows.

use etcd_operator_api::contract::{Report, Verdict};
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::restore::MemberRestoreStatus;
use etcd_operator_etcd::id::{ClusterId, MemberId};

use crate::memory::{Phase, Restore};
use crate::plan::{Situation, silent};
use crate::world::{Fetch, Ordinal, Pod, World};

/// In how many steps a download is told.
const STEPS: u64 = 50;

/// What one member has done of a restore.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Its restored directory waits to be put in place.
    Prepared {
        /// The pod.
        pod: &'a Pod,
        /// What the process in it says.
        report: &'a Report,
        /// The cluster in the directory.
        cluster: ClusterId,
        /// The member in it.
        member: MemberId,
    },
    /// It has the object and may restore it.
    Ready(&'a Pod, &'a Report),
    /// It is at work.
    Works(&'static str, String),
    /// It cannot do it, and another try would not help.
    Failed(String),
    /// Its data are not those of this restore, and it cannot restore either.
    Other(String),
    /// It cannot be told.
    Silent(String),
}

/// What the member at this place has done.
pub fn part<'a>(situation: &Situation<'a>, restore: &Restore, place: Ordinal) -> Part<'a> {
    let world = situation.world;
    if let Some((pod, report)) = situation.report(place, restore.incarnation) {
        return reported(restore, pod, report);
    }
    let pod = world.seen(place).pod.as_ref();
    let own = pod.filter(|pod| pod.incarnation == restore.incarnation && pod.deleting.is_none());
    if let Some(fetch) = own
        .and_then(|pod| pod.fetch.as_ref())
        .filter(|fetch| !fetch.is_done)
    {
        return match &fetch.failure {
            Some(failure) if failure.is_lasting => Part::Failed(failure.words.clone()),
            Some(failure) => Part::Works("Fetching", format!("fetches again after: {}", failure.words)),
            None if fetch.is_running => Part::Works("Fetching", fetching(fetch)),
            None => Part::Silent(silent::why(situation, place)),
        };
    }
    Part::Silent(silent::why(situation, place))
}

/// How far a download is, in steps that are worth telling.
fn fetching(fetch: &Fetch) -> String {
    match arrived(fetch) {
        Some((bytes, total)) => format!("fetches the backup, {} of {}", Bytes(bytes), Bytes(total)),
        None => "fetches the backup".to_owned(),
    }
}

/// Bytes that have arrived, of how many. A status is not written for every one of them.
fn arrived(fetch: &Fetch) -> Option<(u64, u64)> {
    let (bytes, total) = fetch.arrived?;
    let step = (total / STEPS).max(1);
    let told = if bytes < total { bytes / step * step } else { total };
    Some((told, total))
}

/// The same of the member at this place.
pub fn bytes(world: &World, place: Ordinal) -> i64 {
    let fetch = world.seen(place).pod.as_ref().and_then(|pod| pod.fetch.as_ref());
    let bytes = fetch.and_then(arrived).map_or(0, |(bytes, _)| bytes);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Why the last try to restore failed, where another one may help.
pub fn failed_before(restore: &Restore, report: &Report) -> Option<String> {
    let preparing = report.preparing.as_ref()?;
    let failure = preparing.failure.as_ref().filter(|failure| failure.retriable)?;
    (preparing.restore_uid == restore.uid).then(|| format!("{}: {}", failure.reason, failure.message))
}

fn reported<'a>(restore: &Restore, pod: &'a Pod, report: &'a Report) -> Part<'a> {
    let words = |what: &str| {
        let detail = &report.detail;
        format!("{what}: {detail}")
    };
    match &report.verdict {
        Verdict::Prepared {
            restore_uid,
            object_sha256,
            cluster_id,
            member_id,
        } if *restore_uid == restore.uid && *object_sha256 == restore.object_sha256 => {
            let ids = cluster_id.as_deref().zip(member_id.as_deref());
            match ids.and_then(|(cluster, member)| Some((cluster.parse().ok()?, member.parse().ok()?))) {
                Some((cluster, member)) => Part::Prepared {
                    pod,
                    report,
                    cluster,
                    member,
                },
                None => Part::Failed(words("does not tell which cluster it has restored")),
            }
        }
        Verdict::Empty | Verdict::Unborn | Verdict::Prepared { .. } => under_way(restore, pod, report),
        Verdict::OtherIncarnation { found } if *found < restore.incarnation => {
            under_way(restore, pod, report)
        }
        Verdict::Unreadable => Part::Silent(words("cannot read its volume")),
        Verdict::Foreign => Part::Other(words(
            "has a volume with data of somebody else (if nobody needs them, delete its PersistentVolumeClaim and its pod)",
        )),
        _ => Part::Other(words("has a volume that no restore may touch")),
    }
}

fn under_way<'a>(restore: &Restore, pod: &'a Pod, report: &'a Report) -> Part<'a> {
    let of_this = report
        .preparing
        .as_ref()
        .filter(|preparing| preparing.restore_uid == restore.uid);
    match of_this.map(|preparing| &preparing.failure) {
        None => Part::Ready(pod, report),
        Some(None) => Part::Works("Preparing", "restores beside its old data".to_owned()),
        Some(Some(failure)) if failure.retriable => Part::Ready(pod, report),
        Some(Some(failure)) => Part::Failed(format!("{}: {}", failure.reason, failure.message)),
    }
}

/// Each member's part, for people.
pub fn told(world: &World, restore: &Restore) -> Vec<MemberRestoreStatus> {
    let situation = Situation::of(world);
    let told = |place: Ordinal| {
        let (phase, message) = match part(&situation, restore, place) {
            _ if restore.phase.is_over() => ("Done", None),
            _ if world.seen(place).status().is_some() && restore.phase != Phase::Stopping => {
                ("Running", None)
            }
            Part::Prepared { .. } => ("Prepared", None),
            Part::Ready(_, report) => ("Fetched", failed_before(restore, report)),
            Part::Works(phase, why) => (phase, Some(why)),
            Part::Failed(why) | Part::Other(why) => ("Failed", Some(why)),
            Part::Silent(why) => ("Waiting", Some(why)),
        };
        let fetch = world.seen(place).pod.as_ref().and_then(|pod| pod.fetch.as_ref());
        let arrived = fetch.filter(|_| phase == "Fetching").and_then(arrived);
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        MemberRestoreStatus {
            name: world.name(place),
            phase: Some(phase.to_owned()),
            message: message.map(|text| etcd_operator_api::refusal::bounded(&text, 500)),
            bytes: arrived.map(|(bytes, _)| number(bytes)),
            total: arrived.map(|(_, total)| number(total)),
            ..MemberRestoreStatus::default()
        }
    };
    Ordinal::first(restore.size.into()).map(told).collect()
}
