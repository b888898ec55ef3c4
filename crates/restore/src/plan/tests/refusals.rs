//! What is not restored, although it was asked for once.

use super::*;

#[test]
fn what_time_does_not_mend_is_not_tried_again_by_itself_when_nobody_thinks_of_it_any_more() {
    let failed = |attempt: i64, retriable: bool| {
        let mut world = world();
        follow(&mut world);
        world.memory.attempt = attempt;
        let outcome = JobOutcome::Failed {
            reason: "Key".to_owned(),
            message: "no key 2026".to_owned(),
            retriable,
        };
        world.jobs = vec![ended(&format!("back-v{attempt}"), outcome)];
        world.now = "2026-03-08T12:00:00Z".parse().expect("a time");
        world
    };
    for (attempt, retriable) in [(1, false), (6, true)] {
        let mut world = failed(attempt, retriable);
        let rests = follow(&mut world);
        assert_eq!((rests.phase, rests.job), (Phase::Failed, None));
        assert!(rests.text.contains("when this spec is changed"), "{}", rests.text);
        world.is_edited = true;
        let next = format!("back-v{}", attempt + 1);
        assert_eq!(plan(&world).job.expect("a Job").name, next);
    }
    let again = follow(&mut failed(5, true));
    assert_eq!(again.job.expect("a Job").name, "back-v6");
}

#[test]
fn an_object_that_was_made_again_since_it_was_chosen_is_not_restored() {
    let mut world = world();
    follow(&mut world);
    // Its status, where times are to the second, tells of an earlier moment.
    let found = Verified {
        completed_at: "2026-03-01T10:00:00.9Z".parse().ok(),
        ..verified()
    };
    world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(found)))];
    let asked = |at| From::Backup {
        name: "nightly".to_owned(),
        at,
    };
    let early = "2026-03-01T09:59:58Z".parse().expect("a time");
    for at in [At::Revision(39), At::Time(early)] {
        world.desired.from = asked(at);
        let refused = plan(&world);
        assert_eq!((refused.phase, &refused.ask), (Phase::Failed, &Ask::AsBefore));
        assert!(refused.text.contains("Nothing was touched"), "{}", refused.text);
    }
    for at in [
        At::Revision(40),
        At::Time("2026-03-01T10:00:00Z".parse().expect("a time")),
    ] {
        world.desired.from = asked(at);
        assert!(matches!(plan(&world).ask, Ask::For(_)), "{at:?}");
    }
}

/// Somebody pauses the cluster, restores another backup, or deletes the Job: none of that asks for another try.
#[test]
fn what_has_failed_rests_whatever_stands_in_its_way_for_a_while() {
    let outcome = JobOutcome::Failed {
        reason: "Key".to_owned(),
        message: "no key 2026".to_owned(),
        retriable: false,
    };
    let obstacles: [Change; 4] = [
        |world| cluster(world).is_paused = true,
        |world| world.rival = Some("another".to_owned()),
        |world| world.source = Err("there is no such backup".to_owned()),
        |world| world.jobs.clear(),
    ];
    for (number, obstacle) in obstacles.into_iter().enumerate() {
        let mut world = world();
        follow(&mut world);
        world.jobs = vec![ended("back-v1", outcome.clone())];
        let failed = follow(&mut world);
        world.memory.said = Some(failed.text.clone());
        let well = world.clone();
        obstacle(&mut world);
        let rests = follow(&mut world);
        assert_eq!(
            (rests.phase, &rests.job, &rests.text),
            (Phase::Failed, &None, &failed.text),
            "{number}"
        );
        // Weeks later, and what it was verified by is gone, or only the pod that could say why it failed.
        let mut mute = ended("back-v1", outcome.clone());
        mute.said = None;
        world = World {
            memory: world.memory,
            jobs: vec![mute],
            now: "2026-03-22T12:00:00Z".parse().expect("a time"),
            ..well.clone()
        };
        let later = follow(&mut world);
        assert_eq!(
            (later.phase, later.job, later.ask),
            (Phase::Failed, None, Ask::AsBefore),
            "{number}"
        );
        world = World {
            memory: world.memory,
            jobs: Vec::new(),
            ..well
        };
        let later = plan(&world);
        assert_eq!(
            (later.phase, later.job, later.ask),
            (Phase::Failed, None, Ask::AsBefore),
            "{number}"
        );
        world.is_edited = true;
        assert!(plan(&world).job.is_some(), "{number}");
    }
}

