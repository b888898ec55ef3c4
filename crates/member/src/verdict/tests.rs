//! Every verdict, and which of two that could be given comes first.

use etcd_operator_api::contract::{Fingerprint, Prepared, Verdict, kind};

use super::*;
use crate::samples::{self, MEMBER, OWN};

fn verdict_of(disk: &DiskView) -> Verdict {
    judge(disk, &samples::expected()).verdict
}

fn prepared(incarnation: i64) -> Prepared {
    Prepared {
        version: 1,
        restore_uid: "restore".into(),
        object_sha256: "00ff".into(),
        incarnation,
        directory: "restored-restore".into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
    }
}

fn waits_for_swap() -> Verdict {
    Verdict::Prepared {
        restore_uid: "restore".into(),
        object_sha256: "00ff".into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
    }
}

#[test]
fn a_disk_with_nothing_of_etcd_and_nothing_that_ran_is_empty() {
    assert_eq!(verdict_of(&DiskView::default()), Verdict::Empty);
    let never_ran = samples::disk(
        Identity {
            ran: false,
            ..samples::identity()
        },
        Data::None,
    );
    assert_eq!(verdict_of(&never_ran), Verdict::Empty);
}

#[test]
fn a_disk_that_lost_its_data_is_not_empty() {
    let after_start = samples::disk(samples::identity(), Data::None);
    assert_eq!(verdict_of(&after_start), Verdict::Unborn);
    let only_kept = DiskView {
        kept: vec!["kept-1-1".into()],
        ..DiskView::default()
    };
    assert_eq!(verdict_of(&only_kept), Verdict::Foreign);
}

#[test]
fn a_first_start_that_failed_leaves_an_unborn_disk_with_or_without_a_database() {
    for data in [Data::None, Data::Unlogged] {
        assert_eq!(
            verdict_of(&samples::disk(samples::identity(), data)),
            Verdict::Unborn
        );
    }
}

#[test]
fn only_a_disk_that_is_whole_in_every_respect_is_whole() {
    assert_eq!(verdict_of(&samples::whole()), Verdict::Whole);
    let no_ids_yet = Identity {
        cluster_id: None,
        member_id: None,
        ..samples::identity()
    };
    assert_eq!(
        verdict_of(&samples::disk(no_ids_yet, samples::data())),
        Verdict::Whole
    );

    let broken_head = samples::with_store(|store| store.head = Err("torn".into()));
    let broken_database = samples::with_store(|store| store.database = Err("no page".into()));
    let other_member = samples::disk(
        Identity {
            member_id: Some("bad".into()),
            ..samples::identity()
        },
        samples::data(),
    );
    let other_cluster = samples::disk(
        Identity {
            cluster_id: Some("bad".into()),
            ..samples::identity()
        },
        samples::data(),
    );
    for disk in [broken_head, broken_database, other_member, other_cluster] {
        assert_eq!(verdict_of(&disk), Verdict::Damaged, "{disk:?}");
    }
}

#[test]
fn a_disk_of_another_cluster_or_member_is_foreign_however_whole_it_is() {
    for identity in [
        Identity {
            cluster_uid: "other".into(),
            ..samples::identity()
        },
        Identity {
            member: "orders-1".into(),
            ..samples::identity()
        },
    ] {
        let finding = judge(&samples::disk(identity, samples::data()), &samples::expected());
        assert_eq!(finding.verdict, Verdict::Foreign);
        assert!(
            finding.detail.contains("the disk belongs to"),
            "{}",
            finding.detail
        );
    }
    for data in [Data::Unlogged, samples::data()] {
        let nameless = DiskView {
            data,
            ..DiskView::default()
        };
        assert_eq!(verdict_of(&nameless), Verdict::Foreign);
    }
}

#[test]
fn another_life_of_the_data_is_told_older_or_newer() {
    for found in [1, 3] {
        let identity = Identity {
            incarnation: found,
            ..samples::identity()
        };
        for data in [Data::None, samples::data()] {
            let disk = samples::disk(identity.clone(), data);
            assert_eq!(verdict_of(&disk), Verdict::OtherIncarnation { found });
        }
    }
}

#[test]
fn whole_data_on_another_volume_is_moved_and_says_how_it_is_known() {
    let mut disk = samples::whole();
    disk.fingerprint = Fingerprint([(kind::WWID.to_owned(), "other".to_owned())].into());
    let finding = judge(&disk, &samples::expected());
    assert_eq!(finding.verdict, Verdict::Moved);
    assert_eq!(
        finding.detail,
        "another volume than before: wwid was naa.600, is other"
    );
    disk.fingerprint = Fingerprint([(kind::INODE.to_owned(), "7".to_owned())].into());
    assert_eq!(verdict_of(&disk), Verdict::Whole, "nothing to compare");
}

