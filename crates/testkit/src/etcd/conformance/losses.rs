//! How etcd loses what it acknowledged: a voter that comes back with less than it had, while another one is away.

use std::time::Duration;

use etcd_operator_etcd::flags::FirstState;

use super::Bed;

const KEY: &str = "acknowledged";
/// Enough for a process to open its files and ask its peers.
const WHILE: Duration = Duration::from_secs(3);

/// Three members, the last one away, and a write that the first two have acknowledged; then those two are away.
async fn a_write_on_two_of_three(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    bed.write(0, "before", "value").await;
    bed.kill(2);
    for number in 0..2 {
        bed.serving(number).await;
    }
    bed.write(0, KEY, "value").await;
    assert_eq!(bed.get(1, KEY).await.as_deref(), Some("value"));
    bed.kill(0);
    bed.kill(1);
}

/// What the last two have agreed on without the first.
async fn is_lost(bed: &dyn Bed) {
    bed.serving(1).await;
    bed.serving(2).await;
    for number in 1..3 {
        assert_eq!(bed.get(number, KEY).await, None, "the write is gone");
    }
    bed.write(1, "after", "value").await;
}

pub(super) async fn an_emptied_voter_is_killed_by_a_leader_that_remembers(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    for index in 0..5 {
        bed.write(0, &format!("key-{index}"), "value").await;
    }
    let leader = bed.leader(0).await;
    let emptied = (leader + 1) % 3;
    bed.kill(emptied);
    bed.wipe(emptied);
    bed.start(emptied, Some(bed.first(FirstState::Existing, &[0, 1, 2])));
    assert_eq!(bed.ends(emptied).await, 2);
    assert_eq!(bed.leader(leader).await, leader);
}

pub(super) async fn an_emptied_voter_that_starts_anew_loses_what_it_acknowledged(bed: &dyn Bed) {
    a_write_on_two_of_three(bed).await;
    bed.wipe(1);
    bed.start(1, Some(bed.first(FirstState::New, &[0, 1, 2])));
    // Nobody is there who could tell it that it has been there before.
    tokio::time::sleep(WHILE).await;
    bed.start(2, None);
    is_lost(bed).await;
}

pub(super) async fn an_emptied_voter_that_starts_anew_is_refused_if_a_peer_answers(bed: &dyn Bed) {
    a_write_on_two_of_three(bed).await;
    bed.wipe(1);
    bed.start(2, None);
    tokio::time::sleep(WHILE).await;
    bed.start(1, Some(bed.first(FirstState::New, &[0, 1, 2])));
    assert_eq!(bed.ends(1).await, 1);
    bed.start(0, None);
    bed.serving(2).await;
    assert_eq!(bed.get(2, KEY).await.as_deref(), Some("value"));
}

pub(super) async fn an_emptied_voter_that_joins_again_loses_what_it_acknowledged(bed: &dyn Bed) {
    a_write_on_two_of_three(bed).await;
    bed.wipe(1);
    bed.start(2, None);
    bed.eventually("it joins once somebody answers", || async {
        if bed.exit_code(1).is_some() {
            bed.start(1, Some(bed.first(FirstState::Existing, &[0, 1, 2])));
        }
        bed.known(1).await
    })
    .await;
    is_lost(bed).await;
}

pub(super) async fn a_voter_turned_back_loses_what_it_acknowledged(bed: &dyn Bed) {
    bed.bootstrap(3).await;
    bed.write(0, "before", "value").await;
    bed.kill(2);
    bed.kill(1);
    bed.save(1);
    bed.start(1, None);
    bed.serving(1).await;
    bed.write(0, KEY, "value").await;
    bed.kill(0);
    bed.kill(1);
    bed.restore(1);
    bed.start(1, None);
    bed.start(2, None);
    is_lost(bed).await;
}
