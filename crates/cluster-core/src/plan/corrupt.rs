//! Alarms about data that differ. etcd raises one for whoever disagrees with the member that compared, and that may be
//! the wrong one. So the alarm is believed only where most voters agree, by hashes of all their keys at one revision,
//! that the data of the member it names are not theirs.

use std::collections::BTreeMap;

use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member};
use etcd_operator_etcd_types::status::AlarmKind;

use super::cluster_view::ClusterView;
use super::quorum::majority;
use crate::blocker::CorruptFinding;
use crate::observed_state::{Digest, QueryResult};

/// Whether the alarm CORRUPT is raised, for whichever member.
pub fn is_corrupt_alarm_raised(view: &ClusterView<'_>) -> bool {
    let mut alarms = view.observed.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt)
}

/// Whether the alarm CORRUPT names this member. That may be the wrong one: `confirm_difference` decides.
pub fn has_corrupt_alarm(view: &ClusterView<'_>, id: MemberId) -> bool {
    let mut alarms = view.observed.alarms.iter();
    alarms.any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member == Some(id))
}

/// Confirms (`Ok`) that the data of this member differ from those of most voters at the same compaction, so that it may
/// be replaced; else says why that cannot be confirmed.
pub fn confirm_difference(
    view: &ClusterView<'_>,
    known: &Known,
    member: &Member,
) -> Result<(), CorruptFinding> {
    let Some(majority_digest) = find_majority_digest(view, known) else {
        let digests = known
            .voters()
            .map(|voter| (view.display_name(voter), query_result(view, voter.id)));
        return Err(CorruptFinding::NoMajority(digests.collect()));
    };
    let Some(own) = digest(view, member.id) else {
        return Err(CorruptFinding::NotComparable(query_result(view, member.id)));
    };
    if own == majority_digest {
        let others = known
            .voters()
            .filter(|voter| digest(view, voter.id).is_some_and(|digest| digest != majority_digest));
        let differing = others.map(|other| view.display_name(other)).collect();
        return Err(CorruptFinding::SameAsMajority { differing });
    }
    if own.compacted != majority_digest.compacted {
        return Err(CorruptFinding::OtherCompaction);
    }
    Ok(())
}

/// What came of asking a member for its digest; `NotQueried` if it was not asked.
fn query_result(view: &ClusterView<'_>, id: MemberId) -> QueryResult<Digest> {
    let digest = view.observed.digests.get(&id).cloned();
    digest.unwrap_or(QueryResult::NotQueried)
}

fn digest(view: &ClusterView<'_>, id: MemberId) -> Option<Digest> {
    view.observed.digests.get(&id)?.answer().copied()
}

/// The digest that a majority of all voters has; `None` if there is none. A voter without an answer has no digest, but
/// counts as a voter.
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
