//! The reference page about versions of etcd: patches, ways from one to another, known faults.

use etcd_operator_etcd::policy::{self, DEFAULT_MINOR, FAULTS, Fault, IntermediateVersions};
use etcd_operator_etcd::version::{Minor, Version};

use super::head;
use super::table::table;

/// Examples of ways, each with the version that runs and the one in the spec.
const WAYS: [(&str, &str); 7] = [
    ("3.6.15", "3.6.16"),
    ("3.6.16", "3.6.15"),
    ("3.2.25", "3.4.44"),
    ("3.4.44", "3.7.3"),
    ("3.5.21", "3.6.16"),
    ("3.5.35", "3.7.3"),
    ("3.6.10", "3.7.3"),
];

/// Generates the page.
pub(super) fn page() -> String {
    format!(
        "{}
See which versions of etcd the operator runs, through which ones an upgrade leads, and what is known against a version. [Upgrade etcd](../how-to/upgrade-etcd.md) says how. An EtcdCluster without `spec.version` and `spec.image` gets {default}, and keeps the version that it has.

## Minor versions

Only releases of these minor versions are run; pre-releases are refused. A newer patch than the newest known one is accepted.

{minors}
Why these patches are needed:

{floors}
## Ways

An upgrade leads through each minor version in between, in its newest known patch or in the one that the chart's value `rollouts.intermediateVersions` names. A minor version begins when every member runs the version before it. Examples:

{ways}
A lower patch of the same minor version is always possible. A lower minor version is possible while a member runs it. Afterwards members can be [downgraded](../how-to/upgrade-etcd.md#downgrade) from 3.7 to 3.6 and from 3.6 to 3.5 with consent; otherwise [restore a backup into a new cluster](../how-to/restore-elsewhere.md).

## Faults

Versions that damage data by themselves are refused. The others run.

{faults}",
        head("Versions of etcd"),
        default = policy::newest(DEFAULT_MINOR),
        minors = minors(),
        floors = floors(),
        ways = ways(),
        faults = faults(),
    )
}

fn minors() -> String {
    let nexts = Minor::ALL.into_iter().skip(1).map(Some).chain([None]);
    let rows: Vec<[String; 4]> = Minor::ALL
        .into_iter()
        .zip(nexts)
        .map(|(minor, next)| {
            let floor = match policy::floor(minor) {
                0 => "any patch".to_owned(),
                patch => format!("{} or newer", Version::of(minor, patch)),
            };
            let next = next.map(|next| (next.to_string(), floor));
            let (next, floor) = next.unwrap_or_default();
            [minor.to_string(), policy::newest(minor).to_string(), next, floor]
        })
        .collect();
    table(
        &[
            "minor version",
            "newest known patch",
            "next minor version",
            "every member must run before",
        ],
        &rows,
    )
}

fn floors() -> String {
    let reasons = Minor::ALL.into_iter().filter_map(|minor| {
        let (reason, upstream) = floor_reason(minor)?;
        let floor = Version::of(minor, policy::floor(minor));
        Some(format!("- {floor}: {reason} ([upstream]({upstream})).\n"))
    });
    reasons.collect()
}

/// Why older patches of a minor version must not take the next one, and where etcd says so.
fn floor_reason(minor: Minor) -> Option<(&'static str, &'static str)> {
    match minor {
        Minor::V3_5 => Some((
            "from older patches, members that were removed can come back on 3.6",
            "https://etcd.io/blog/2025/zombie_members_upgrade/",
        )),
        Minor::V3_6 => Some((
            "older patches may not be compatible with a rolling upgrade to 3.7",
            "https://etcd.io/docs/latest/upgrades/upgrade_3_7/",
        )),
        Minor::V3_2 | Minor::V3_3 | Minor::V3_4 | Minor::V3_7 => None,
    }
}

fn ways() -> String {
    let rows = WAYS.map(|(running, target)| [running.to_owned(), target.to_owned(), way(running, target)]);
    table(&["members run", "`spec.version`", "members then run"], &rows)
}

/// The versions of a way, in their order.
fn way(running: &str, target: &str) -> String {
    let (Ok(running), Ok(target)) = (running.parse(), target.parse()) else {
        return String::new();
    };
    match policy::path(&[running], &target, &IntermediateVersions::default(), false) {
        Ok(path) => {
            let versions: Vec<String> = path.versions().map(ToString::to_string).collect();
            versions.join(", then ")
        }
        Err(refusal) => refusal.to_string(),
    }
}

fn faults() -> String {
    let mut sorted: Vec<&Fault> = FAULTS.iter().collect();
    sorted.sort_by_key(|fault| (fault.minor, fault.mended.is_none(), fault.mended));
    let rows: Vec<[String; 4]> = sorted
        .into_iter()
        .map(|fault| {
            let versions = match fault.mended {
                Some(1) => Version::of(fault.minor, 0).to_string(),
                Some(mended) => format!(
                    "{} to {}",
                    Version::of(fault.minor, 0),
                    Version::of(fault.minor, mended - 1)
                ),
                None => format!("all of {}", fault.minor),
            };
            let verdict = if fault.is_refused { "refused" } else { "runs" };
            let mended = fault
                .mended
                .map(|mended| Version::of(fault.minor, mended).to_string());
            [
                versions,
                format!("{} ([upstream]({}))", fault.what, fault.upstream),
                mended.unwrap_or_else(|| "take a newer minor version".to_owned()),
                verdict.to_owned(),
            ]
        })
        .collect();
    table(&["etcd", "known fault", "corrected in", "the operator"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_floor_has_its_reason_and_no_other_patch_has_one() {
        for minor in Minor::ALL {
            assert_eq!(floor_reason(minor).is_some(), policy::floor(minor) > 0, "{minor}");
        }
    }

    #[test]
    fn every_example_is_a_way_to_its_target() {
        for (running, target) in WAYS {
            let way = way(running, target);
            assert!(way.ends_with(target), "{running} to {target}: {way}");
        }
    }

    #[test]
    fn refused_versions_are_told() {
        let page = page();
        assert!(page.contains("| 3.5.0 to 3.5.2 |"), "{page}");
        assert_eq!(page.matches("| refused |").count(), 1, "{page}");
    }
}
