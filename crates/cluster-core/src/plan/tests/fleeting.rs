//! Restores of clusters whose data live with their pods: what goes with them, and when that is decided.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::restore::{asked, fetched, phase, prepared, restore_request, restored, serves, withdraw};
use super::restore_props;
use super::scene::{Scene, waiting};
use super::{follow, plan, planned};
use crate::blocker::{Blocker, BlockerReason};
use crate::build::FetchContainer;
use crate::observed_state::{Fetch, FetchFailure};
use crate::persisted_state::Phase;
use crate::plan::{Reason, Step};

/// A cluster that is asked for a restore, whose new template is there.
fn begun() -> Scene {
    let mut scene = asked(3);
    scene.is_fleeting();
    assert_eq!(follow(&mut scene), "Restoring - -");
    scene
}

fn is_committed(scene: &Scene) -> bool {
    scene
        .observed
        .persisted
        .restore
        .as_ref()
        .expect("a restore")
        .committed
}

#[test]
fn that_the_data_are_given_up_is_written_down_before_the_first_pod_is_deleted() {
    let mut scene = begun();
    assert!(!is_committed(&scene));
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert!(is_committed(&scene));
    scene.unknown();
    assert_eq!(follow(&mut scene), "Restoring - stop pod pod-0");
}

#[test]
fn until_then_it_can_be_withdrawn_and_nothing_was_touched() {
    let mut scene = begun();
    withdraw(&mut scene);
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::RollingBack);
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!(phase(&scene), Phase::RolledBack);
    assert_eq!(follow(&mut scene), "Converged - -");
}

#[test]
fn after_that_there_is_only_forward_from_the_same_backup() {
    let mut scene = begun();
    follow(&mut scene);
    withdraw(&mut scene);
    scene.unknown();
    assert_eq!(follow(&mut scene), "Restoring - stop pod pod-0");
    let layout = plan(&scene.observed).layout.expect("a shape");
    assert_eq!(layout.fetch_container, FetchContainer::Unchanged);
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Committed);
}

#[test]
fn pods_of_before_are_counted_against_the_voters_there_were_and_not_those_there_will_be() {
    let mut scene = asked(3);
    scene.asks_for(5);
    scene.is_fleeting();
    follow(&mut scene);
    follow(&mut scene);
    assert!(is_committed(&scene));
    scene.unknown();
    for number in 0..3 {
        assert_eq!(follow(&mut scene), format!("Restoring - stop pod pod-{number}"));
        scene.pod_at(number).deleting = Some(scene.observed.now);
    }
    scene.at_gone_pod(0);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Stopping, "two of three still decide");
    scene.at_gone_pod(1);
    follow(&mut scene);
    assert_eq!(phase(&scene), Phase::Preparing);
}

#[test]
fn a_pod_that_lost_its_data_later_and_cannot_fetch_is_made_anew_where_the_others_decide() {
    let mut scene = begun();
    follow(&mut scene);
    scene.unknown();
    for number in 0..3 {
        fetched(&mut scene, number, &format!("p{number}"), &prepared(number));
    }
    follow(&mut scene);
    follow(&mut scene);
    follow(&mut scene);
    serves(&mut scene, &[0, 1, 2]);
    let mut compared = restore_request("r");
    compared.compared_cluster = Some(restored().to_string());
    scene.observed.restore = Ok(Some(compared));
    for _ in 0..3 {
        follow(&mut scene);
    }
    assert_eq!(phase(&scene), Phase::Finished);
    withdraw(&mut scene);
    assert_eq!(follow(&mut scene), "Converged - -");

    // Its node was restarted, and its memory is empty.
    let lose = |scene: &mut Scene, number: u16, failure: Option<FetchFailure>| {
        scene.silent(number);
        scene.pod_at(number).container = waiting("PodInitializing");
        scene.pod_at(number).fetch = Some(Fetch {
            failure,
            ..Fetch::default()
        });
    };
    let refused = FetchFailure {
        words: "AccessDenied".to_owned(),
        is_lasting: true,
    };
    lose(&mut scene, 1, None);
    assert!(
        planned(&scene).ends_with(" - -"),
        "it may still find its data: {}",
        planned(&scene)
    );
    lose(&mut scene, 1, Some(refused.clone()));
    assert_eq!(planned(&scene), "Recovering - delete pod new-1");
    lose(&mut scene, 2, Some(refused.clone()));
    assert!(
        planned(&scene).ends_with(" - -"),
        "nobody decides: {}",
        planned(&scene)
    );

    // All of them: until they are made anew none of them can say that its data are gone.
    let later = FetchFailure {
        is_lasting: false,
        ..refused.clone()
    };
    scene.unknown();
    lose(&mut scene, 0, Some(later));
    assert_eq!(planned(&scene), "Recovering - delete pod new-1");
    for number in 1..3 {
        lose(&mut scene, number, None);
    }
    assert!(
        planned(&scene).ends_with(" - -"),
        "they may still find their data"
    );
    lose(&mut scene, 0, Some(refused));
    assert_eq!(planned(&scene), "Recovering - delete pod new-0");
    scene.observed.desired.storage = Scene::new(3).observed.desired.storage;
    assert!(
        planned(&scene).ends_with(" - -"),
        "what is on volumes is not lost"
    );
}

