//! Tables of steps between versions.

use super::*;

fn versions(text: &str) -> Vec<Version> {
    text.split_whitespace()
        .map(|version| version.parse().expect(version))
        .collect()
}

const DOWN: Allowed = Allowed {
    downgrade: true,
    auth: false,
};

fn check(running: &str, target: &str, allowed: Allowed) -> String {
    match next(&versions(running), &target.parse().expect(target), allowed) {
        Ok(Step::Done) => "done".to_owned(),
        Ok(Step::Patch(version)) => format!("patch {version}"),
        Ok(Step::Upgrade(version)) => format!("up {version}"),
        Ok(Step::DowngradeByRequest(version)) => format!("down {version}"),
        Ok(Step::DowngradeByFlag(version)) => format!("down by flag {version}"),
        Err(why) => format!("no: {why}"),
    }
}

#[test]
fn one_minor_at_a_time_over_the_newest_patches_on_the_way() {
    for (running, target, step) in [
        ("3.6.16 3.6.16 3.6.16", "3.6.16", "done"),
        ("3.6.15 3.6.16 3.6.16", "3.6.16", "patch 3.6.16"),
        ("3.6.16", "3.6.14", "patch 3.6.14"),
        ("3.6.16", "3.7.3", "up 3.7.3"),
        ("3.4.23", "3.6.16", "up 3.5.35"),
        ("3.2.25", "3.7.3", "up 3.3.27"),
        ("3.5.35", "3.6.16", "up 3.6.16"),
        ("3.5.26", "3.7.3", "up 3.6.16"),
    ] {
        assert_eq!(
            check(running, target, Allowed::default()),
            step,
            "{running} {target}"
        );
    }
}

#[test]
fn three_five_goes_on_only_when_every_member_runs_a_patch_from_which_it_is_safe() {
    for (running, step) in [
        ("3.5.21 3.5.21 3.5.21", "patch 3.5.35"),
        ("3.5.35 3.5.35 3.5.25", "patch 3.5.35"),
        ("3.5.26 3.5.35 3.5.35", "up 3.6.16"),
        ("3.6.1 3.5.21 3.5.35", "patch 3.5.35"),
        ("3.6.16 3.5.26 3.5.26", "up 3.6.16"),
    ] {
        assert_eq!(check(running, "3.6.16", Allowed::default()), step, "{running}");
    }
}

#[test]
fn a_step_that_has_begun_ends_on_one_side_or_the_other() {
    for (target, allowed, step) in [
        ("3.6.16", Allowed::default(), "up 3.6.16"),
        ("3.7.3", Allowed::default(), "up 3.6.16"),
        ("3.5.35", Allowed::default(), "patch 3.5.35"),
        ("3.4.44", DOWN, "patch 3.5.35"),
    ] {
        assert_eq!(check("3.6.16 3.5.35 3.5.35", target, allowed), step, "{target}");
    }
    assert!(check("3.6.16 3.5.35", "3.4.44", Allowed::default()).contains("allowDowngrade"));
    assert!(check("3.7.3 3.5.35", "3.7.3", DOWN).contains("more than one minor apart"));
}

#[test]
fn the_way_back_needs_the_users_word_and_a_version_that_reads_the_files() {
    for (running, target, step) in [
        ("3.7.3", "3.6.16", "down 3.6.16"),
        ("3.7.3", "3.5.35", "down 3.6.16"),
        ("3.6.16", "3.5.35", "down 3.5.35"),
        ("3.5.35", "3.4.44", "down by flag 3.4.44"),
    ] {
        assert_eq!(check(running, target, DOWN), step, "{running} {target}");
        let unasked = check(running, target, Allowed::default());
        assert!(unasked.contains("updates.allowDowngrade"), "{unasked}");
    }
    for (running, target) in [
        ("3.5.35", "3.4.30"),
        ("3.5.35", "3.3.27"),
        ("3.4.44", "3.3.27"),
        ("3.3.27", "3.2.32"),
    ] {
        let refused = check(running, target, DOWN);
        assert!(
            refused.contains("cannot read the files"),
            "{running} {target}: {refused}"
        );
    }
    let with_auth = Allowed {
        downgrade: true,
        auth: true,
    };
    assert!(check("3.5.35", "3.4.44", with_auth).contains("authentication"));
    assert_eq!(check("3.6.16", "3.5.35", with_auth), "down 3.5.35");
}

#[test]
fn what_is_unknown_or_refused_leads_nowhere() {
    assert!(check("", "3.6.16", DOWN).contains("no member says"));
    assert!(check("3.8.0", "3.6.16", DOWN).contains("3.8.0"));
    assert!(check("3.4.44", "3.5.2", DOWN).contains("take 3.5.35"));
    assert!(check("3.6.16", "3.8.0", DOWN).contains("3.2 to 3.7"));
}

#[test]
fn from_every_version_the_newest_is_reached_and_no_minor_is_skipped() {
    for minor in Minor::ALL {
        let mut running = Version::of(minor, if minor == Minor::V3_5 { 3 } else { 0 });
        let target = newest(Minor::V3_7);
        let mut steps = 0;
        loop {
            let step = next(std::slice::from_ref(&running), &target, Allowed::default());
            let reached = match step.expect("a step") {
                Step::Done => break,
                Step::Patch(version) if version.minor == running.minor => version,
                Step::Upgrade(version) if version.minor == running.minor + 1 => version,
                other => panic!("{running}: {other:?}"),
            };
            running = reached;
            steps += 1;
            assert!(steps <= 8, "{minor}");
        }
        assert_eq!(running, target);
    }
}
