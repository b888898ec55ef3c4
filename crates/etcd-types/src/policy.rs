//! Which versions of etcd are run, and which of their known bugs a user is told of. Pure: one table, read by version.
//!
//! A version is refused only where running it loses or damages data by itself; everything else is advice.

mod features;
mod steps;

use crate::version::{Minor, Version};

pub use features::{Feature, connected_to_add};
pub use steps::{
    DowngradeRefusal, IntermediateVersionError, IntermediateVersions, LOWEST_DOWNGRADE, UpgradePath,
    UpgradeRefusal, floor, path,
};

/// The minor of clusters whose user names no version.
pub const DEFAULT_MINOR: Minor = Minor::V3_6;

/// The newest patch of a minor version that this release of the operator knows. etcd may have newer ones, and they run,
/// too.
pub fn newest(minor: Minor) -> Version {
    let patch = match minor {
        Minor::V3_2 => 32,
        Minor::V3_3 => 27,
        Minor::V3_4 => 44,
        Minor::V3_5 => 35,
        Minor::V3_6 => 16,
        Minor::V3_7 => 3,
    };
    Version::of(minor, patch)
}

/// Whether the operator runs a version of etcd, and what is known against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs; these are the reasons to move on, gravest first. None for a version without known faults.
    Runs(Vec<&'static str>),
    /// It is not run.
    Refused(VersionRefusal),
}

/// Why a version is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionRefusal {
    /// Its flags, features and files are unknown.
    #[error("etcd {0} is not known: 3.2 to 3.7 are, for example {example}", example = newest(DEFAULT_MINOR))]
    Unknown(Version),
    /// Its files may never be read by a release.
    #[error("etcd {0} is not a release: take a release, for example {example}", example = newest(DEFAULT_MINOR))]
    NotARelease(Version),
    /// It is known to lose or damage data.
    #[error("etcd {version} {fault}: take {instead}")]
    Faulty {
        /// What was asked for.
        version: Version,
        /// What it does.
        fault: &'static str,
        /// The nearest version to take.
        instead: Version,
    },
}

/// A known fault of a minor version, in all patches before the one that fixed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The minor.
    pub minor: Minor,
    /// The first patch without it; none if no patch mends it.
    pub mended: Option<u32>,
    /// Whether these patches are not run at all.
    pub is_refused: bool,
    /// What they do, behind "etcd VERSION".
    pub what: &'static str,
    /// The issue, change or advisory of etcd.
    pub upstream: &'static str,
}

/// A fault that a patch fixed, and for which no version is refused.
const fn fault(minor: Minor, mended: u32, what: &'static str, upstream: &'static str) -> Fault {
    Fault {
        minor,
        mended: Some(mended),
        is_refused: false,
        what,
        upstream,
    }
}

const DEFRAGMENTED: &str = "can damage a member that is defragmented while it receives a snapshot";
const UNAUTHORIZED: &str =
    "lets requests pass by authentication, and can answer with stale data after a pause";
const NESTED: &str = "does not check all permissions in nested transactions";
const WATCHED: &str = "shows watchers keys that they have no permission to read";
const UNAUTHORIZED_ADVISORY: &str = "https://github.com/etcd-io/etcd/security/advisories/GHSA-q8m4-xhhv-38mg";
const NESTED_ADVISORY: &str = "https://github.com/etcd-io/etcd/security/advisories/GHSA-x35m-3gp4-4fh5";
const WATCHED_ADVISORY: &str = "https://github.com/etcd-io/etcd/security/advisories/GHSA-xg4h-6gfc-h4m8";
const MAINTAINED: &str = "https://etcd.io/docs/latest/op-guide/versioning/";

