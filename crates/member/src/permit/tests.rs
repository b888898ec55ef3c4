//! Which permits are good for which process and disk, and what a good one leads to.

mod restored;

use etcd_operator_api::contract::{Fingerprint, Identity, Mode, Permit, Verdict, kind};
use etcd_operator_etcd::flags::FirstState;

use super::*;
use crate::samples::{self, MEMBER, OWN};
use crate::verdict::judge;
use crate::view::{Data, IdentityFile, LogEnd};

/// A member of another cluster, of which the disk may be a copy.
const ELSEWHERE: &str = "http://orders-1.orders.production.svc:2380";

fn permit(mode: Mode) -> Permit {
    Permit {
        version: 1,
        pod_uid: "pod".into(),
        process: "process".into(),
        nonce: "nonce".into(),
        mode,
        incarnation: 2,
        cluster_uid: "cluster".into(),
        cluster_id: Some(OWN.into()),
        member_id: Some(MEMBER.into()),
        initial_cluster: "orders-0=http://orders-0.orders.shop.svc:2380,\
                          orders-1=http://orders-1.orders.shop.svc:2380"
            .into(),
        token: "shop/orders/cluster/2".into(),
        restore: None,
    }
}

fn with(mode: Mode, change: impl FnOnce(&mut Permit)) -> Permit {
    let mut permit = permit(mode);
    change(&mut permit);
    permit
}

/// Asks with this permit on this disk, which is judged first.
fn ask(permit: &Permit, disk: &DiskView) -> Result<Grant, Refusal> {
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
    check(permit, &applicant)
}

fn refusal(permit: &Permit, disk: &DiskView) -> Refusal {
    ask(permit, disk).expect_err("a refusal")
}

fn unborn() -> DiskView {
    samples::disk(samples::identity(), Data::Unlogged)
}

fn moved() -> DiskView {
    DiskView {
        fingerprint: Fingerprint([(kind::WWID.to_owned(), "other".to_owned())].into()),
        ..samples::whole()
    }
}

/// Kept when its cluster object was deleted; whole in all else.
fn kept() -> DiskView {
    let identity = Identity {
        cluster_uid: "deleted".into(),
        ..samples::identity()
    };
    samples::disk(identity, samples::data())
}

fn of_before(data: Data) -> DiskView {
    let identity = Identity {
        incarnation: 1,
        ..samples::identity()
    };
    samples::disk(identity, data)
}

/// Data that nobody wrote to yet.
fn unwritten() -> Data {
    let mut store = samples::store();
    store.end = Some(LogEnd::default());
    Data::Logged(store)
}

#[test]
fn a_permit_for_anybody_or_any_moment_else_is_refused() {
    let disk = DiskView::default();
    assert!(ask(&permit(Mode::Bootstrap), &disk).is_ok());
    let check = |change: fn(&mut Permit), wanted: &Refusal| {
        assert_eq!(refusal(&with(Mode::Bootstrap, change), &disk), *wanted);
    };
    check(|p| p.pod_uid = "x".into(), &Refusal::OtherPod("x".into()));
    check(|p| p.cluster_uid = "x".into(), &Refusal::OtherCluster("x".into()));
    check(|p| p.process = "x".into(), &Refusal::OtherProcess);
    check(|p| p.nonce = "x".into(), &Refusal::OtherNonce);
    for permitted in [1, 3] {
        let refused = refusal(&with(Mode::Bootstrap, |p| p.incarnation = permitted), &disk);
        assert_eq!(
            refused,
            Refusal::OtherIncarnation {
                permitted,
                expected: 2
            }
        );
    }
}

#[test]
fn what_is_not_built_is_refused_by_its_name() {
    let refused = refusal(&permit(Mode::Recover), &DiskView::default());
    assert_eq!(refused, Refusal::NotBuilt(Mode::Recover));
    assert!(refused.to_string().contains("Recover"), "{refused}");
}

