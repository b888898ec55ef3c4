//! What `kubectl get` shows as the reason: of all that stands in the way what a person has to know.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd_types::error::TlsFault;

use super::explanations::{status_after_refusal, status_of};
use super::follow;
use super::scene::{Scene, id, ordinal, waiting};
use crate::desired::Size;
use crate::observed_state::{CallClass, CallFailure, Container, QueryResult, StartDelay, Unschedulable};

/// A cluster whose first pod is there and does not start, and whose others are not there.
fn first() -> Scene {
    let mut scene = Scene::new(3);
    scene.pod(0, "pod-0");
    scene
}

fn shown(scene: &Scene) -> String {
    status_of(scene).reason.unwrap_or_default()
}

const COMING: &str = "Waiting for all 3 members to report an empty disk.";

#[test]
fn what_keeps_a_member_from_starting_is_shown_and_not_what_all_wait_for() {
    let delays = [
        (
            "ImagePullBackOff: no such image",
            "c-1 is not started yet: ImagePullBackOff: no such image; correct spec.repository and spec.version, or name the credentials of the registry in spec.imagePullSecrets.",
        ),
        (
            "CreateContainerConfigError: no such user",
            "c-1 is not started yet: CreateContainerConfigError: no such user.",
        ),
        ("ContainerCreating", COMING),
    ];
    for (why, expected) in delays {
        let mut scene = first();
        scene.pod(1, "pod-1");
        scene.pod_at(1).container = waiting(why);
        assert_eq!(shown(&scene), expected, "{why}");
    }
    let node = "n".to_owned();
    for delay in [StartDelay::NotScheduled, StartDelay::NodePreparing { node }] {
        let mut scene = first();
        scene.pod_at(0).container = Container::Waiting(delay.clone());
        assert_eq!(shown(&scene), COMING, "{delay:?}");
    }
    assert_eq!(shown(&Scene::new(3)), COMING);
    assert_eq!(
        shown(&first()),
        COMING,
        "whoever does not answer yet may do so soon"
    );
    let mut scene = first();
    scene.pod_at(0).unschedulable = Some(Unschedulable::from_scheduler(
        "0/3 nodes are available: 3 Insufficient cpu.",
    ));
    assert_eq!(
        shown(&scene),
        "c-0 finds no node: 0/3 nodes are available: 3 Insufficient cpu."
    );
    let mut scene = first();
    scene.ended(0, 1);
    assert_eq!(shown(&scene), "c-0 has ended with code 1.");
}

#[test]
fn what_the_api_server_refuses_is_shown_while_nobody_can_come_without_it() {
    let quota = vec!["create StatefulSet ns/c: exceeded quota".to_owned()];
    let shown = |scene: &Scene, refused, before| status_after_refusal(scene, refused, before);
    let expected = "The API server refuses what is needed: create StatefulSet ns/c: exceeded quota.";
    let refused = shown(&Scene::new(3), Some(quota.clone()), None);
    assert_eq!(refused.reason.as_deref(), Some(expected));
    let not_asked = shown(&Scene::new(3), None, Some(refused.clone()));
    assert_eq!(not_asked.reason.as_deref(), Some(expected));
    let taken = shown(&Scene::new(3), Some(Vec::new()), Some(refused));
    assert_eq!(taken.reason.as_deref(), Some(COMING));
    let formed = shown(&Scene::formed(3), Some(quota), None);
    assert_eq!(formed.reason.as_deref(), Some("The cluster matches its spec."));
}

#[test]
fn of_members_of_a_cluster_that_has_formed_the_same_is_shown() {
    let mut grows = Scene::formed(3);
    grows.observed.desired.size = Size::saturating_new(5);
    grows.pod(3, "pod-3");
    grows.pod_at(3).unschedulable = Some(Unschedulable::from_scheduler("no room"));
    assert_eq!(shown(&grows), "c-3 finds no node: no room.");
    let mut unhealthy = Scene::formed(3);
    unhealthy.ended(1, 1);
    assert!(
        shown(&unhealthy).starts_with("c-1 has ended with code 1"),
        "{}",
        shown(&unhealthy)
    );
    let mut blocked = Scene::formed(3);
    blocked.waits(1, "p1", &Verdict::Unreadable);
    let said = shown(&blocked);
    assert!(
        said.starts_with("A member waits for a person. c-1 cannot read its volume: "),
        "{said}"
    );
    // What follows from lost data counts for more than how each member found its disk.
    let mut lost = Scene::formed(3);
    lost.unknown();
    for number in 0..3 {
        lost.waits(number, "p", &Verdict::Empty);
    }
    assert!(
        shown(&lost).starts_with("Every member found its disk empty"),
        "{}",
        shown(&lost)
    );
}

#[test]
fn members_that_serve_are_counted_also_where_nobody_can_tell_who_the_members_are() {
    // They have started, and the operator does not get to them before the cluster is recorded.
    let mut unreached = Scene::new(3);
    unreached.set(3, 1);
    for number in 0..3 {
        unreached.waits(number, &format!("p{number}"), &Verdict::Empty);
    }
    follow(&mut unreached);
    for number in 0..3 {
        unreached.runs(number, id(number));
        let fault = CallFailure {
            class: CallClass::Tls(TlsFault::MemberCertificate),
            text: "unknown issuer".to_owned(),
        };
        unreached.at(number).status = QueryResult::NoAnswer(fault);
    }
    let status = status_of(&unreached);
    assert_eq!(
        (
            status.phase.as_str(),
            status.size,
            status.ready_members.as_deref()
        ),
        ("Waiting", 3, Some("3/3"))
    );
    // The status was lost, and the StatefulSet names the voters.
    let mut lost = Scene::formed(3);
    lost.unknown();
    lost.observed.persisted.members.clear();
    let voters = (0..3).map(ordinal).collect();
    lost.observed.set.as_mut().expect("a set").voters = voters;
    lost.silent(2);
    let status = status_of(&lost);
    assert_eq!(
        (
            status.phase.as_str(),
            status.size,
            status.ready_members.as_deref()
        ),
        ("Running", 3, Some("2/3"))
    );
    // Nothing has started.
    assert_eq!(status_of(&first()).size, 0);
}