/// The known faults, gravest first.
pub const FAULTS: &[Fault] = &[
    Fault {
        is_refused: true,
        ..fault(
            Minor::V3_5,
            3,
            "makes members differ from one another after a crash under load",
            "https://github.com/etcd-io/etcd/issues/13766",
        )
    },
    fault(
        Minor::V3_5,
        5,
        "can lose acknowledged writes of a cluster with one member in a crash",
        "https://github.com/etcd-io/etcd/issues/14370",
    ),
    fault(
        Minor::V3_5,
        6,
        "can make a member's revision differ after a crash during a defragmentation",
        "https://github.com/etcd-io/etcd/issues/14685",
    ),
    fault(
        Minor::V3_5,
        14,
        "can decrease the revision after a crash during a compaction",
        "https://github.com/etcd-io/etcd/pull/17865",
    ),
    fault(
        Minor::V3_5,
        17,
        "can apply a transaction in part",
        "https://github.com/etcd-io/etcd/pull/18799",
    ),
    fault(
        Minor::V3_5,
        23,
        DEFRAGMENTED,
        "https://github.com/etcd-io/etcd/pull/20653",
    ),
    fault(
        Minor::V3_6,
        5,
        DEFRAGMENTED,
        "https://github.com/etcd-io/etcd/pull/20650",
    ),
    fault(Minor::V3_4, 42, UNAUTHORIZED, UNAUTHORIZED_ADVISORY),
    fault(Minor::V3_5, 28, UNAUTHORIZED, UNAUTHORIZED_ADVISORY),
    fault(Minor::V3_6, 9, UNAUTHORIZED, UNAUTHORIZED_ADVISORY),
    fault(Minor::V3_4, 44, NESTED, NESTED_ADVISORY),
    fault(Minor::V3_5, 30, NESTED, NESTED_ADVISORY),
    fault(Minor::V3_6, 11, NESTED, NESTED_ADVISORY),
    fault(Minor::V3_5, 33, WATCHED, WATCHED_ADVISORY),
    fault(Minor::V3_6, 14, WATCHED, WATCHED_ADVISORY),
    fault(Minor::V3_7, 1, WATCHED, WATCHED_ADVISORY),
    Fault {
        minor: Minor::V3_2,
        mended: None,
        is_refused: false,
        what: "is no longer maintained, has no learners and no figures on its own address",
        upstream: MAINTAINED,
    },
    Fault {
        minor: Minor::V3_3,
        mended: None,
        is_refused: false,
        what: "is no longer maintained and has no learners",
        upstream: MAINTAINED,
    },
];

/// Whether the operator runs this version. It refuses unknown minor versions, pre-releases, and patches that by
/// themselves lose or damage data. Other known faults are only listed, as advice.
pub fn verdict(version: &Version) -> Verdict {
    let Some(minor) = Minor::of(version) else {
        return Verdict::Refused(VersionRefusal::Unknown(version.clone()));
    };
    if !version.pre.is_empty() {
        return Verdict::Refused(VersionRefusal::NotARelease(version.clone()));
    }
    let faults = || {
        FAULTS
            .iter()
            .filter(|fault| fault.minor == minor && fault.mended.is_none_or(|mended| version.patch < mended))
    };
    match faults().find(|fault| fault.is_refused) {
        Some(fault) => Verdict::Refused(VersionRefusal::Faulty {
            version: version.clone(),
            fault: fault.what,
            instead: newest(minor),
        }),
        None => Verdict::Runs(faults().map(|fault| fault.what).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(text: &str) -> usize {
        match verdict(&text.parse().expect(text)) {
            Verdict::Runs(advice) => advice.len(),
            Verdict::Refused(why) => panic!("{text} is refused: {why}"),
        }
    }

    fn refusal(text: &str) -> String {
        match verdict(&text.parse().expect(text)) {
            Verdict::Runs(advice) => panic!("{text} runs: {advice:?}"),
            Verdict::Refused(why) => why.to_string(),
        }
    }

    #[test]
    fn versions_that_lose_data_by_themselves_are_refused_with_one_to_take() {
        for patch in 0..3 {
            let why = refusal(&format!("3.5.{patch}"));
            assert!(why.contains("differ from one another"), "{why}");
            assert!(why.ends_with("take 3.5.35"), "{why}");
        }
        assert!(refusal("3.6.0-rc.1").contains("not a release"));
        for unknown in ["2.3.8", "3.1.0", "3.8.0", "4.0.0"] {
            assert!(refusal(unknown).contains("3.2 to 3.7"), "{unknown}");
        }
    }

    #[test]
    fn the_newest_patch_of_a_maintained_minor_has_no_known_fault() {
        for minor in Minor::ALL {
            let expected = usize::from(minor <= Minor::V3_3);
            assert_eq!(advice(&newest(minor).to_string()), expected, "{minor}");
        }
    }

    #[test]
    fn advice_ends_with_the_patch_that_mends() {
        for (before, mended) in [
            ("3.5.4", "3.5.5"),
            ("3.5.5", "3.5.6"),
            ("3.5.13", "3.5.14"),
            ("3.5.16", "3.5.17"),
            ("3.5.22", "3.5.23"),
            ("3.5.27", "3.5.28"),
            ("3.5.29", "3.5.30"),
            ("3.5.32", "3.5.33"),
            ("3.4.41", "3.4.42"),
            ("3.4.43", "3.4.44"),
            ("3.6.4", "3.6.5"),
            ("3.6.8", "3.6.9"),
            ("3.6.10", "3.6.11"),
            ("3.6.13", "3.6.14"),
            ("3.7.0", "3.7.1"),
        ] {
            assert_eq!(advice(before), advice(mended) + 1, "{before}");
        }
    }
}