/// Every mode against every verdict: exactly these pairs are permitted.
#[test]
fn each_mode_is_for_its_own_verdicts_alone() {
    let damaged = samples::with_store(|store| store.database = Err("torn".into()));
    let newer = samples::disk(
        Identity {
            incarnation: 3,
            ..samples::identity()
        },
        unwritten(),
    );
    let unreadable = DiskView {
        trouble: Some("EIO".into()),
        ..DiskView::default()
    };
    let disks = [
        ("empty", DiskView::default()),
        ("unborn", unborn()),
        ("whole", samples::whole()),
        ("damaged", damaged),
        ("foreign", kept()),
        ("older", of_before(unwritten())),
        ("newer", newer),
        ("moved", moved()),
        ("prepared", restored::prepared()),
        ("unreadable", unreadable),
    ];
    for (mode, fitting) in [
        (Mode::Bootstrap, &["empty", "unborn", "older"][..]),
        (Mode::Join, &["empty", "unborn", "older"]),
        (Mode::Resume, &["moved"]),
        (Mode::Adopt, &["foreign"]),
        (Mode::Swap, &["prepared"]),
        (Mode::Prepare, &["empty", "unborn", "older"]),
    ] {
        for (name, disk) in &disks {
            let asked = match mode {
                Mode::Prepare => {
                    restored::ask(&restored::permit(mode), &restored::downloaded(disk)).map(|_| ())
                }
                Mode::Swap => ask(&restored::permit(mode), disk).map(|_| ()),
                _ => ask(&permit(mode), disk).map(|_| ()),
            };
            assert_eq!(
                asked.is_ok(),
                fitting.contains(name),
                "{mode:?} on {name}: {asked:?}"
            );
        }
    }
}

#[test]
fn a_bootstrap_starts_a_new_cluster_and_marks_the_disk_as_run() {
    let grant = ask(&permit(Mode::Bootstrap), &DiskView::default()).expect("a grant");
    assert_eq!(grant.set_aside, None);
    assert_eq!(grant.unstarted, None);
    let first = grant.first.expect("flags of a first start");
    assert_eq!((first.state, first.members.len()), (FirstState::New, 2));
    assert_eq!(first.token, "shop/orders/cluster/2");
    assert!(grant.identity.ran);
    assert_eq!((grant.identity.starts, grant.identity.incarnation), (1, 2));
    assert_eq!(grant.identity.cluster_id.as_deref(), Some(OWN));

    let early = with(Mode::Bootstrap, |p| (p.cluster_id, p.member_id) = (None, None));
    let grant = ask(&early, &DiskView::default()).expect("a grant");
    assert_eq!(grant.identity.cluster_id, None);
}

#[test]
fn a_new_beginning_sets_aside_what_lies_there_under_a_name_of_its_own() {
    let set_aside = |disk: &DiskView| ask(&permit(Mode::Join), disk).expect("a grant").set_aside;
    assert_eq!(set_aside(&unborn()).as_deref(), Some("kept-2-1"));
    let mut again = of_before(unwritten());
    again.kept = vec!["kept-1-1".into(), "kept-1-2".into()];
    assert_eq!(set_aside(&again).as_deref(), Some("kept-1-3"));
    assert_eq!(set_aside(&samples::disk(samples::identity(), Data::None)), None);
}

#[test]
fn no_bootstrap_forgets_what_clients_may_have_written() {
    let written = of_before(samples::data());
    assert_eq!(
        refusal(&permit(Mode::Bootstrap), &written),
        Refusal::ClientEntries
    );
    let mut store = samples::store();
    store.end = None;
    let not_looked_at = of_before(Data::Logged(store));
    assert_eq!(
        refusal(&permit(Mode::Bootstrap), &not_looked_at),
        Refusal::ClientEntries
    );
}

#[test]
fn a_join_needs_both_ids_peers_and_its_own_place() {
    let disk = unborn();
    let grant = ask(&permit(Mode::Join), &disk).expect("a grant");
    assert_eq!(
        grant.unstarted,
        Some((OWN.parse().expect("an ID"), MEMBER.parse().expect("an ID")))
    );
    assert_eq!(grant.first.expect("flags").state, FirstState::Existing);
    assert_eq!(grant.identity.starts, 8, "the counter goes on");
    let check = |change: fn(&mut Permit), wanted: &Refusal| {
        assert_eq!(refusal(&with(Mode::Join, change), &disk), *wanted);
    };
    check(|p| p.cluster_id = None, &Refusal::Missing("clusterID"));
    check(|p| p.member_id = None, &Refusal::Missing("memberID"));
    check(
        |p| p.member_id = Some("x".into()),
        &Refusal::Malformed("memberID", "x".into()),
    );
    check(|p| p.initial_cluster.clear(), &Refusal::Missing("initialCluster"));
    check(
        |p| p.initial_cluster = "orders-0".into(),
        &Refusal::Malformed("initialCluster", "orders-0".into()),
    );
    check(
        |p| p.initial_cluster = "orders-0=http://a:1".into(),
        &Refusal::NoPeers,
    );
    check(
        |p| p.initial_cluster = "orders-9=http://a:1".into(),
        &Refusal::NotInCluster("orders-0".into()),
    );
    assert_eq!(
        refusal(&with(Mode::Bootstrap, |p| p.token.clear()), &disk),
        Refusal::Missing("token")
    );
}

