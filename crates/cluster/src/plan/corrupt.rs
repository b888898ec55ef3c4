//! Alarms about data that differ. etcd raises one for whoever disagrees with the member that compared, and that may be
//! the wrong one. So the alarm is believed only where most voters agree, by hashes of all their keys at one revision,
//! that the data of the member it names are not theirs.

use std::collections::BTreeMap;

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member};
use etcd_operator_etcd::status::AlarmKind;

use super::{ClusterView, majority};
use crate::observed_state::{Digest, QueryResult};

/// Whether etcd says that the data of members differ, of whichever.
pub fn is_corrupt_alarm_raised(view: &ClusterView<'_>) -> bool {
    let mut alarms = view.observed.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt)
}

/// Whether etcd says so of this member.
pub fn has_corrupt_alarm(view: &ClusterView<'_>, id: MemberId) -> bool {
    let mut alarms = view.observed.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member == Some(id))
}

/// Whether the data of this member are not what most voters have; if that cannot be said, why.
pub fn confirm_difference(view: &ClusterView<'_>, known: &Known, member: &Member) -> Result<(), String> {
    let name = view.display_name(member);
    let accused = format!("etcd has raised the alarm CORRUPT for {name}");
    let help = format!(
        "find out with etcdctl endpoint hashkv whose data are wrong; to have a member replaced, annotate this EtcdCluster with {ANNOTATION_REPLACE} and its ID"
    );
    let Some(majority_digest) = find_majority_digest(view, known) else {
        let described: Vec<_> = known.voters().map(|voter| describe_digest(view, voter)).collect();
        return Err(format!(
            "{accused}, and no majority of voters agrees on their data ({}): {help}",
            described.join(", ")
        ));
    };
    let Some(own) = digest(view, member.id) else {
        return Err(format!(
            "{accused}, and its data cannot be compared ({}): {help}",
            describe_digest(view, member)
        ));
    };
    if own == majority_digest {
        let others = known
            .voters()
            .filter(|voter| digest(view, voter.id).is_some_and(|of| of != majority_digest));
        let others: Vec<_> = others.map(|other| view.display_name(other)).collect();
        let who = if others.is_empty() {
            "every voter that could be asked has the same".to_owned()
        } else {
            format!("what {} has is another", others.join(", "))
        };
        return Err(format!(
            "{accused}, and its data are those of most voters; {who}: {help}, or take the alarm back with etcdctl alarm disarm"
        ));
    }
    if own.compacted != majority_digest.compacted {
        return Err(format!(
            "{accused}, and it cannot be compared while it is compacted at another revision than the others: {help}"
        ));
    }
    Ok(())
}

fn digest(view: &ClusterView<'_>, id: MemberId) -> Option<Digest> {
    view.observed.digests.get(&id)?.answer().copied()
}

/// What most voters have.
fn find_majority_digest(view: &ClusterView<'_>, known: &Known) -> Option<Digest> {
    let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
    for voter in known.voters() {
        if let Some(digest) = digest(view, voter.id) {
            *counts.entry(digest).or_default() += 1;
        }
    }
    let needed = majority(known.voters().count());
    let mut counts = counts.into_iter();
    counts
        .find(|(_, count)| *count >= needed)
        .map(|(digest, _)| digest)
}

fn describe_digest(view: &ClusterView<'_>, member: &Member) -> String {
    let name = view.display_name(member);
    match view.observed.digests.get(&member.id) {
        Some(QueryResult::Answer(digest)) => format!(
            "{name} has hash {} at compaction {}",
            digest.hash, digest.compacted.0
        ),
        Some(QueryResult::NoAnswer(why)) => format!("{name} could not be asked: {why}"),
        _ => format!("{name} was not asked"),
    }
}
