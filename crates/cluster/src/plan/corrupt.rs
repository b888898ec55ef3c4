//! Alarms about data that differ. etcd raises one for whoever disagrees with the member that compared, and that may be
//! the wrong one. So the alarm is believed only where most voters agree, by hashes of all their keys at one revision,
//! that the data of the member it names are not theirs.

use std::collections::BTreeMap;

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Known, Member};
use etcd_operator_etcd::status::AlarmKind;

use super::{Situation, majority};
use crate::world::{Asked, Digest};

/// Whether etcd says that the data of members differ, of whichever.
pub fn is_raised(situation: &Situation<'_>) -> bool {
    let mut alarms = situation.world.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt)
}

/// Whether etcd says so of this member.
pub fn is_accused(situation: &Situation<'_>, id: MemberId) -> bool {
    let mut alarms = situation.world.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member == Some(id))
}

/// Whether the data of this member are not what most voters have; if that cannot be said, why.
pub fn differs(situation: &Situation<'_>, known: &Known, member: &Member) -> Result<(), String> {
    let name = situation.call(member);
    let accused = format!("etcd has raised the alarm CORRUPT for {name}");
    let help = format!(
        "find out with etcdctl endpoint hashkv whose data are wrong; to have a member replaced, annotate this EtcdCluster with {ANNOTATION_REPLACE} and its ID"
    );
    let Some(common) = common(situation, known) else {
        let said: Vec<_> = known.voters().map(|voter| said(situation, voter)).collect();
        return Err(format!(
            "{accused}, and no majority of voters agrees on their data ({}): {help}",
            said.join(", ")
        ));
    };
    let Some(own) = digest(situation, member.id) else {
        return Err(format!(
            "{accused}, and its data cannot be compared ({}): {help}",
            said(situation, member)
        ));
    };
    if own == common {
        let others = known
            .voters()
            .filter(|voter| digest(situation, voter.id).is_some_and(|of| of != common));
        let others: Vec<_> = others.map(|other| situation.call(other)).collect();
        let who = if others.is_empty() {
            "every voter that could be asked has the same".to_owned()
        } else {
            format!("what {} has is another", others.join(", "))
        };
        return Err(format!(
            "{accused}, and its data are those of most voters; {who}: {help}, or take the alarm back with etcdctl alarm disarm"
        ));
    }
    if own.compacted != common.compacted {
        return Err(format!(
            "{accused}, and it cannot be compared while it is compacted at another revision than the others: {help}"
        ));
    }
    Ok(())
}

fn digest(situation: &Situation<'_>, id: MemberId) -> Option<Digest> {
    situation.world.digests.get(&id)?.answer().copied()
}

/// What most voters have.
fn common(situation: &Situation<'_>, known: &Known) -> Option<Digest> {
    let mut counts: BTreeMap<Digest, usize> = BTreeMap::new();
    for voter in known.voters() {
        if let Some(digest) = digest(situation, voter.id) {
            *counts.entry(digest).or_default() += 1;
        }
    }
    let needed = majority(known.voters().count());
    let mut counts = counts.into_iter();
    counts
        .find(|(_, count)| *count >= needed)
        .map(|(digest, _)| digest)
}

fn said(situation: &Situation<'_>, member: &Member) -> String {
    let name = situation.call(member);
    match situation.world.digests.get(&member.id) {
        Some(Asked::Answer(digest)) => format!(
            "{name} has hash {} at compaction {}",
            digest.hash, digest.compacted.0
        ),
        Some(Asked::Silent(why)) => format!("{name} could not be asked: {why}"),
        _ => format!("{name} was not asked"),
    }
}