#[test]
fn an_image_without_the_program_that_restores_is_refused_before_anything_is_touched() {
    let mut world = world();
    follow(&mut world);
    cluster(&mut world).image = Some("registry.example.com/etcd:lean".to_owned());
    let mut job = ended("back-v1", JobOutcome::Fetched { bytes: 0 });
    job.said = None;
    job.lacks_tool = Some("StartError (exit code 128) no such file or directory".to_owned());
    job.end.as_mut().expect("an end").is_complete = false;
    world.jobs = vec![job];
    let refused = follow(&mut world);
    assert_eq!((refused.phase, &refused.ask), (Phase::Failed, &Ask::AsBefore));
    for words in [
        "NoTool",
        "registry.example.com/etcd:lean",
        "no such file",
        "Nothing was touched",
    ] {
        assert!(refused.text.contains(words), "{}", refused.text);
    }
}

#[test]
fn old_data_need_their_room_as_well() {
    // The download and the new database, with the log of etcd's tool.
    let needed = 2 * 20_512 + (128 << 20);
    for (beside, wanted) in [
        (None, true),
        (Some((1 << 30) - needed), true),
        (Some((1 << 30) - needed + 1), false),
    ] {
        let mut world = world();
        follow(&mut world);
        cluster(&mut world).volume = Some(1 << 30);
        let verified = Verified { beside, ..verified() };
        world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(verified)))];
        let next = plan(&world);
        assert_eq!(
            matches!(next.ask, Ask::For(_)),
            wanted,
            "{beside:?}: {}",
            next.text
        );
        if let Some(beside) = beside.filter(|_| !wanted) {
            assert!(
                next.text.contains(&format!("beside the {beside} bytes")),
                "{}",
                next.text
            );
        }
    }
}

/// Somebody enlarges the volumes while he restores, and somebody else upgrades the cluster months later.
#[test]
fn what_was_refused_for_the_clusters_sake_goes_on_when_that_is_changed_soon_and_not_later() {
    for (at, goes_on) in [("2026-03-01T12:40:00Z", true), ("2026-06-01T12:00:00Z", false)] {
        let mut world = world();
        follow(&mut world);
        let newer = Verified {
            etcd_version: Some("3.7.1".to_owned()),
            ..verified()
        };
        world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(newer)))];
        let refused = follow(&mut world);
        assert!(
            refused
                .text
                .contains("if that changes before 2026-03-01T13:00:00Z"),
            "{}",
            refused.text
        );
        world.now = at.parse().expect("a time");
        cluster(&mut world).version = "3.7.3".parse().ok();
        let next = follow(&mut world);
        assert_eq!(matches!(next.ask, Ask::For(_)), goes_on, "{}", next.text);
        if !goes_on {
            assert!(
                next.text
                    .ends_with("Nothing was touched; it is tried again when this spec is changed."),
                "{}",
                next.text
            );
        }
    }
}

