//! The permits of a restore.

use etcd_operator_api::contract::{Fetched, Prepared, RestoreTerms};

use super::*;
use crate::command::Start;

const DIRECTORY: &str = "restored-restore-1";

fn terms() -> RestoreTerms {
    RestoreTerms {
        uid: "restore-1".into(),
        object_sha256: "00ff".into(),
        revision_bump: 1000,
        keep_seconds: 60,
    }
}

/// A permit of a restore.
pub(super) fn permit(mode: Mode) -> Permit {
    Permit {
        restore: Some(terms()),
        ..super::permit(mode)
    }
}

fn with(mode: Mode, change: impl FnOnce(&mut Permit, &mut RestoreTerms)) -> Permit {
    let (mut permit, mut terms) = (permit(mode), terms());
    change(&mut permit, &mut terms);
    permit.restore = Some(terms);
    permit
}

/// A disk of the life before, on which a restored directory waits.
pub(super) fn prepared() -> DiskView {
    let mut disk = of_before(samples::data());
    disk.prepared = Ok(Some(Prepared {
        version: 1,
        restore_uid: "restore-1".into(),
        object_sha256: "00ff".into(),
        incarnation: 2,
        directory: DIRECTORY.into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
    }));
    disk.restored = vec![DIRECTORY.into()];
    disk
}

/// The same disk with the snapshot on it.
pub(super) fn downloaded(disk: &DiskView) -> DiskView {
    DiskView {
        fetched: Some(Fetched {
            version: 1,
            restore_uid: "restore-1".into(),
            object_sha256: "00ff".into(),
            snapshot_size: 4096,
            boot: None,
        }),
        ..disk.clone()
    }
}

/// Asks what a permit lets a process make on this disk.
pub(super) fn ask(permit: &Permit, disk: &DiskView) -> Result<Preparation, Refusal> {
    let expected = samples::expected();
    let verdict = judge(disk, &expected).verdict;
    let applicant = Applicant {
        pod_uid: "pod",
        process: "process",
        nonce: "nonce",
        expected: &expected,
        disk,
        verdict: &verdict,
    };
    check_to_prepare(permit, &applicant)
}

#[test]
fn a_directory_is_made_of_the_very_object_that_was_downloaded_for_the_very_restore() {
    let disk = downloaded(&of_before(samples::data()));
    let made = ask(&permit(Mode::Prepare), &disk).expect("permitted");
    assert_eq!(
        (made.directory.as_str(), made.member.as_str(), made.bump),
        (DIRECTORY, "orders-0", Some(1000))
    );
    assert_eq!((made.first.members.len(), made.snapshot_size), (2, 4096));
    assert_eq!(
        ask(&with(Mode::Prepare, |_, terms| terms.revision_bump = 0), &disk).map(|made| made.bump),
        Ok(None)
    );
    let none = || Err(Refusal::NoDownload("restore-1".into()));
    assert_eq!(ask(&permit(Mode::Prepare), &of_before(samples::data())), none());
    let other = with(Mode::Prepare, |_, terms| terms.object_sha256 = "ff00".into());
    assert_eq!(ask(&other, &disk), none());
    for (change, refusal) in [
        (
            (|permit, _| permit.token.clear()) as fn(&mut Permit, &mut RestoreTerms),
            Refusal::Missing("token"),
        ),
        (
            |permit, _| permit.initial_cluster.clear(),
            Refusal::Missing("initialCluster"),
        ),
        (
            |_, terms| terms.object_sha256.clear(),
            Refusal::Missing("objectSHA256"),
        ),
        (
            |_, terms| terms.uid = "../data".into(),
            Refusal::Malformed("uid of a restore", "../data".into()),
        ),
        (
            |_, terms| terms.revision_bump = -1,
            Refusal::Malformed("revisionBump", "-1".into()),
        ),
        (|permit, _| permit.nonce = "old".into(), Refusal::OtherNonce),
    ] {
        assert_eq!(ask(&with(Mode::Prepare, change), &disk), Err(refusal));
    }
    let start = super::ask(&permit(Mode::Prepare), &disk);
    assert_eq!(
        start,
        Err(Refusal::NoStart(Mode::Prepare)),
        "it never starts etcd"
    );
}

#[test]
fn a_swap_puts_in_place_what_was_prepared_and_keeps_what_was_there() {
    let grant = super::ask(&permit(Mode::Swap), &prepared()).expect("a grant");
    assert_eq!(grant.put.as_deref(), Some(DIRECTORY));
    assert_eq!(grant.set_aside.as_deref(), Some("kept-1-1"));
    assert_eq!(grant.keeps.as_ref().map(|keeps| keeps.seconds), Some(60));
    assert_eq!(grant.first, None, "its log says who the members are");
    assert_eq!((grant.identity.incarnation, grant.identity.ran), (2, true));
    assert_eq!(grant.identity.cluster_id.as_deref(), Some(OWN));
    assert_eq!(grant.start(), Start::Restored);
}

#[test]
fn a_swap_that_was_cut_short_goes_on_where_it_was() {
    let mut between = prepared();
    between.data = Data::None;
    between.kept = vec!["kept-1-1".into()];
    let grant = super::ask(&permit(Mode::Swap), &between).expect("a grant");
    assert_eq!((grant.put.as_deref(), grant.set_aside), (Some(DIRECTORY), None));

    // In place, with the IDs that were prepared: only the identity is missing.
    let mut after = prepared();
    after.restored.clear();
    let grant = super::ask(&permit(Mode::Swap), &after).expect("a grant");
    assert_eq!((&grant.put, &grant.set_aside), (&None, &None));
    assert_eq!(grant.start(), Start::Restored);
    let mut other = samples::store();
    other.head = Ok(LogHead {
        cluster: "aa".parse().expect("an ID"),
        member: MEMBER.parse().expect("an ID"),
    });
    for data in [Data::None, Data::Unlogged, Data::Logged(other)] {
        after.data = data;
        assert_eq!(
            refusal(&permit(Mode::Swap), &after),
            Refusal::NotRestored(DIRECTORY.into())
        );
    }
}

#[test]
fn a_swap_is_for_the_same_restore_object_and_ids() {
    let disk = prepared();
    for change in [
        (|terms| terms.uid = "restore-2".into()) as fn(&mut RestoreTerms),
        |terms| terms.object_sha256 = "ff00".into(),
    ] {
        let permit = with(Mode::Swap, |_, terms| change(terms));
        assert!(matches!(refusal(&permit, &disk), Refusal::OtherRestore { .. }));
    }
    for (change, what) in [
        (
            (|permit| permit.cluster_id = Some("aa".into())) as fn(&mut Permit),
            "cluster",
        ),
        (|permit| permit.member_id = Some("aa".into()), "member"),
    ] {
        let refused = refusal(&with(Mode::Swap, |permit, _| change(permit)), &disk);
        assert!(
            matches!(&refused, Refusal::OtherIds { what: found, .. } if *found == what),
            "{refused}"
        );
    }
    let without = with(Mode::Swap, |permit, _| permit.cluster_id = None);
    assert_eq!(refusal(&without, &disk), Refusal::Missing("clusterID"));
    assert_eq!(
        refusal(&super::permit(Mode::Swap), &disk),
        Refusal::Missing("restore")
    );
}
