//! The way from the versions that run to the one that is wanted, one minor version after the other. Pure, and judged by what
//! runs, never by what was asked for before: whether a minor version can be reached depends on the patch that every member has.

use std::collections::BTreeMap;
use std::fmt;

use crate::version::{Minor, Version};

use super::{Verdict, VersionRefusal, newest, verdict};

/// The patch of each minor version that members go through on their way to a later one: the newest known, unless an
/// installation names another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntermediateVersions(BTreeMap<Minor, Version>);

/// Why an installation cannot name a version as an intermediate one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntermediateVersionError {
    /// It is not run at all.
    #[error(transparent)]
    Refused(#[from] VersionRefusal),
    /// The next minor version cannot be reached from it.
    #[error(
        "etcd {version} is too old to go on from: {floor} or newer is needed before the next minor version"
    )]
    BelowFloor {
        /// What was named.
        version: Version,
        /// The first patch that can be used.
        floor: Version,
    },
    /// Two of one minor version.
    #[error("two versions of etcd {0} are named: name one")]
    Twice(Minor),
}

impl IntermediateVersions {
    /// The newest known patches, but for those minor versions of which one is named. An error for a version that is
    /// refused, that is below [`floor`], or whose minor version is named twice.
    pub fn new(named: impl IntoIterator<Item = Version>) -> Result<Self, IntermediateVersionError> {
        let mut versions = BTreeMap::new();
        for version in named {
            if let Verdict::Refused(why) = verdict(&version) {
                return Err(why.into());
            }
            let minor = Minor::of(&version).ok_or_else(|| VersionRefusal::Unknown(version.clone()))?;
            let floor = Version::of(minor, floor(minor));
            if version < floor {
                return Err(IntermediateVersionError::BelowFloor { version, floor });
            }
            if versions.insert(minor, version).is_some() {
                return Err(IntermediateVersionError::Twice(minor));
            }
        }
        Ok(Self(versions))
    }

    /// The version that members of this minor version go through.
    pub fn of(&self, minor: Minor) -> Version {
        self.0.get(&minor).cloned().unwrap_or_else(|| newest(minor))
    }
}

/// The versions that every member runs one after the other, the wanted one last. It is never empty: members that run
/// the wanted version have it as `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePath {
    /// The next one, or the one that all run.
    pub next: Version,
    /// Those after it; the last one is what is wanted.
    pub rest: Vec<Version>,
}

/// Why the wanted version cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefusal {
    /// What is wanted is not run.
    #[error(transparent)]
    Version(#[from] VersionRefusal),
    /// A member runs something of which nothing is known.
    #[error("a member runs etcd {0}, which this version of the operator does not know")]
    RunsUnknown(Version),
    /// Members run minor versions that never run together.
    #[error("members run etcd {lowest} and {highest}, more than one minor version apart")]
    TooFarApart {
        /// The lowest.
        lowest: Version,
        /// The highest.
        highest: Version,
    },
    /// A lower minor version than every member runs.
    #[error(
        "the members are at etcd {running}, and {why}: {way}, or restore a backup that was made with etcd {minor} into a new EtcdCluster",
        way = why.way(running, target),
        minor = MinorText(target),
    )]
    Downgrade {
        /// The lowest that runs.
        running: Version,
        /// What is wanted.
        target: Version,
        /// Why the members do not go there.
        why: DowngradeRefusal,
    },
}

/// Why members are not downgraded to a lower minor version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum DowngradeRefusal {
    /// The user has not consented to a downgrade.
    #[error("their files are downgraded only with consent")]
    NotAllowed,
    /// It is more than one minor version below.
    #[error("etcd is downgraded by one minor version at a time")]
    OneAtATime {
        /// A version of the minor version that the members can go to first.
        first: Version,
    },
    /// etcd cannot be downgraded to it by its Downgrade API.
    #[error("etcd cannot be downgraded below 3.5")]
    NotSupported,
    /// Members keep their data in their pods, and no member joins while a downgrade is enabled.
    #[error("members that keep their data in their pods cannot be downgraded")]
    DataLivesWithPods,
}

impl DowngradeRefusal {
    /// What the user can set instead, for the error message.
    fn way(&self, running: &Version, target: &Version) -> String {
        match self {
            Self::NotAllowed => {
                format!("set spec.version to {running}, set spec.updates.allowDowngrade to true")
            }
            Self::OneAtATime { first } => format!(
                "set spec.updates.allowDowngrade to true and spec.version to {first} first, and to {target} once all members run that"
            ),
            Self::NotSupported | Self::DataLivesWithPods => format!("set spec.version to {running}"),
        }
    }
}

