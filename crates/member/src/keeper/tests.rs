//! A process killed before each step of each change: what the disk is then, and that the next process can go on.

mod restored;

use std::cell::Cell;
use std::time::Duration;

use etcd_operator_api::contract::{Mode, Permit, Verdict};

use super::*;
use crate::disk::{Depth, read};
use crate::log::samples::{Segment, put};
use crate::restart::{Attempt, attempt};
use crate::samples::{self, MEMBER, OWN, Scratch};
use crate::state::{Source, State};
use crate::{database, permit};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// What stands in the data of before, to be found again.
const PRECIOUS: &str = "member/precious";

fn source() -> Source {
    Source {
        now: || Duration::from_secs(1),
        draw: || "name".to_owned(),
    }
}

/// A disk as it is before the change, and what it becomes.
struct Case {
    name: &'static str,
    mode: Mode,
    before: Verdict,
    /// What it may be found to be when the change was cut short.
    between: &'static [Verdict],
    after: Verdict,
    prepare: fn(&Scratch, &Volume),
}

fn cases() -> Vec<Case> {
    let older = Verdict::OtherIncarnation { found: 1 };
    vec![
        Case {
            name: "a new member",
            mode: Mode::Bootstrap,
            before: Verdict::Empty,
            between: &[Verdict::Empty],
            after: Verdict::Unborn,
            prepare: |_, _| {},
        },
        Case {
            name: "a member that failed to join",
            mode: Mode::Join,
            before: Verdict::Unborn,
            between: &[Verdict::Unborn],
            after: Verdict::Unborn,
            prepare: |scratch, volume| {
                identify(volume, |_| {});
                scratch.file("data/member/precious", "");
            },
        },
        Case {
            name: "a life that ended before anybody wrote",
            mode: Mode::Bootstrap,
            before: older.clone(),
            between: &[Verdict::OtherIncarnation { found: 1 }],
            after: Verdict::Unborn,
            prepare: |scratch, volume| {
                identify(volume, |identity| identity.incarnation = 1);
                store(scratch, false);
            },
        },
        Case {
            name: "a member on another volume",
            mode: Mode::Resume,
            before: Verdict::Moved,
            between: &[Verdict::Moved, Verdict::Whole],
            after: Verdict::Whole,
            prepare: |scratch, volume| {
                identify(volume, |identity| {
                    identity.fingerprint = etcd_operator_api::contract::Fingerprint(
                        [("root".to_owned(), "elsewhere".to_owned())].into(),
                    );
                });
                store(scratch, true);
            },
        },
        Case {
            name: "a restored member in the place of another",
            mode: Mode::Swap,
            before: restored::waits(),
            between: &[],
            after: Verdict::Whole,
            prepare: |scratch, volume| {
                identify(volume, |identity| identity.incarnation = 1);
                member(scratch, "data", "aa", true);
                scratch.file("data/member/precious", "");
                restored::beside(scratch, volume);
            },
        },
        Case {
            name: "a restored member on a disk that was emptied",
            mode: Mode::Swap,
            before: restored::waits(),
            between: &[],
            after: Verdict::Whole,
            prepare: |scratch, volume| {
                fs::create_dir(volume.own()).expect("a directory");
                fs::create_dir(volume.data()).expect("a directory");
                restored::beside(scratch, volume);
            },
        },
        Case {
            name: "a kept disk",
            mode: Mode::Adopt,
            before: Verdict::Foreign,
            between: &[Verdict::Foreign, Verdict::Whole],
            after: Verdict::Whole,
            prepare: |scratch, volume| {
                identify(volume, |identity| identity.cluster_uid = "deleted".into());
                store(scratch, true);
            },
        },
    ]
}

fn identify(volume: &Volume, change: fn(&mut Identity)) {
    let mut identity = Identity {
        fingerprint: etcd_operator_api::contract::Fingerprint::default(),
        ..samples::identity()
    };
    change(&mut identity);
    fs::create_dir(volume.own()).expect("a directory");
    fs::write(volume.identity(), contract::write(&identity)).expect("written");
}

/// A log and a database that can be begun with.
fn store(scratch: &Scratch, is_written: bool) {
    member(scratch, "data", OWN, is_written);
    scratch.file("data/member/precious", "");
}

/// The same of any cluster in any directory.
fn member(scratch: &Scratch, directory: &str, cluster: &str, is_written: bool) {
    let number = |id: &str| u64::from_str_radix(id, 16).expect("an ID");
    let mut segment = Segment::new(0, number(cluster), number(MEMBER));
    if is_written {
        segment.entry(2, 9, 0, &put());
    }
    scratch.file(
        &format!("{directory}/member/wal/0000000000000000-0000000000000000.wal"),
        segment.bytes(),
    );
    let own = r#"{"name":"orders-0","peerURLs":["http://orders-0.orders.shop.svc:2380"]}"#;
    scratch.file(
        &format!("{directory}/member/snap/db"),
        database::samples::database(&[(MEMBER, own)], true),
    );
}

fn verdict(volume: &Volume) -> Verdict {
    let disk = read(volume, &Surroundings::default(), Depth::Report);
    crate::verdict::judge(&disk, &samples::expected()).verdict
}