/// All pods of the restore are there, and none can fetch the backup.
fn stuck() -> Scene {
    let mut scene = begun();
    follow(&mut scene);
    scene.unknown();
    for number in 0..3 {
        scene.at_gone_pod(number);
    }
    assert_eq!(follow(&mut scene), "Restoring - -");
    assert_eq!((phase(&scene), is_committed(&scene)), (Phase::Preparing, true));
    for number in 0..3 {
        scene.pod(number, &format!("new-{number}"));
        scene.pod_at(number).container = waiting("PodInitializing");
        scene.pod_at(number).fetch = Some(Fetch {
            failure: Some(FetchFailure {
                words: "NotFound: no such object".to_owned(),
                is_lasting: true,
            }),
            ..Fetch::default()
        });
    }
    scene
}

#[test]
fn a_restore_that_cannot_go_on_and_not_go_back_says_how_to_get_out() {
    let mut scene = stuck();
    for (wish, words) in [
        (
            Some(restore_request("r")),
            "delete the EtcdRestore back and create another one",
        ),
        (None, "create another EtcdRestore"),
    ] {
        scene.observed.is_requester_present = wish.is_some();
        scene.observed.restore = Ok(wish);
        let next = plan(&scene.observed);
        assert_eq!(next.explanation.reason, Reason::Blocked);
        assert!(next.explanation.text.contains(words), "{}", next.explanation.text);
        let reasons: BTreeSet<_> = next.explanation.blockers.iter().map(Blocker::reason).collect();
        assert!(reasons.contains(&BlockerReason::FetchFailed), "{reasons:?}");
    }
}

#[test]
fn another_restore_takes_the_place_of_one_that_cannot_go_on() {
    let mut scene = stuck();
    scene.observed.restore = Ok(Some(restore_request("another")));
    scene.observed.is_stale = true;
    follow(&mut scene);
    let before = scene.observed.persisted.restore.clone().expect("a restore");
    assert_eq!(before.uid, "r", "nobody asks for it any more");

    scene.observed.is_stale = false;
    assert_eq!(follow(&mut scene), "Restoring - -");
    let restore = scene.observed.persisted.restore.clone().expect("a restore");
    assert_eq!(
        (restore.uid.as_str(), restore.phase),
        ("another", Phase::Stopping)
    );
    assert_eq!((restore.incarnation, restore.committed), (3, true));
    assert!(
        restore.revision_bump > before.revision_bump,
        "above all that was seen"
    );
    let layout = plan(&scene.observed).layout.expect("a shape");
    assert!(
        matches!(&layout.fetch_container, FetchContainer::Required(restore_request) if restore_request.uid == "another")
    );
    assert_eq!((layout.incarnation, layout.accepts_clients), (3, false));
    scene.set(3, 3);
    assert_eq!(follow(&mut scene), "Restoring - stop pod new-0");
    // Withdrawn in its turn, it goes on: there is nothing to go back to.
    withdraw(&mut scene);
    follow(&mut scene);
    assert_eq!((phase(&scene), is_committed(&scene)), (Phase::Stopping, true));
}

#[test]
fn what_was_over_long_ago_does_not_begin_again() {
    let mut scene = asked(3);
    scene.is_fleeting();
    scene.observed.is_stale = true;
    for _ in 0..3 {
        assert_eq!(follow(&mut scene), "Converged - -");
    }
    assert_eq!(scene.observed.persisted.restore, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_pod_is_stopped_before_it_is_written_down_that_its_data_go(scene in restore_props::scenes()) {
        let mut scene = scene;
        scene.is_fleeting();
        let before = scene.observed.persisted.restore.clone().expect("a restore");
        let next = plan(&scene.observed);
        if before.phase == Phase::Stopping && !before.committed {
            prop_assert!(!matches!(next.step, Some(Step::DeletePod { .. })), "{:?}", next.step);
        }
    }
}
