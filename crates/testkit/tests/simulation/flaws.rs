//! Each way of doing things wrong is seen, and by the promise that it breaks.

use std::collections::BTreeSet;

use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use crate::apprentice::Flaw;
use crate::stories::{MINUTE, SECOND, cluster};

/// What an operator with this flaw breaks in a story, and what one without does.
fn broken<F, Fut>(flaw: Flaw, story: F) -> [BTreeSet<Promise>; 2]
where
    F: Fn(Simulation, Flaw) -> Fut,
    Fut: Future<Output = ()>,
{
    let story = &story;
    [flaw, Flaw::None].map(|flaw| {
        run(5, |sim| async move {
            story(sim.clone(), flaw).await;
            let violations = sim.ledger().violations();
            violations
                .into_iter()
                .map(|violation| violation.promise)
                .collect()
        })
    })
}

fn none() -> BTreeSet<Promise> {
    BTreeSet::new()
}

#[test]
fn a_member_removed_while_another_one_is_down_is_seen() {
    let [flawed, fine] = broken(Flaw::RemoveBlindly, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
        let node = sim.pod("c-0").unwrap().node;
        sim.machine().lose(&node);
        tokio::time::sleep(30 * SECOND).await;
        sim.edit("c", |spec| spec["size"] = json!(1));
        tokio::time::sleep(30 * SECOND).await;
    });
    assert_eq!(flawed, BTreeSet::from([Promise::S2]));
    assert_eq!(fine, none());
}

#[test]
fn a_claim_deleted_before_its_member_is_removed_is_seen() {
    let [flawed, fine] = broken(Flaw::DeleteClaimFirst, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
        sim.damage("c-1");
        tokio::time::sleep(MINUTE).await;
    });
    assert_eq!(flawed, BTreeSet::from([Promise::S4]));
    assert_eq!(fine, none());
}

#[test]
fn a_statefulset_that_shrinks_under_its_voters_is_seen() {
    let [flawed, fine] = broken(Flaw::ShrinkFirst, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
        sim.edit("c", |spec| spec["size"] = json!(1));
        tokio::time::sleep(MINUTE).await;
    });
    assert!(flawed.contains(&Promise::S2), "{flawed:?}");
    assert_eq!(fine, none());
}

#[test]
fn a_permit_that_nobody_wrote_down_is_seen() {
    let [flawed, fine] = broken(Flaw::PermitFirst, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
    });
    assert_eq!(flawed, BTreeSet::from([Promise::S3]));
    assert_eq!(fine, none());
}

#[test]
fn all_members_restarted_at_once_are_seen() {
    let [flawed, fine] = broken(Flaw::RestartAll, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
        sim.fake()
            .update_object("apps/v1", "StatefulSet", NAMESPACE, "c", |set| {
                set["metadata"]["annotations"] = json!({"restart": "now"});
            });
        tokio::time::sleep(10 * SECOND).await;
    });
    assert_eq!(flawed, BTreeSet::from([Promise::S2, Promise::OneAtATime]));
    assert_eq!(fine, none());
}

#[test]
fn an_emptied_member_permitted_to_bootstrap_again_is_seen_even_if_nothing_comes_of_it() {
    let [flawed, fine] = broken(Flaw::BootstrapForEver, |sim, flaw| async move {
        cluster(&sim, 3, flaw).await;
        sim.wipe("c-1");
        tokio::time::sleep(30 * SECOND).await;
    });
    assert_eq!(flawed, BTreeSet::from([Promise::S3]));
    assert_eq!(fine, none());
}

#[test]
fn a_lost_write_is_seen_by_reading_it_again() {
    let lost = run(6, |sim| async move {
        cluster(&sim, 1, Flaw::None).await;
        let empty = sim.snapshot("c-0").unwrap();
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(20 * SECOND).await;
        drop(writers);
        sim.revert("c-0", empty);
        tokio::time::sleep(20 * SECOND).await;
        sim.expect("it serves again", MINUTE, |sim| {
            sim.pod("c-0").is_some_and(|pod| pod.is_ready)
        })
        .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.ledger().violations()
    });
    let promises: Vec<Promise> = lost.iter().map(|violation| violation.promise).collect();
    assert!(promises.contains(&Promise::S1), "{lost:?}");
    assert!(
        !promises.contains(&Promise::S3),
        "no start can tell a disk turned back in place: {lost:?}"
    );
}
