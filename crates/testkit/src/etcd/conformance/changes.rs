//! Changing who the members are: what is refused until when, and what becomes of those that leave.

use std::time::Duration;

use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::flags::FirstState;
use etcd_operator_etcd::membership::{Membership, Role, Unknown};
use etcd_operator_etcd::policy::connected_to_add;
use etcd_operator_etcd::rejection::Rejection;
use tokio::time::Instant;

use super::Bed;

fn rejection<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Rejection {
    match outcome {
        Err(error) => error.rejection().cloned().unwrap_or_else(|| panic!("{error}")),
        Ok(done) => panic!("not refused: {done:?}"),
    }
}

pub(super) async fn a_learner_is_promoted_once_it_is_in_sync(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    let port = bed.dial(0).await.expect("it serves");
    let url = [bed.peer_url(1)];
    let added = bed
        .patiently("a learner is added", || port.add_learner(&url))
        .await;
    let id = added.member.id;
    assert_eq!(
        (added.member.role, added.member.has_started()),
        (Role::Learner, false)
    );
    assert_eq!(
        rejection(port.add_learner(&[bed.peer_url(2)]).await),
        Rejection::TooManyLearners
    );
    assert_eq!(rejection(port.promote(id).await), Rejection::LearnerNotReady);
    let own = bed.serving(0).await.reader;
    assert_eq!(rejection(port.promote(own).await), Rejection::NotALearner);

    bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
    let learner = bed
        .patiently("the learner says how it is", || async {
            let learner = bed.dial(1).await?;
            learner.status().await.map(|_| learner)
        })
        .await;
    assert!(learner.status().await.expect("it answered before").is_learner);
    assert_eq!(rejection(learner.position().await), Rejection::NotForLearners);
    assert!(matches!(
        learner.membership().await,
        Membership::Unknown(Unknown::ReaderIsLearner(_))
    ));
    let members = bed.patiently("it is promoted", || port.promote(id)).await;
    assert_eq!(members[&id].role, Role::Voter);
    let known = bed.serving(1).await;
    assert_eq!((known.reader, known.quorum()), (id, 2));
}

pub(super) async fn right_after_a_join_another_member_has_to_wait(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    let port = bed.dial(0).await.expect("it serves");
    let url = [bed.peer_url(1)];
    let added = bed
        .patiently("a learner is added", || port.add_learner(&url))
        .await;
    bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
    bed.patiently("it is promoted", || port.promote(added.member.id))
        .await;
    let promoted = Instant::now();
    let another = [bed.peer_url(2)];
    assert_eq!(rejection(port.add_learner(&another).await), Rejection::Unhealthy);
    bed.patiently("the next is added", || port.add_learner(&another))
        .await;
    let waited = promoted.elapsed();
    assert!(waited > Duration::from_secs(2), "{waited:?}");
}

pub(super) async fn a_voter_that_is_down_can_be_removed_and_a_healthy_one_not(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    bed.settle().await;
    let leader = bed.leader(0).await;
    let (down, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let (lost, healthy) = (bed.id(leader, down).await, bed.id(leader, other).await);
    bed.kill(down);
    let port = bed.dial(leader).await.expect("it serves");
    // For a moment it does not know yet that one is gone.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rejection(port.remove(healthy).await), Rejection::Unhealthy);
    if connected_to_add(&bed.version(), 3) > 2 {
        assert_eq!(
            rejection(port.add_voter(&[bed.peer_url(8)]).await),
            Rejection::Unhealthy
        );
    }
    bed.patiently("the lost one is removed", || port.remove(lost))
        .await;
    let known = bed.serving(leader).await;
    assert_eq!((known.members.len(), known.quorum()), (2, 2));
    assert!(!known.members.contains_key(&lost));
    assert_eq!(rejection(port.remove(lost).await), Rejection::MemberNotFound);
}

pub(super) async fn the_last_voter_stays(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    let known = bed.serving(0).await;
    let port = bed.dial(0).await.expect("it serves");
    assert_eq!(
        rejection(port.remove(known.reader).await),
        Rejection::NotEnoughStarted
    );
}

pub(super) async fn a_removed_member_ends_well_and_ends_again(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    bed.settle().await;
    let leader = bed.leader(0).await;
    let leaving = (leader + 1) % 3;
    let id = bed.id(leader, leaving).await;
    let port = bed.dial(leader).await.expect("it serves");
    bed.patiently("it is removed", || port.remove(id)).await;
    assert_eq!(bed.ends(leaving).await, 0);
    bed.start(leaving, None);
    // Sometimes it trips over its own listener while it stops.
    let code = bed.ends(leaving).await;
    assert!([0, 1].contains(&code), "{code}");
    assert_eq!(bed.serving(leader).await.members.len(), 2);
}

pub(super) async fn a_member_is_replaced_in_place(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    bed.write(0, "key", "value").await;
    let leader = bed.leader(0).await;
    let lost = (leader + 1) % 3;
    let id = bed.id(leader, lost).await;
    bed.kill(lost);
    bed.wipe(lost);
    let port = bed.dial(leader).await.expect("it serves");
    bed.patiently("it is removed", || port.remove(id)).await;
    let url = [bed.peer_url(lost)];
    let added = bed
        .patiently("a learner is added", || port.add_learner(&url))
        .await;
    assert_ne!(added.member.id, id);
    bed.start(lost, Some(bed.first(FirstState::Existing, &[0, 1, 2])));
    bed.patiently("it is promoted", || port.promote(added.member.id))
        .await;
    let known = bed.serving(lost).await;
    assert_eq!((known.reader, known.quorum()), (added.member.id, 2));
    assert_eq!(bed.get(lost, "key").await.as_deref(), Some("value"));
}

pub(super) async fn a_stranger_at_the_address_of_a_learner_becomes_that_learner(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    let port = bed.dial(0).await.expect("it serves");
    let url = [bed.peer_url(1)];
    let first = bed
        .patiently("a learner is added", || port.add_learner(&url))
        .await;
    bed.patiently("it is removed", || port.remove(first.member.id))
        .await;
    // An ID is made from the second, too.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = bed
        .patiently("another one is added", || port.add_learner(&url))
        .await;
    assert_ne!(first.member.id, second.member.id);
    // What was told for the first one starts as the second.
    bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
    let status = bed
        .patiently("it says who it is", || async {
            bed.dial(1).await?.status().await
        })
        .await;
    assert_eq!(status.position.member, second.member.id);
}