/// What a permit of this mode leads to on the disk as it is.
fn grant(volume: &Volume, mode: Mode) -> Grant {
    let disk = read(volume, &Surroundings::default(), Depth::Report);
    let mut state = State::new(samples::expected(), "pod".into(), disk, source());
    let permit = Permit {
        version: 1,
        pod_uid: "pod".into(),
        process: "name".into(),
        nonce: "name".into(),
        mode,
        incarnation: 2,
        cluster_uid: "cluster".into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
        initial_cluster: "orders-0=http://orders-0.orders.shop.svc:2380,orders-1=http://b:1".into(),
        token: "t".into(),
        restore: Some(restored::terms()),
    };
    state
        .ask(&permit, source())
        .unwrap_or_else(|refusal| panic!("{mode:?}: {refusal}"))
}

/// Makes the change, but is killed before a step. What was being written then is torn.
fn killed_before(
    volume: &Volume,
    step: usize,
    change: impl FnOnce(&mut Keeper<'_>) -> Result<(), NotKept>,
) -> bool {
    let taken = Cell::new(0);
    let mut before = |next: &Step| {
        if taken.get() == step {
            if let Step::Write(path) = next {
                fs::write(path, r#"{"version": 1, "cluste"#)?;
            }
            return Err(ErrorKind::Interrupted.into());
        }
        taken.set(taken.get() + 1);
        Ok(())
    };
    change(&mut Keeper::new(volume, &mut before)).is_err()
}

/// Where the data of before is now.
fn is_precious_kept(volume: &Volume) -> bool {
    let entries = fs::read_dir(volume.root()).expect("listed").flatten();
    entries
        .filter(|entry| entry.path().join(PRECIOUS).exists())
        .count()
        == 1
}

#[test]
fn a_process_killed_at_any_step_leaves_a_disk_that_is_judged_rightly_and_goes_on() {
    let surroundings = Surroundings::default();
    let mut kills = 0;
    for case in cases() {
        for step in 0.. {
            let scratch = Scratch::new();
            let volume = Volume::at(scratch.path());
            (case.prepare)(&scratch, &volume);
            let had_data = volume.data().join(PRECIOUS).exists();
            let at = format!("{} killed before step {step}", case.name);
            assert_eq!(verdict(&volume), case.before, "{at}");
            let first = grant(&volume, case.mode);
            let was_killed = killed_before(&volume, step, |keeper| keeper.commit(&first, &surroundings, NOW));
            assert_eq!(is_precious_kept(&volume), had_data, "{at}");
            let found = verdict(&volume);
            if !was_killed {
                assert_eq!(found, case.after, "{at}");
                break;
            }
            kills += 1;
            assert!(
                case.between.contains(&found) || found == case.before || found == case.after,
                "{at}: {found:?}"
            );
            if found == case.after && found == Verdict::Whole {
                continue;
            }
            let again = grant(&volume, case.mode);
            Keeper::new(&volume, &mut |_| Ok(()))
                .commit(&again, &surroundings, NOW)
                .expect("committed");
            assert_eq!(verdict(&volume), case.after, "{at}, then run again");
            assert_eq!(is_precious_kept(&volume), had_data, "{at}, then run again");
        }
    }
    assert!(kills >= 48, "{kills}");
}

#[test]
fn a_whole_disk_stays_whole_wherever_its_restart_is_killed() {
    for step in 0.. {
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path());
        identify(&volume, |_| {});
        store(&scratch, true);
        let next = permit::restart(
            &samples::identity(),
            samples::store().head.expect("a head"),
            &etcd_operator_api::contract::Fingerprint::default(),
        );
        let was_killed = killed_before(&volume, step, |keeper| keeper.write(&next));
        assert_eq!(verdict(&volume), Verdict::Whole, "step {step}");
        if !was_killed {
            break;
        }
    }
}

#[test]
fn each_restart_is_counted_and_learns_by_what_the_volume_is_known() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    identify(&volume, |identity| identity.member_id = None);
    store(&scratch, true);
    for starts in 8..11 {
        let attempted = attempt(&volume, &Surroundings::default(), &samples::expected());
        assert!(matches!(attempted, Attempt::Starts), "{attempted:?}");
        let disk = read(&volume, &Surroundings::default(), Depth::Start);
        let identity = disk.identity.found().expect("an identity");
        assert_eq!(
            (identity.starts, identity.member_id.as_deref()),
            (starts, Some(MEMBER))
        );
        assert_eq!(identity.fingerprint, disk.fingerprint);
        assert!(identity.fingerprint.0.contains_key("inode"), "{identity:?}");
    }
}

#[test]
fn what_was_set_aside_before_is_never_replaced() {
    let scratch = Scratch::new();
    let volume = Volume::at(scratch.path());
    identify(&volume, |_| {});
    scratch.file("data/member/precious", "new");
    scratch.file("kept-2-1/member/precious", "old");
    let mut grant = grant(&volume, Mode::Join);
    assert_eq!(grant.set_aside.as_deref(), Some("kept-2-2"));
    grant.set_aside = Some("kept-2-1".into());
    let refused = Keeper::new(&volume, &mut |_| Ok(())).commit(&grant, &Surroundings::default(), NOW);
    assert!(refused.is_err());
    for (place, content) in [("kept-2-1", "old"), ("data", "new")] {
        let found = fs::read_to_string(scratch.path().join(place).join(PRECIOUS));
        assert_eq!(found.expect("there"), content);
    }
}
