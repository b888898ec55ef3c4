//! Tables of ways between versions.

use super::*;

fn versions(text: &str) -> Vec<Version> {
    text.split_whitespace()
        .map(|version| version.parse().expect(version))
        .collect()
}

fn named(text: &str) -> Result<IntermediateVersions, IntermediateVersionError> {
    IntermediateVersions::new(versions(text))
}

fn check_with(running: &str, target: &str, intermediate: &IntermediateVersions) -> String {
    check_path(running, target, intermediate, false)
}

fn check_path(
    running: &str,
    target: &str,
    intermediate: &IntermediateVersions,
    allow_downgrade: bool,
) -> String {
    let target = target.parse().expect(target);
    match path(&versions(running), &target, intermediate, allow_downgrade) {
        Ok(path) => {
            let texts: Vec<_> = path.versions().map(ToString::to_string).collect();
            texts.join(" ")
        }
        Err(why) => format!("no: {why}"),
    }
}

fn check(running: &str, target: &str) -> String {
    check_with(running, target, &IntermediateVersions::default())
}

#[test]
fn one_minor_version_at_a_time_through_the_newest_patches() {
    for (running, target, way) in [
        ("", "3.6.16", "3.6.16"),
        ("3.6.16 3.6.16 3.6.16", "3.6.16", "3.6.16"),
        ("3.6.15 3.6.16 3.6.16", "3.6.16", "3.6.16"),
        ("3.6.16 3.6.16", "3.6.1", "3.6.1"),
        ("3.5.35 3.5.35", "3.6.15", "3.6.15"),
        ("3.5.35 3.6.16", "3.6.16", "3.6.16"),
        ("3.4.44", "3.7.3", "3.5.35 3.6.16 3.7.3"),
        ("3.2.25", "3.4.44", "3.3.27 3.4.44"),
        ("3.4.44 3.5.35", "3.7.3", "3.5.35 3.6.16 3.7.3"),
    ] {
        assert_eq!(check(running, target), way, "{running} {target}");
    }
}

#[test]
fn a_patch_below_the_floor_is_left_before_its_minor_version() {
    for (running, target, way) in [
        ("3.5.21 3.5.21 3.5.21", "3.6.16", "3.5.35 3.6.16"),
        ("3.5.35 3.5.35 3.5.25", "3.7.3", "3.5.35 3.6.16 3.7.3"),
        ("3.5.26 3.5.26 3.5.26", "3.6.16", "3.6.16"),
        ("3.6.10", "3.7.3", "3.6.16 3.7.3"),
        ("3.6.11", "3.7.3", "3.7.3"),
        // The one that is ahead returns, so that no member skips the patch.
        ("3.6.16 3.5.21 3.5.35", "3.6.16", "3.5.35 3.6.16"),
    ] {
        assert_eq!(check(running, target), way, "{running} {target}");
    }
}

#[test]
fn while_two_minor_versions_run_the_lower_one_can_be_returned_to() {
    assert_eq!(check("3.6.16 3.5.35 3.5.35", "3.5.35"), "3.5.35");
    assert_eq!(check("3.6.16 3.5.35 3.5.35", "3.5.30"), "3.5.30");
    assert_eq!(check("3.6.16 3.5.35 3.5.35", "3.5.21"), "3.5.35 3.5.21");
    assert_eq!(check("3.5.35 3.5.35 3.5.35", "3.5.21"), "3.5.21");
    let refused = check("3.6.16 3.6.16 3.6.16", "3.5.35");
    assert_eq!(
        refused,
        "no: the members are at etcd 3.6.16, and their files are downgraded only with consent: set spec.version to 3.6.16, set spec.updates.allowDowngrade to true, or restore a backup that was made with etcd 3.5 into a new EtcdCluster"
    );
    assert!(check("3.6.16 3.5.35", "3.4.44").starts_with("no: the members are at etcd 3.5.35"));
}

#[test]
fn with_consent_members_go_down_one_minor_version_from_the_newest_patch() {
    let check = |running, target| check_path(running, target, &IntermediateVersions::default(), true);
    for (running, target, way) in [
        ("3.7.3 3.7.3 3.7.3", "3.6.16", "3.6.16"),
        ("3.7.1 3.7.3 3.7.3", "3.6.16", "3.7.3 3.6.16"),
        ("3.6.11 3.6.11", "3.5.35", "3.6.16 3.5.35"),
        ("3.6.16 3.6.16", "3.5.30", "3.5.30"),
        // A patch below the floor does not run beside the next minor version.
        ("3.7.3 3.7.3", "3.6.5", "3.6.16 3.6.5"),
        ("3.7.0", "3.6.5", "3.7.3 3.6.16 3.6.5"),
        // A patch that is newer than those that are known is left as it is.
        ("3.7.9", "3.6.16", "3.6.16"),
        // Half-way.
        ("3.6.16 3.7.3 3.7.3", "3.6.16", "3.6.16"),
        ("3.6.16 3.7.3 3.7.3", "3.7.3", "3.7.3"),
        // Consent changes nothing about the way up.
        ("3.5.21", "3.7.3", "3.5.35 3.6.16 3.7.3"),
    ] {
        assert_eq!(check(running, target), way, "{running} {target}");
    }
}