/// The minor version of a version, for people.
struct MinorText<'a>(&'a Version);

impl fmt::Display for MinorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.major, self.0.minor)
    }
}

/// The lowest minor version that members can be downgraded to: 3.6 is the first one whose Downgrade API changes the files.
pub const LOWEST_DOWNGRADE: Minor = Minor::V3_5;

/// The first patch of a minor version from which the next minor version can be reached; 0 if every patch will do. Below
/// 3.5.26, removed members can come back on 3.6; below 3.6.11, a rolling upgrade to 3.7 is not supported.
pub fn floor(minor: Minor) -> u32 {
    match minor {
        Minor::V3_5 => 26,
        Minor::V3_6 => 11,
        Minor::V3_2 | Minor::V3_3 | Minor::V3_4 | Minor::V3_7 => 0,
    }
}

/// The way from the versions that members run, one for each member, to the wanted one. While members run two minor
/// versions, the lower one can be returned to without consent. Where all run one, the next lower one needs
/// `allow_downgrade`. Without members it leads to the target at once.
pub fn path(
    running: &[Version],
    target: &Version,
    intermediate: &IntermediateVersions,
    allow_downgrade: bool,
) -> Result<UpgradePath, UpgradeRefusal> {
    if let Verdict::Refused(why) = verdict(target) {
        return Err(why.into());
    }
    let wanted = Minor::of(target).ok_or_else(|| VersionRefusal::Unknown(target.clone()))?;
    let (Some(lowest), Some(highest)) = (running.iter().min(), running.iter().max()) else {
        return Ok(UpgradePath::to(target));
    };
    let known =
        |version: &Version| Minor::of(version).ok_or_else(|| UpgradeRefusal::RunsUnknown(version.clone()));
    let (low, high) = (known(lowest)?, known(highest)?);
    if high.number() - low.number() > 1 {
        return Err(UpgradeRefusal::TooFarApart {
            lowest: lowest.clone(),
            highest: highest.clone(),
        });
    }
    if wanted < low {
        let below = Minor::ALL.into_iter().filter(|minor| *minor < high).max();
        let why = if wanted < LOWEST_DOWNGRADE {
            Some(DowngradeRefusal::NotSupported)
        } else if let Some(below) = below.filter(|below| wanted < *below) {
            let first = intermediate.of(below);
            Some(DowngradeRefusal::OneAtATime { first })
        } else {
            (!allow_downgrade).then_some(DowngradeRefusal::NotAllowed)
        };
        return match why {
            Some(why) => Err(UpgradeRefusal::Downgrade {
                running: lowest.clone(),
                target: target.clone(),
                why,
            }),
            None => Ok(downgrade_path(lowest, target, intermediate)),
        };
    }
    let on_the_way = Minor::ALL
        .into_iter()
        .filter(|minor| (low..wanted).contains(minor));
    // No member below the floor runs beside one of the next minor version, on the way back neither.
    let is_returning = low < high && wanted == low && target.patch < floor(low);
    let mut versions = on_the_way
        .filter(|minor| *minor != low || lowest.patch < floor(low))
        .chain(is_returning.then_some(low))
        .map(|minor| intermediate.of(minor))
        .chain([target.clone()]);
    let next = versions.next().unwrap_or_else(|| target.clone());
    Ok(UpgradePath {
        next,
        rest: versions.collect(),
    })
}

/// The way to the minor version below that of all members. Members below the intermediate version of their own minor go
/// there first. If the target is below its [`floor`], they then go through the intermediate version of its minor, which
/// can run beside the higher one.
fn downgrade_path(lowest: &Version, target: &Version, intermediate: &IntermediateVersions) -> UpgradePath {
    let newest_of = |version: &Version| Minor::of(version).map(|minor| intermediate.of(minor));
    let first = newest_of(lowest).filter(|newest| lowest < newest);
    let below_floor = Minor::of(target).is_some_and(|minor| target.patch < floor(minor));
    let second = newest_of(target).filter(|_| below_floor);
    let mut versions = first.into_iter().chain(second).chain([target.clone()]);
    let next = versions.next().unwrap_or_else(|| target.clone());
    UpgradePath {
        next,
        rest: versions.collect(),
    }
}

impl UpgradePath {
    /// The path with one step: to this version.
    pub fn to(target: &Version) -> Self {
        Self {
            next: target.clone(),
            rest: Vec::new(),
        }
    }

    /// All versions that are still to be reached.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        std::iter::once(&self.next).chain(&self.rest)
    }
}

#[cfg(test)]
mod tests;