#[test]
fn a_restored_directory_counts_for_the_life_it_was_made_for_and_no_other() {
    let older = Identity {
        incarnation: 1,
        ..samples::identity()
    };
    let with = |identity: Option<Identity>, data, incarnation| DiskView {
        identity: identity.map_or(IdentityFile::Absent, IdentityFile::Found),
        prepared: Ok(Some(prepared(incarnation))),
        data,
        kept: vec!["kept-1-1".into()],
        ..DiskView::default()
    };
    let before = with(Some(older.clone()), samples::data(), 2);
    let between_the_renames = with(Some(older.clone()), Data::None, 2);
    let on_a_new_disk = with(None, Data::None, 2);
    for disk in [before, between_the_renames, on_a_new_disk] {
        assert_eq!(verdict_of(&disk), waits_for_swap(), "{disk:?}");
    }
    let swapped = with(Some(samples::identity()), samples::data(), 2);
    assert_eq!(verdict_of(&swapped), Verdict::Whole, "the mark is left over");
    let rolled_back = with(Some(samples::identity()), samples::data(), 3);
    assert_eq!(verdict_of(&rolled_back), Verdict::Whole);
    let of_an_earlier_try = with(Some(older), samples::data(), 3);
    assert_eq!(
        verdict_of(&of_an_earlier_try),
        Verdict::OtherIncarnation { found: 1 }
    );
}

#[test]
fn nothing_is_concluded_from_what_cannot_be_read() {
    let mut disk = samples::whole();
    disk.trouble = Some("input/output error".into());
    let finding = judge(&disk, &samples::expected());
    assert_eq!(
        (finding.verdict, finding.detail.as_str()),
        (Verdict::Unreadable, "input/output error")
    );
    let from_the_future = DiskView {
        identity: IdentityFile::Unusable("identity has version 9".into()),
        ..samples::whole()
    };
    assert_eq!(verdict_of(&from_the_future), Verdict::Unreadable);

    let mut mark_from_the_future = samples::whole();
    mark_from_the_future.prepared = Err("prepared has version 9".into());
    assert_eq!(
        verdict_of(&mark_from_the_future),
        Verdict::Whole,
        "it is not asked for"
    );
    mark_from_the_future.identity = IdentityFile::Absent;
    assert_eq!(verdict_of(&mark_from_the_future), Verdict::Unreadable);
}

#[test]
fn strange_names_are_told_shortened_and_not_without_end() {
    let told = |names: Vec<String>| {
        let disk = DiskView {
            strange: names,
            ..DiskView::default()
        };
        let finding = judge(&disk, &samples::expected());
        assert_eq!(finding.verdict, Verdict::Foreign);
        let words = "no identity, but files of somebody else: ";
        finding
            .detail
            .strip_prefix(words)
            .expect(&finding.detail)
            .to_owned()
    };
    let numbered = |count: u32| (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(told(numbered(5)), "1, 2, 3, 4, 5");
    assert_eq!(told(numbered(6)), "1, 2, 3, 4, 5 and 1 more");
    assert_eq!(told(numbered(5000)), "1, 2, 3, 4, 5 and 4995 more");
    let longest = "ü".repeat(NAMED * 51);
    assert_eq!(told(vec![longest]), format!("{} …", "ü".repeat(LONGEST_NAME)));
    assert_eq!(told(vec!["a\nb\u{1b}[2J".to_owned()]), "a\u{fffd}b\u{fffd}[2J");
}

#[test]
fn what_a_restore_has_made_here_counts_whatever_else_was_put_beside_it() {
    let disk = DiskView {
        prepared: Ok(Some(prepared(2))),
        strange: vec!["ledger-2026.txt".into()],
        ..DiskView::default()
    };
    assert_eq!(verdict_of(&disk), waits_for_swap());
    let of_another_life = DiskView {
        prepared: Ok(Some(prepared(1))),
        ..disk
    };
    assert_eq!(verdict_of(&of_another_life), Verdict::Foreign);
}

#[test]
fn the_words_name_whose_data_it_is() {
    let nameless = DiskView {
        data: samples::data(),
        ..DiskView::default()
    };
    let words = judge(&nameless, &samples::expected()).detail;
    assert!(words.contains(OWN) && words.contains(MEMBER), "{words}");
}
