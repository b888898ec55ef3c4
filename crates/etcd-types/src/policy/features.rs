//! What a version can do that an older one cannot. Pure: one table by minor and patch.

use crate::version::{Minor, Version};

/// What some versions of etcd have and others do not: [`Self::is_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Members that have no vote yet.
    Learners,
    /// More than one learner at a time, by a flag.
    ManyLearners,
    /// Leadership handed over on request.
    MoveLeader,
    /// A hash of all keys at a revision.
    HashKv,
    /// The hash's revision in its answer.
    HashRevision,
    /// An address of its own for health and figures.
    MetricsAddress,
    /// `/livez` and `/readyz`.
    Livez,
    /// A `/readyz` that fails for a learner.
    ReadyzKnowsLearners,
    /// Space in use, learner and errors in a member's status.
    DetailedStatus,
    /// Quota and version of the files in a member's status.
    StatusOfStorage,
    /// A member added while voters are down, if enough others are connected: see [`connected_to_add`].
    AddWhileVotersAreDown,
    /// New addresses for a learner, which older ones promote by that.
    UpdateLearner,
    /// A promote asked of a follower while authentication is on.
    PromoteThroughFollowerWithAuth,
    /// An alarm for damaged data.
    CorruptAlarm,
    /// Hashes compared after every compaction.
    CompactHashCheck,
    /// A defragmentation during which clients are sent elsewhere.
    StopServingOnDefrag,
    /// A restore with a raised revision.
    RevisionBump,
    /// `etcdutl` restores, `etcdctl` need not.
    Etcdutl,
    /// A downgrade by request.
    DowngradeByRequest,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Learners,
        Self::ManyLearners,
        Self::MoveLeader,
        Self::HashKv,
        Self::HashRevision,
        Self::MetricsAddress,
        Self::Livez,
        Self::ReadyzKnowsLearners,
        Self::DetailedStatus,
        Self::StatusOfStorage,
        Self::AddWhileVotersAreDown,
        Self::UpdateLearner,
        Self::PromoteThroughFollowerWithAuth,
        Self::CorruptAlarm,
        Self::CompactHashCheck,
        Self::StopServingOnDefrag,
        Self::RevisionBump,
        Self::Etcdutl,
        Self::DowngradeByRequest,
    ];

    /// The first patch of each minor that has it; every minor after the last one has it from its start.
    fn since(self) -> &'static [(Minor, u32)] {
        use Minor::{V3_3, V3_4, V3_5, V3_6};
        match self {
            Self::Learners | Self::DetailedStatus => &[(V3_4, 0)],
            Self::MoveLeader | Self::HashKv | Self::MetricsAddress | Self::CorruptAlarm => &[(V3_3, 0)],
            Self::Etcdutl => &[(V3_5, 0)],
            Self::ManyLearners | Self::HashRevision | Self::StatusOfStorage | Self::DowngradeByRequest => {
                &[(V3_6, 0)]
            }
            Self::Livez => &[(V3_4, 29), (V3_5, 11), (V3_6, 0)],
            Self::ReadyzKnowsLearners => &[(V3_5, 19), (V3_6, 0)],
            Self::AddWhileVotersAreDown => &[(V3_5, 30), (V3_6, 11)],
            Self::UpdateLearner => &[(V3_5, 31), (V3_6, 12)],
            Self::PromoteThroughFollowerWithAuth => &[(V3_5, 28), (V3_6, 6)],
            Self::CompactHashCheck => &[(V3_5, 5), (V3_6, 0)],
            Self::StopServingOnDefrag => &[(V3_5, 14), (V3_6, 0)],
            Self::RevisionBump => &[(V3_4, 27), (V3_5, 10), (V3_6, 0)],
        }
    }

    /// Whether this version has it. A version of an unknown minor has nothing.
    pub fn is_in(self, version: &Version) -> bool {
        let Some(minor) = Minor::of(version) else {
            return false;
        };
        let since = self.since();
        match since.iter().find(|(row, _)| *row == minor) {
            Some((_, patch)) => version.patch >= *patch,
            None => since.last().is_some_and(|(last, _)| minor > *last),
        }
    }
}