#[test]
fn a_moved_disk_resumes_with_its_own_ids_and_is_known_by_its_new_volume() {
    let grant = ask(&permit(Mode::Resume), &moved()).expect("a grant");
    assert_eq!((grant.first, grant.set_aside), (None, None));
    assert_eq!(grant.identity.fingerprint, moved().fingerprint);
    assert_eq!(grant.identity.starts, 8);
    for change in [
        |p: &mut Permit| p.cluster_id = Some("bad".into()),
        |p: &mut Permit| {
            p.member_id = Some("bad".into());
        },
    ] {
        let refused = refusal(&with(Mode::Resume, change), &moved());
        assert!(matches!(refused, Refusal::OtherIds { .. }), "{refused}");
    }
    let silent = with(Mode::Resume, |p| p.cluster_id = None);
    assert_eq!(refusal(&silent, &moved()), Refusal::Missing("clusterID"));
}

#[test]
fn a_kept_disk_is_adopted_as_it_is() {
    let grant = ask(&permit(Mode::Adopt), &kept()).expect("a grant");
    assert_eq!((grant.first, grant.set_aside), (None, None));
    assert_eq!(grant.identity.cluster_uid, "cluster");
    assert_eq!(grant.identity.member_id.as_deref(), Some(MEMBER));
    let unmarked = DiskView {
        identity: IdentityFile::Absent,
        ..kept()
    };
    assert!(ask(&permit(Mode::Adopt), &unmarked).is_ok());
}

#[test]
fn consent_to_adopt_covers_no_copy_and_nobody_elses_members() {
    let adopt = |disk: &DiskView| refusal(&permit(Mode::Adopt), disk);
    let copy = DiskView {
        fingerprint: moved().fingerprint,
        ..kept()
    };
    assert_eq!(adopt(&copy), Refusal::Copy("wwid".into()));
    let with_identity = |change: fn(&mut Identity)| {
        let mut identity = kept().identity.found().expect("it has one").clone();
        change(&mut identity);
        DiskView {
            identity: IdentityFile::Found(identity),
            ..kept()
        }
    };
    let other_member = with_identity(|identity| identity.member = "orders-1".into());
    assert_eq!(adopt(&other_member), Refusal::OtherMember("orders-1".into()));
    let older = with_identity(|identity| identity.incarnation = 1);
    assert_eq!(
        adopt(&older),
        Refusal::DiskIncarnation {
            permitted: 2,
            found: 1
        }
    );

    let with_members = |change: fn(&mut crate::view::Store)| {
        let mut store = samples::store();
        change(&mut store);
        DiskView {
            data: Data::Logged(store),
            ..kept()
        }
    };
    let clone = with_members(|store| store.members[1].peer_urls = vec![ELSEWHERE.into()]);
    assert_eq!(adopt(&clone), Refusal::StrangePeer(ELSEWHERE.into()));
    let swapped = with_members(|store| {
        let own = std::mem::take(&mut store.members[0].peer_urls);
        store.members[0].peer_urls = std::mem::replace(&mut store.members[1].peer_urls, own);
    });
    assert!(matches!(adopt(&swapped), Refusal::StrangePeer(_)));
    let unlisted = with_members(|store| store.members.clear());
    assert!(matches!(adopt(&unlisted), Refusal::NotListed(_)));
    let torn = with_members(|store| store.head = Err("torn".into()));
    assert_eq!(adopt(&torn), Refusal::NotWhole("torn".into()));
    let nothing = DiskView {
        data: Data::None,
        ..kept()
    };
    assert_eq!(adopt(&nothing), Refusal::NoData);
}

#[test]
fn a_restart_counts_and_learns_and_changes_nothing_else() {
    let head = samples::store().head.expect("a head");
    let now = Fingerprint([(kind::INODE.to_owned(), "7".to_owned())].into());
    let young = Identity {
        cluster_id: None,
        ..samples::identity()
    };
    let wanted = Identity {
        starts: 8,
        fingerprint: samples::fingerprint().with_new_of(&now),
        ..samples::identity()
    };
    assert_eq!(restart(&young, head, &now), wanted);
    assert_eq!(
        judge(&samples::disk(wanted, samples::data()), &samples::expected()).verdict,
        Verdict::Whole
    );
}
