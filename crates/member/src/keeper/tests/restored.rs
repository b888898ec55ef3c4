//! Restored directories: marked only when they are complete, and gone when nobody needs them.

use etcd_operator_api::contract::{Fetched, Kept, KeptDirectory, Prepared, RestoreTerms};
use jiff::SignedDuration;

use super::*;

const RESTORE: &str = "restore-1";
const OBJECT: &str = "00ff";

pub(super) fn terms() -> RestoreTerms {
    RestoreTerms {
        uid: RESTORE.into(),
        object_sha256: OBJECT.into(),
        revision_bump: 0,
        keep_seconds: 3600,
    }
}

fn mark() -> Prepared {
    Prepared {
        version: 1,
        restore_uid: RESTORE.into(),
        object_sha256: OBJECT.into(),
        incarnation: 2,
        directory: format!("restored-{RESTORE}"),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
    }
}

/// What a disk with a complete directory is found to be.
pub(super) fn waits() -> Verdict {
    Verdict::Prepared {
        restore_uid: RESTORE.into(),
        object_sha256: OBJECT.into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
    }
}

/// A complete directory beside the data.
pub(super) fn beside(scratch: &Scratch, volume: &Volume) {
    member(scratch, &mark().directory, OWN, false);
    fs::write(volume.prepared(), contract::write(&mark())).expect("written");
}

/// A disk of the life before, with a download and a directory that the tool has just made.
fn made(scratch: &Scratch, volume: &Volume) {
    identify(volume, |identity| identity.incarnation = 1);
    member(scratch, "data", "aa", true);
    scratch.file("data/member/precious", "");
    scratch.file("restore/snapshot.db", "snapshot");
    let fetched = Fetched {
        version: 1,
        restore_uid: RESTORE.into(),
        object_sha256: OBJECT.into(),
        snapshot_size: 8,
        boot: None,
    };
    fs::write(volume.fetched(), contract::write(&fetched)).expect("written");
    member(scratch, &mark().directory, OWN, false);
}

fn names(volume: &Volume) -> Vec<String> {
    let entries = fs::read_dir(volume.root()).expect("listed").flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_directory_is_marked_when_all_of_it_is_on_the_disk_and_never_before() {
    for step in 0.. {
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path());
        made(&scratch, &volume);
        assert_eq!(verdict(&volume), Verdict::OtherIncarnation { found: 1 });
        let mut synced = Vec::new();
        let mut taken = 0;
        let mut before = |next: &Step| {
            if let Step::Write(path) = next
                && taken == step
            {
                fs::write(path, r#"{"version": 1, "restoreU"#)?;
            }
            if taken == step {
                return Err(ErrorKind::Interrupted.into());
            }
            taken += 1;
            if let Step::Sync(path) = next {
                synced.push(path.clone());
            }
            Ok(())
        };
        let was_killed = Keeper::new(&volume, &mut before).mark_prepared(&mark()).is_err();
        let found = verdict(&volume);
        if found == waits() {
            let directory = volume.restored(&mark().directory);
            for path in ["member/wal", "member/snap/db", "member/snap", "member", ""] {
                let path = directory.join(path);
                assert!(synced.contains(&path), "{} is not synced", path.display());
            }
            assert!(synced.contains(&volume.root().to_owned()));
        } else {
            assert_eq!(found, Verdict::OtherIncarnation { found: 1 }, "step {step}");
            assert!(volume.snapshot().exists(), "step {step}: it must be made again");
        }
        assert!(volume.data().join(PRECIOUS).exists(), "step {step}");
        if !was_killed {
            assert_eq!(found, waits());
            assert_eq!(names(&volume), ["data", "operator", "restored-restore-1"]);
            break;
        }
        // The next process begins anew, or finds it done.
        if found != waits() {
            Keeper::new(&volume, &mut |_| Ok(()))
                .clear_restored()
                .expect("cleared");
            member(&scratch, &mark().directory, OWN, false);
            Keeper::new(&volume, &mut |_| Ok(()))
                .mark_prepared(&mark())
                .expect("marked");
            assert_eq!(verdict(&volume), waits(), "step {step}, then run again");
        }
    }
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method by its name is of one lifetime only"
)]
#[test]
fn what_is_half_removed_was_no_longer_marked() {
    for step in 0.. {
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path());
        identify(&volume, |identity| identity.incarnation = 1);
        beside(&scratch, &volume);
        member(&scratch, "restored-of-another", OWN, false);
        let was_killed = killed_before(&volume, step, |keeper| keeper.clear_restored());
        let is_whole = volume.restored(&mark().directory).join("member/snap/db").exists();
        assert!(is_whole || verdict(&volume) != waits(), "step {step}");
        if !was_killed {
            assert_eq!(names(&volume), ["operator"]);
            break;
        }
    }
}

