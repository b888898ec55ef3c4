//! Starting: together, again, alone, and where it fails.

use std::time::Duration;

use etcd_operator_etcd::error::Class;
use etcd_operator_etcd::flags::FirstState;
use etcd_operator_etcd::membership::{Membership, Unknown};

use tokio::time::Instant;

use super::Bed;

pub(super) async fn members_that_start_together_read_the_same(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    let first = bed.serving(0).await;
    assert_eq!(
        (first.voters().count(), first.learners().count(), first.quorum()),
        (3, 0, 2)
    );
    for number in 0..3 {
        let known = bed.serving(number).await;
        assert_eq!((known.cluster, &known.members), (first.cluster, &first.members));
        let reader = known.at(&bed.peer_url(number)).expect("it is a member");
        assert_eq!(known.reader, reader.id);
        assert_eq!(reader.name, Some(<dyn Bed>::name(number)));
        assert_eq!(reader.client_urls, [bed.client_url(number)]);
        assert_eq!(known.version, bed.version());
        assert!(known.raft_index.0 > 0 && known.term.0 > 0);
    }
    bed.write(1, "key", "value").await;
    for number in 0..3 {
        assert_eq!(bed.get(number, "key").await.as_deref(), Some("value"));
    }
}

pub(super) async fn ids_come_from_addresses_and_token(bed: &dyn Bed) {
    let mut seen = Vec::new();
    for _ in 0..2 {
        bed.bootstrap(2).await;
        let known = bed.serving(0).await;
        let ids: Vec<_> = known.members.keys().copied().collect();
        seen.push((known.cluster, ids));
        for number in 0..2 {
            bed.kill(number);
            bed.wipe(number);
        }
    }
    assert_eq!(seen[0], seen[1]);
}

pub(super) async fn a_survivor_that_restarts_alone_answers_nobody(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    let known = bed.serving(0).await;
    bed.kill(1);
    bed.kill(2);
    let port = bed.dial(0).await.expect("it still listens");
    let status = port.status().await.expect("it has not been restarted");
    assert_eq!(status.position.member, known.reader);
    match port.membership().await {
        Membership::Unknown(Unknown::Failed(error)) => {
            assert_eq!(
                (error.call, error.class()),
                ("Range", Class::Transient),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    bed.kill(0);
    bed.start(0, None);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(8) {
        let asked = async { bed.dial(0).await?.status().await };
        assert_eq!(
            asked.await.expect_err("nobody agrees to its name").class(),
            Class::Transient
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(bed.exit_code(0), None);
    bed.start(1, None);
    assert_eq!(bed.serving(0).await.members, known.members);
}

pub(super) async fn a_join_with_another_list_of_members_fails(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
    assert_eq!(bed.ends(1).await, 1, "it was never added");
    assert_eq!(bed.serving(0).await.members.len(), 1);
}

pub(super) async fn a_join_that_reaches_nobody_fails_and_can_be_tried_again(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    bed.settle().await;
    let port = bed.dial(0).await.expect("it serves");
    let url = [bed.peer_url(1)];
    let added = bed.patiently("a voter is added", || port.add_voter(&url)).await;
    bed.kill(0);
    bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
    assert_eq!(bed.ends(1).await, 1);
    bed.start(0, None);
    bed.eventually("it joins once somebody answers", || async {
        if bed.exit_code(1).is_some() {
            bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1])));
        }
        bed.known(1).await
    })
    .await;
    assert_eq!(bed.serving(1).await.reader, added.member.id);
}
