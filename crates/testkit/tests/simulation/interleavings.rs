//! The interleavings for which the rules about permits were made: with the naive rule they lose what they lose, with the
//! small operator that follows the rule they do not. So the simulator is known to see them.

use etcd_operator_etcd::flags::{First, FirstState};
use etcd_operator_etcd::policy::newest;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::version::Minor;
use etcd_operator_testkit::etcd::conformance::{Bed as _, ModelBed};
use etcd_operator_testkit::etcd::{CallFault, Calls, FindingKind};
use etcd_operator_testkit::ledger::{Promise, Violation};
use etcd_operator_testkit::simulation::{NAMESPACE, OPERATOR, Simulation, run};
use serde_json::json;

use crate::apprentice::{Apprentice, Flaw};
use crate::stories::{MINUTE, SECOND, cluster};

fn has(violations: &[Violation], promise: Promise) -> bool {
    violations.iter().any(|violation| violation.promise == promise)
}

/// Two of three have started, a write is acknowledged by both, one of them loses its disk and asks again while the other
/// is away, and the third comes late.
async fn a_second_permit_to_bootstrap(sim: &Simulation, flaw: Flaw) {
    sim.operate(move |seat| async move { Apprentice::run(seat, "c", flaw, true).await });
    sim.create("c", 3, "3.6.16");
    // Nobody reads who the members are before the harm is done.
    let blind = Calls {
        caller: Some(OPERATOR.to_owned()),
        ..Calls::of("Connect")
    };
    sim.etcds().fault(blind, CallFault::LoseRequest, u32::MAX);
    sim.expect("there are pods", MINUTE, |sim| sim.pod("c-2").is_some())
        .await;
    let late = sim.pod("c-2").unwrap().node;
    sim.machine().set_lateness(&late, 50 * SECOND, 50 * SECOND);
    sim.expect("two of three serve", MINUTE, |sim| sim.voters("c") == (2, 3))
        .await;
    let writers = sim.write("c", 4, SECOND);
    tokio::time::sleep(20 * SECOND).await;
    drop(writers);
    assert!(sim.ledger().acknowledged() > 10);

    let node = sim.pod("c-1").unwrap().node;
    sim.machine().lose(&node);
    sim.wipe("c-0");
    tokio::time::sleep(2 * MINUTE).await;
    sim.machine().restore(&node);
    sim.etcds().clear_faults();
    tokio::time::sleep(2 * MINUTE).await;
    sim.ledger().verify(NAMESPACE, "c").await;
}

#[test]
fn b1_a_second_permit_to_bootstrap_loses_a_write() {
    let lost = run(1, |sim| async move {
        a_second_permit_to_bootstrap(&sim, Flaw::BootstrapAgain).await;
        sim.ledger().violations()
    });
    assert!(has(&lost, Promise::S1) && has(&lost, Promise::S3), "{lost:?}");
    run(1, |sim| async move {
        a_second_permit_to_bootstrap(&sim, Flaw::None).await;
        sim.check();
    });
}

/// A volume made from a snapshot comes back with the index that was last seen, though more was acknowledged since.
async fn a_volume_from_a_snapshot(sim: &Simulation, flaw: Flaw) {
    cluster(sim, 3, flaw).await;
    let writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(20 * SECOND).await;
    drop(writers);
    tokio::time::sleep(5 * SECOND).await;
    let snapshot = sim.snapshot("c-1").unwrap();
    let gate = sim.gate().unwrap();
    gate.stop();
    let away = sim.pod("c-2").unwrap().node;
    sim.machine().lose(&away);
    let writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(30 * SECOND).await;
    drop(writers);

    let node = sim.pod("c-0").unwrap().node;
    sim.machine().lose(&node);
    sim.exchange("c-1", snapshot);
    sim.machine().restore(&away);
    gate.go_on();
    tokio::time::sleep(MINUTE).await;
    sim.machine().restore(&node);
    tokio::time::sleep(3 * MINUTE).await;
    sim.ledger().verify(NAMESPACE, "c").await;
}

#[test]
fn b2_a_volume_from_a_snapshot_that_resumes_by_its_index_loses_a_write() {
    let lost = run(2, |sim| async move {
        a_volume_from_a_snapshot(&sim, Flaw::ResumeByIndex).await;
        sim.ledger().violations()
    });
    assert!(has(&lost, Promise::S1) && has(&lost, Promise::S3), "{lost:?}");
    run(2, |sim| async move {
        a_volume_from_a_snapshot(&sim, Flaw::None).await;
        sim.expect("it is replaced", 2 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

/// Two of three have swapped a restored directory in and serve; one of them loses its disk, prepares again, and is
/// swapped in a second time under its old ID while the other is away.
#[tokio::test(start_paused = true)]
async fn b10_a_second_swap_loses_a_write() {
    let bed = ModelBed::new(newest(Minor::V3_6), 3);
    let members = (0..3).map(|number| (format!("c-{number}"), bed.peer_url(number)));
    // A restored directory is a new cluster under a token of its own, the same each time it is made.
    let restored = First {
        state: FirstState::New,
        token: "restore-1".to_owned(),
        members: members.collect(),
    };
    for number in [0, 1] {
        bed.start(number, Some(restored.clone()));
    }
    tokio::time::sleep(5 * SECOND).await;
    assert!(bed.put(0, "key", "value").await);
    assert_eq!(bed.get(1, "key").await.as_deref(), Some("value"));
    for number in [0, 1] {
        bed.kill(number);
    }
    bed.wipe(0);
    for number in [0, 2] {
        bed.start(number, Some(restored.clone()));
    }
    tokio::time::sleep(10 * SECOND).await;
    assert!(bed.put(2, "other", "value").await);
    assert_eq!(bed.get(2, "key").await, None);
    let kinds: Vec<FindingKind> = bed.etcds.findings().iter().map(|finding| finding.kind).collect();
    assert!(
        kinds.contains(&FindingKind::Amnesia) && kinds.contains(&FindingKind::Forked),
        "{kinds:?}"
    );
}

/// One voter and a learner that has caught up; the learner's node dies, and then somebody gives it a vote.
async fn a_vote_for_one_that_is_gone(sim: &Simulation, flaw: Flaw) {
    cluster(sim, 1, flaw).await;
    let wait = || CallFault::Refuse(Rejection::LearnerNotReady);
    sim.etcds().fault(Calls::of("MemberPromote"), wait(), u32::MAX);
    sim.edit("c", |spec| spec["size"] = json!(2));
    sim.expect("the learner runs", 2 * MINUTE, |sim| {
        sim.pod("c-1").is_some_and(|pod| pod.process.is_some())
    })
    .await;
    tokio::time::sleep(10 * SECOND).await;
    let node = sim.pod("c-1").unwrap().node;
    sim.machine().lose(&node);
    tokio::time::sleep(20 * SECOND).await;
    sim.etcds().clear_faults();
    tokio::time::sleep(MINUTE).await;
}

#[test]
fn b17_a_vote_for_a_learner_that_is_gone_takes_the_quorum() {
    run(4, |sim| async move {
        a_vote_for_one_that_is_gone(&sim, Flaw::PromoteUnseen).await;
        let violations = sim.ledger().violations();
        assert!(has(&violations, Promise::S2), "{violations:?}");
        assert_eq!(sim.voters("c"), (0, 2), "the one that is left has no quorum");
        assert!(!sim.ledger().verify(NAMESPACE, "c").await);
    });
    run(4, |sim| async move {
        a_vote_for_one_that_is_gone(&sim, Flaw::None).await;
        assert_eq!(sim.voters("c"), (1, 1));
        sim.check();
    });
}