#[test]
fn a_torn_mark_is_no_mark_and_nothing_is_started_or_replaced_by_it() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    made(&scratch, &volume);
    fs::write(volume.prepared(), r#"{"version": 1, "restoreU"#).expect("written");
    assert_eq!(verdict(&volume), Verdict::Unreadable);
}

#[test]
fn old_data_are_kept_for_their_time_and_then_go_at_a_start() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    identify(&volume, |identity| identity.incarnation = 1);
    member(&scratch, "data", "aa", true);
    scratch.file("data/member/precious", "");
    scratch.file("kept-1-1/member/precious", "by somebody else, for good");
    beside(&scratch, &volume);
    let grant = grant(&volume, Mode::Swap);
    Keeper::new(&volume, &mut |_| Ok(()))
        .commit(&grant, &Surroundings::default(), NOW)
        .expect("swapped");
    assert_eq!(verdict(&volume), Verdict::Whole);
    assert_eq!(names(&volume), ["data", "kept-1-1", "kept-1-2", "operator"]);
    let at = |hours: i64| NOW + SignedDuration::from_mins(hours * 60);
    let tidied = |now: Timestamp| {
        Keeper::new(&volume, &mut |_| Ok(())).tidy(now).expect("tidied");
        names(&volume)
    };
    let early = at(1) - SignedDuration::from_secs(1);
    assert_eq!(tidied(early), ["data", "kept-1-1", "kept-1-2", "operator"]);
    assert_eq!(tidied(at(1)), ["data", "kept-1-1", "operator"]);
    // The name is free again, and what gets it is not what was kept for a while.
    scratch.file("kept-1-2/member/precious", "another");
    assert_eq!(tidied(at(9)), ["data", "kept-1-1", "kept-1-2", "operator"]);
}

#[test]
fn a_download_goes_with_the_start_of_a_member_that_joins_without_it() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    identify(&volume, |_| {});
    scratch.file("data/member/precious", "");
    scratch.file("restore/snapshot.db", "snapshot");
    scratch.file("operator/fetched.json", "any");
    let grant = grant(&volume, Mode::Join);
    Keeper::new(&volume, &mut |_| Ok(()))
        .commit(&grant, &Surroundings::default(), NOW)
        .expect("joins");
    assert!(!volume.download().exists() && !volume.fetched().exists());
}

#[test]
fn nothing_is_deleted_by_a_list_that_is_torn_or_leads_elsewhere() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    identify(&volume, |_| {});
    store(&scratch, true);
    fs::write(volume.kept_list(), r#"{"version": 1, "direct"#).expect("written");
    assert!(Keeper::new(&volume, &mut |_| Ok(())).tidy(NOW).is_err());
    for directory in ["data", "kept-1/../data", "../elsewhere"] {
        let kept = Kept {
            version: 1,
            directories: vec![KeptDirectory {
                directory: directory.into(),
                restore_uid: RESTORE.into(),
                until: NOW,
            }],
        };
        fs::write(volume.kept_list(), contract::write(&kept)).expect("written");
        Keeper::new(&volume, &mut |_| Ok(())).tidy(NOW).expect("tidied");
        assert!(volume.data().join(PRECIOUS).exists(), "{directory}");
    }
}

#[test]
fn a_start_of_a_whole_disk_leaves_nothing_of_a_restore_that_was_given_up() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    made(&scratch, &volume);
    Keeper::new(&volume, &mut |_| Ok(()))
        .mark_prepared(&mark())
        .expect("marked");
    scratch.file("restore/snapshot.db.part", "half");
    let mut expected = samples::expected();
    expected.incarnation = 1;
    let identity = Identity {
        incarnation: 1,
        cluster_id: Some("aa".into()),
        fingerprint: etcd_operator_api::contract::Fingerprint::default(),
        ..samples::identity()
    };
    fs::write(volume.identity(), contract::write(&identity)).expect("written");
    let attempted = attempt(&volume, &Surroundings::default(), &expected);
    assert!(matches!(attempted, Attempt::Starts), "{attempted:?}");
    assert_eq!(names(&volume), ["data", "operator"]);
    assert!(!volume.prepared().exists() && !volume.fetched().exists());
}