/// Another restore came first, which succeeded in a minute, and clients write: this one must not take that away, although it
/// would have been tried again by now, or what its Job has found would do by now.
#[test]
fn what_was_said_to_rest_rests_once_nothing_stands_in_its_way_any_more() {
    let unreachable = JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
        retriable: true,
    };
    let whole = JobOutcome::Verified(Box::new(verified()));
    for (outcome, volume) in [(unreachable, 8 << 30), (whole, 1)] {
        let mut world = world();
        follow(&mut world);
        world.jobs = vec![ended("back-v1", outcome)];
        cluster(&mut world).volume = Some(volume);
        assert_eq!(follow(&mut world).phase, Phase::Failed);
        world.rival = Some("another".to_owned());
        let rests = follow(&mut world);
        assert_eq!(rests.phase, Phase::Failed);
        assert!(rests.text.contains("when this spec is changed"), "{}", rests.text);

        world.rival = None;
        cluster(&mut world).volume = Some(8 << 30);
        world.now = "2026-03-01T12:02:00Z".parse().expect("a time");
        for _ in 0..2 {
            let still = follow(&mut world);
            assert_eq!(
                (still.phase, &still.job, &still.ask, &still.text),
                (Phase::Failed, &None, &Ask::AsBefore, &rests.text)
            );
        }
        world.is_edited = true;
        let again = plan(&world);
        assert!(again.job.is_some() || again.ask != Ask::AsBefore, "{again:?}");
    }
}

/// It would have been tried again; nobody was there when that was due, and it is not made up for days later.
#[test]
fn another_try_that_was_missed_is_not_made_by_itself_later() {
    let outcome = JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
        retriable: true,
    };
    let mut world = world();
    follow(&mut world);
    world.jobs = vec![ended("back-v1", outcome)];
    let failed = follow(&mut world);
    assert!(failed.text.contains("tried again at"), "{}", failed.text);
    world.memory.said = Some(failed.text);
    world.now = "2026-03-01T12:05:00Z".parse().expect("a time");
    assert_eq!(plan(&world).job.expect("a Job").name, "back-v2");
    world.now = "2026-03-03T12:00:00Z".parse().expect("a time");
    let rests = plan(&world);
    assert_eq!((rests.phase, &rests.job), (Phase::Failed, &None));
    assert!(
        rests
            .text
            .ends_with("it is tried again when this spec is changed."),
        "{}",
        rests.text
    );
}

#[test]
fn what_is_full_already_is_not_put_where_it_would_be_full_again() {
    let mut full = verified();
    full.alarms = vec!["NOSPACE".to_owned()];
    full.object.snapshot_size = 3 << 30;
    for (quota, alarms, wanted) in [
        (None, true, false),
        (Some(3 << 30), true, false),
        (Some(4 << 30), true, true),
        // Nobody has written since it was full, or it had a larger quota where it comes from.
        (None, false, false),
        (Some(4 << 30), false, true),
    ] {
        let mut world = world();
        follow(&mut world);
        cluster(&mut world).quota = quota;
        let mut full = full.clone();
        full.alarms.retain(|_| alarms);
        world.jobs = vec![ended("back-v1", JobOutcome::Verified(Box::new(full)))];
        let next = plan(&world);
        assert_eq!(
            matches!(next.ask, Ask::For(_)),
            wanted,
            "{quota:?}: {}",
            next.text
        );
        if !wanted {
            assert!(
                next.text.contains("larger spec.etcd.quotaBackendBytes"),
                "{}",
                next.text
            );
        }
    }
}

#[test]
fn a_restore_that_was_rolled_back_is_tried_again_only_when_its_spec_changes() {
    let mut world = world();
    world.memory.attempt = 1;
    let mut back = progress("RolledBack");
    back.message = Some("c-0: NoRoom".to_owned());
    cluster(&mut world).progress = Some(back);
    let next = follow(&mut world);
    assert_eq!(next.phase, Phase::RolledBack);
    assert!(next.text.contains("c-0: NoRoom"), "{}", next.text);
    cluster(&mut world).progress = None;
    world.now = "2026-03-02T12:00:00Z".parse().expect("a time");
    let later = follow(&mut world);
    assert_eq!(
        (later.phase, &later.text),
        (Phase::RolledBack, &next.text),
        "why is not forgotten with the cluster's own words"
    );
    world.is_edited = true;
    assert_eq!(follow(&mut world).job.expect("a Job").name, "back-v2");
}