/// How many of the voters must have been connected for five seconds before etcd takes another member, learner or
/// voter. Newer versions count the new member as one that is down: with three voters none else may be, with five one.
pub fn connected_to_add(version: &Version, voters: usize) -> usize {
    if voters > 1 && Feature::AddWhileVotersAreDown.is_in(version) {
        return voters.div_ceil(2) + 1;
    }
    voters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The features of a version that the version before it in the list does not have.
    fn gained(versions: &[&str]) -> Vec<Vec<Feature>> {
        let has = |text: &str, feature: Feature| feature.is_in(&text.parse().expect(text));
        versions
            .windows(2)
            .map(|pair| {
                let new = |feature: &Feature| has(pair[1], *feature) && !has(pair[0], *feature);
                Feature::ALL.into_iter().filter(new).collect()
            })
            .collect()
    }

    #[test]
    fn each_minor_brings_what_it_brought() {
        use Feature::*;
        assert_eq!(
            gained(&["3.2.32", "3.3.0", "3.4.0", "3.5.0", "3.6.0", "3.7.0"]),
            [
                vec![MoveLeader, HashKv, MetricsAddress, CorruptAlarm],
                vec![Learners, DetailedStatus],
                vec![Etcdutl],
                vec![
                    ManyLearners,
                    HashRevision,
                    Livez,
                    ReadyzKnowsLearners,
                    StatusOfStorage,
                    CompactHashCheck,
                    StopServingOnDefrag,
                    RevisionBump,
                    DowngradeByRequest
                ],
                vec![
                    AddWhileVotersAreDown,
                    UpdateLearner,
                    PromoteThroughFollowerWithAuth
                ],
            ]
        );
    }

    #[test]
    fn what_came_with_a_patch_is_not_in_the_patch_before() {
        use Feature::*;
        for (before, with, feature) in [
            ("3.4.28", "3.4.29", Livez),
            ("3.5.10", "3.5.11", Livez),
            ("3.5.18", "3.5.19", ReadyzKnowsLearners),
            ("3.5.29", "3.5.30", AddWhileVotersAreDown),
            ("3.6.10", "3.6.11", AddWhileVotersAreDown),
            ("3.5.30", "3.5.31", UpdateLearner),
            ("3.6.11", "3.6.12", UpdateLearner),
            ("3.5.27", "3.5.28", PromoteThroughFollowerWithAuth),
            ("3.6.5", "3.6.6", PromoteThroughFollowerWithAuth),
            ("3.5.4", "3.5.5", CompactHashCheck),
            ("3.5.13", "3.5.14", StopServingOnDefrag),
            ("3.4.26", "3.4.27", RevisionBump),
            ("3.5.9", "3.5.10", RevisionBump),
        ] {
            assert!(
                gained(&[before, with])[0].contains(&feature),
                "{feature:?} {with}"
            );
        }
        assert!(!ReadyzKnowsLearners.is_in(&Version::of(Minor::V3_4, 44)));
        assert!(!AddWhileVotersAreDown.is_in(&Version::of(Minor::V3_4, 44)));
    }

    #[test]
    fn to_be_taken_a_member_needs_all_voters_or_a_quorum_that_counts_it_as_down() {
        let needed = |text: &str, voters| connected_to_add(&text.parse().expect(text), voters);
        for voters in 1..=9 {
            assert_eq!(needed("3.5.29", voters), voters);
        }
        for (voters, connected) in [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 4), (7, 5), (9, 6)] {
            assert_eq!(needed("3.6.11", voters), connected, "{voters}");
        }
    }

    #[test]
    fn an_unknown_version_has_nothing() {
        for text in ["3.8.0", "2.3.8"] {
            let version: Version = text.parse().expect(text);
            assert!(
                !Feature::ALL.into_iter().any(|feature| feature.is_in(&version)),
                "{text}"
            );
        }
    }
}