#[test]
fn what_etcd_cannot_be_downgraded_to_is_refused_with_the_way_there_is() {
    let refused = |running: &str, target: &str, allow_downgrade: bool| {
        let target = target.parse().expect(target);
        let intermediate = IntermediateVersions::default();
        match path(&versions(running), &target, &intermediate, allow_downgrade) {
            Err(ref refusal @ UpgradeRefusal::Downgrade { ref why, .. }) => {
                (why.clone(), refusal.to_string())
            }
            other => panic!("{running} {target}: {other:?}"),
        }
    };
    let one_at_a_time = || DowngradeRefusal::OneAtATime {
        first: "3.6.16".parse().expect("a version"),
    };
    for (running, target, allow_downgrade, why) in [
        ("3.7.3 3.7.3", "3.6.16", false, DowngradeRefusal::NotAllowed),
        ("3.7.3 3.7.3", "3.5.35", true, one_at_a_time()),
        ("3.7.3 3.6.16", "3.5.35", true, one_at_a_time()),
        ("3.7.3 3.7.3", "3.5.35", false, one_at_a_time()),
        ("3.7.3 3.7.3", "3.4.44", true, DowngradeRefusal::NotSupported),
        ("3.5.35 3.5.35", "3.4.44", true, DowngradeRefusal::NotSupported),
        ("3.3.27 3.3.27", "3.2.32", true, DowngradeRefusal::NotSupported),
    ] {
        let (reason, text) = refused(running, target, allow_downgrade);
        assert_eq!(reason, why, "{running} {target}");
        let minor = &target[..3];
        let restore = format!("restore a backup that was made with etcd {minor} into a new EtcdCluster");
        assert!(text.ends_with(&restore), "{text}");
        assert_eq!(
            text.contains("allowDowngrade"),
            matches!(
                why,
                DowngradeRefusal::NotAllowed | DowngradeRefusal::OneAtATime { .. }
            ),
            "{text}"
        );
    }
    let (_, text) = refused("3.7.3 3.7.3", "3.5.35", false);
    assert_eq!(
        text,
        "the members are at etcd 3.7.3, and etcd is downgraded by one minor version at a time: set spec.updates.allowDowngrade to true and spec.version to 3.6.16 first, and to 3.5.35 once all members run that, or restore a backup that was made with etcd 3.5 into a new EtcdCluster"
    );
}

#[test]
fn what_is_unknown_or_too_far_apart_leads_nowhere() {
    assert_eq!(
        check("3.7.3 3.5.35", "3.7.3"),
        "no: members run etcd 3.5.35 and 3.7.3, more than one minor version apart"
    );
    assert_eq!(
        check("3.8.0", "3.6.16"),
        "no: a member runs etcd 3.8.0, which this version of the operator does not know"
    );
    assert!(check("3.4.44", "3.5.2").ends_with("take 3.5.35"));
    assert!(check("3.6.16", "3.8.0").starts_with("no: etcd 3.8.0 is not known"));
}

#[test]
fn an_installation_names_other_versions_on_the_way() {
    let others = named("3.5.30 3.6.12").expect("versions that can be used");
    assert_eq!(check_with("3.4.44", "3.7.3", &others), "3.5.30 3.6.12 3.7.3");
    assert_eq!(check_with("3.5.21", "3.6.16", &others), "3.5.30 3.6.16");
    for (version, why) in [
        (
            "3.5.25",
            "etcd 3.5.25 is too old to go on from: 3.5.26 or newer is needed before the next minor version",
        ),
        (
            "3.6.10",
            "etcd 3.6.10 is too old to go on from: 3.6.11 or newer is needed before the next minor version",
        ),
    ] {
        let error = named(version).expect_err(version);
        assert_eq!(error.to_string(), why);
    }
    assert_eq!(
        named("3.5.30 3.5.35"),
        Err(IntermediateVersionError::Twice(Minor::V3_5))
    );
    for refused in ["3.5.2", "3.8.0", "3.6.0-rc.1"] {
        assert!(
            matches!(named(refused), Err(IntermediateVersionError::Refused(_))),
            "{refused}"
        );
    }
}

#[test]
fn from_every_version_the_newest_is_reached_and_no_minor_version_is_skipped() {
    let target = newest(Minor::V3_7);
    for minor in Minor::ALL {
        let mut running = Version::of(minor, if minor == Minor::V3_5 { 3 } else { 0 });
        let way = path(
            std::slice::from_ref(&running),
            &target,
            &IntermediateVersions::default(),
            false,
        );
        let way = way.expect("a way");
        for version in way.versions() {
            assert!(
                version.minor <= running.minor + 1,
                "{minor}: {running} to {version}"
            );
            assert!(
                version.minor == running.minor || running.patch >= floor(Minor::of(&running).expect("known")),
                "{minor}: {running} to {version}"
            );
            running = version.clone();
        }
        assert_eq!(running, target);
    }
}
