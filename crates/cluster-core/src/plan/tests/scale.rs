//! More and fewer members.

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::EXIT_BEFORE_ETCD;
use etcd_operator_etcd_types::membership::Role;

use super::scene::{Scene, id};
use super::{follow, line, plan, planned};
use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::{Container, StartDelay, Unschedulable};

fn replicas(scene: &Scene) -> u16 {
    plan(&scene.observed).layout.expect("a shape").replicas
}

#[test]
fn pods_of_new_members_start_at_once_and_join_one_by_one() {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    assert_eq!(replicas(&scene), 5);
    assert_eq!(planned(&scene), "Waiting - -");
    scene.waits(3, "p3", &Verdict::Empty);
    scene.waits(4, "p4", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
    scene.member(3, id(3), Role::Learner, false);
    assert_eq!(follow(&mut scene), "Scaling Join(3) Join c-3 for p3");
    scene.member(3, id(3), Role::Voter, true);
    scene.runs(3, id(3));
    assert_eq!(follow(&mut scene), "Scaling Join(4) add learner c-4");
}

#[test]
fn a_pod_that_no_node_takes_delays_only_itself() {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    scene.pod(3, "pod-3");
    scene.pod_at(3).unschedulable = Some(Unschedulable::from_scheduler("0/3 nodes are available"));
    scene.waits(4, "p4", &Verdict::Empty);
    assert_eq!(planned(&scene), "Scaling Join(4) add learner c-4");
}

#[test]
fn versions_without_learners_add_voters_only_while_all_are_well() {
    let mut scene = Scene::formed_of(3, "3.3.27");
    scene.asks_for(4);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(planned(&scene), "Scaling Join(3) add voter c-3");
    scene.silent(2);
    assert_eq!(planned(&scene), "Blocked Join(3) -");
}

#[test]
fn a_second_voter_that_only_the_first_one_knows_of_is_started_and_no_other_is() {
    let mut scene = Scene::formed_of(1, "3.3.27");
    scene.asks_for(2);
    scene.waits(1, "p1", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(1) add voter c-1");
    scene.member(1, id(1), Role::Voter, false);
    let listed = scene.known().members.clone();
    scene.unknown();
    assert_eq!(planned(&scene), "Waiting Join(1) -");
    scene.observed.local_membership = listed;
    assert_eq!(planned(&scene), "Scaling Join(1) Join c-1 for p1");
    scene.waits(1, "p1", &Verdict::Damaged);
    assert_eq!(planned(&scene), "Waiting Join(1) -");
}

#[test]
fn the_highest_goes_first_without_its_leadership_and_its_volume_after_its_pod() {
    let mut scene = Scene::formed(5);
    scene.known().leader = Some(id(4));
    scene.asks_for(3);
    assert_eq!(follow(&mut scene), "Scaling Remove(4) move leader from c-4 to 13");
    scene.known().leader = Some(id(0));
    assert_eq!(follow(&mut scene), "Scaling Remove(4) remove c-4 (14)");
    assert_eq!(replicas(&scene), 5);
    scene.left(id(4));
    assert_eq!(replicas(&scene), 4);
    assert_eq!(follow(&mut scene), "Scaling Discard(4) -");
    scene.at_gone_pod(4);
    assert_eq!(follow(&mut scene), "Scaling Discard(4) delete claim claim-4");
    scene.gone(4);
    assert_eq!(follow(&mut scene), "Scaling Remove(3) remove c-3 (13)");
}

#[test]
fn a_healthy_member_does_not_go_while_a_lower_one_is_ill() {
    let mut scene = Scene::formed(5);
    scene.asks_for(3);
    scene.silent(1);
    let blocked = plan(&scene.observed);
    assert_eq!(line(&scene, &blocked), "Blocked - -");
    assert_eq!(
        blocked.explanation.blockers,
        [Blocker::member("c-1", MemberProblem::MustRecoverFirst)]
    );
}

#[test]
fn three_to_one_goes_through_two_and_never_below_quorum() {
    let mut scene = Scene::formed(3);
    scene.asks_for(1);
    assert_eq!(follow(&mut scene), "Scaling Remove(2) remove c-2 (12)");
    scene.left(id(2));
    scene.gone(2);
    assert_eq!(follow(&mut scene), "Scaling Remove(1) remove c-1 (11)");
    scene.silent(0);
    assert_eq!(planned(&scene), "Blocked Remove(1) -");
}

#[test]
fn a_learner_that_is_not_wanted_any_more_goes_again() {
    let mut scene = Scene::formed(3);
    scene.asks_for(4);
    scene.waits(3, "p3", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(3) add learner c-3");
    scene.member(3, id(3), Role::Learner, true);
    scene.runs(3, id(3));
    scene.observed.persisted.pending = None;
    scene.asks_for(3);
    assert_eq!(follow(&mut scene), "Scaling Remove(3) remove c-3 (13)");
}

#[test]
fn an_unstarted_member_at_no_place_of_ours_is_taken_out() {
    let mut scene = Scene::formed(3);
    scene.member(20, id(20), Role::Learner, false);
    let url = "http://elsewhere:2380".parse().expect("a URL");
    scene
        .known()
        .members
        .get_mut(&id(20))
        .expect("the member")
        .peer_urls = vec![url];
    assert_eq!(planned(&scene), "Scaling - remove 24");
}

#[test]
fn a_learner_whose_pod_finds_no_node_gives_way_to_one_that_can_start() {
    let mut scene = Scene::formed(3);
    scene.asks_for(5);
    scene.member(3, id(3), Role::Learner, false);
    scene.pod(3, "pod-3");
    scene.pod_at(3).unschedulable = Some(Unschedulable::from_scheduler("no node"));
    assert_eq!(planned(&scene), "Waiting Join(3) -".replace("Waiting", "Scaling"));
    scene.waits(4, "p4", &Verdict::Empty);
    assert_eq!(planned(&scene), "Scaling Remove(3) remove c-3 (13)");
}

#[test]
fn a_removed_members_disk_is_not_joined_but_thrown_away() {
    let mut scene = Scene::formed(3);
    scene.asks_for(4);
    scene.pod(3, "pod-3");
    // Seen with 3.6.16: one that finds itself removed as it starts may end with 0 or with 1.
    for code in [0, 1, 2] {
        let mut scene = scene.clone();
        scene.ended(3, code);
        assert_eq!(follow(&mut scene), "Scaling Discard(3) delete claim claim-3");
    }
}

#[test]
fn a_disk_on_which_etcd_was_not_started_is_not_thrown_away() {
    let mut scene = Scene::formed(3);
    scene.asks_for(4);
    scene.pod(3, "pod-3");
    // What runs before etcd failed, etcd was killed, or it could not be started at all.
    for code in [i32::from(EXIT_BEFORE_ETCD), 101, 127, 128, 137, 143] {
        let mut scene = scene.clone();
        scene.ended(3, code);
        assert_eq!(follow(&mut scene), "Waiting - -", "{code}");
    }
}

#[test]
fn data_of_a_newer_incarnation_are_not_thrown_away() {
    for (found, expected) in [(0, "Scaling Discard(3) delete claim claim-3"), (2, "Waiting - -")] {
        let mut scene = Scene::formed(3);
        scene.asks_for(4);
        scene.waits(3, "p3", &Verdict::OtherIncarnation { found });
        assert_eq!(follow(&mut scene), expected, "{found}");
    }
}

#[test]
fn sleep_keeps_every_volume_and_waking_starts_those_who_voted() {
    let mut scene = Scene::formed(3);
    scene.left(id(0));
    scene.remember();
    scene.asks_for(0);
    assert_eq!(follow(&mut scene), "Hibernated - -");
    assert_eq!(replicas(&scene), 0);
    scene.unknown();
    scene.set(0, 1);
    scene.asks_for(2);
    assert_eq!(replicas(&scene), 3);
    scene.asks_for(5);
    assert_eq!(replicas(&scene), 3);
}

#[test]
fn nothing_shrinks_while_nobody_knows_the_members() {
    let mut scene = Scene::formed(5);
    scene.asks_for(1);
    scene.unknown();
    assert_eq!(replicas(&scene), 5);
    assert_eq!(planned(&scene), "Waiting - -");
}

#[test]
fn past_a_lower_member_that_finds_no_node_the_highest_stays_in_its_stead() {
    let mut scene = Scene::formed(5);
    scene.asks_for(3);
    scene.silent(1);
    let now = scene.observed.now;
    let overdue_unschedulable = |scene: &mut Scene, seconds| {
        let pod = scene.pod_at(1);
        pod.unschedulable = Some(Unschedulable::from_scheduler(
            "0/3 nodes are available: 3 Insufficient cpu.",
        ));
        pod.unscheduled_since = Some(now - jiff::SignedDuration::from_secs(seconds));
        pod.container = Container::Waiting(StartDelay::NotScheduled);
    };
    overdue_unschedulable(&mut scene, 299);
    assert_eq!(planned(&scene), "Blocked - -");
    overdue_unschedulable(&mut scene, 301);
    assert_eq!(follow(&mut scene), "Scaling Remove(1) remove c-1 (11)");
    scene.left(id(1));
    assert_eq!(follow(&mut scene), "Scaling Discard(1) delete claim claim-1");
    scene.claim_at(1).as_mut().expect("a claim").deleting = Some(Vec::new());
    assert_eq!(follow(&mut scene), "Scaling Discard(1) delete pod pod-1");
    scene.gone(1);
    assert_eq!(follow(&mut scene), "Scaling Remove(4) remove c-4 (14)");
    scene.left(id(4));
    scene.gone(4);
    // Three are asked for, and three there are: c-3 stays until c-1 has come.
    assert_eq!(follow(&mut scene), "Waiting - -");
    scene.pod(1, "pod-new");
    scene.waits(1, "p1", &Verdict::Empty);
    assert_eq!(follow(&mut scene), "Scaling Join(1) add learner c-1");
    scene.member(1, id(7), Role::Voter, true);
    scene.runs(1, id(7));
    assert_eq!(follow(&mut scene), "Scaling Remove(3) remove c-3 (13)");
}

#[test]
fn a_lower_member_that_finds_a_node_before_it_was_taken_out_stays() {
    let mut scene = Scene::formed(5);
    scene.asks_for(3);
    scene.silent(1);
    scene.silent(2);
    let now = scene.observed.now;
    scene.pod_at(1).unscheduled_since = Some(now - jiff::SignedDuration::from_mins(10));
    scene.silent(3);
    assert_eq!(follow(&mut scene), "Blocked Remove(1) -");
    scene.pod_at(1).unscheduled_since = None;
    assert_eq!(follow(&mut scene), "Blocked - -");
}

/// How a lower member became unable to come back.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Node,
    Volume,
}

#[test]
fn a_lower_member_that_cannot_come_back_does_not_stop_a_scale_in() {
    for loss in [Loss::Node, Loss::Volume] {
        let mut scene = Scene::formed(5);
        scene.asks_for(3);
        match loss {
            Loss::Node => {
                scene.silent(1);
                let now = scene.observed.now;
                scene.pod_at(1).node_lost_since = Some(now - jiff::SignedDuration::from_mins(10));
            }
            Loss::Volume => scene.waits(1, "p1", &Verdict::Damaged),
        }
        assert_eq!(
            follow(&mut scene),
            "Recovering Replace(1) remove c-1 (11)",
            "{loss:?}"
        );
        scene.left(id(1));
        assert_eq!(
            follow(&mut scene),
            "Recovering Replace(1) delete claim claim-1",
            "{loss:?}"
        );
        scene.gone(1);
        // No other pod takes its place: the highest member goes all the same.
        assert_eq!(
            follow(&mut scene),
            "Scaling Remove(4) remove c-4 (14)",
            "{loss:?}"
        );
        scene.left(id(4));
        scene.gone(4);
        assert_eq!(scene.known().voters().count(), 3);
    }
}
