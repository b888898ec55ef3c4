//! The stories that were played on real beds, told to the models: what is done to a cluster is the same, and of what
//! follows from it the models know nothing but what they model.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};
use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::simulation::{Fault, NAMESPACE, Simulation, run};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::look_on;
use crate::stories::{claims, cluster, cluster_of};
use crate::{MINUTE, SECOND, operator};

type Story = fn(Simulation) -> BoxFuture<'static, ()>;

/// What beds have played.
pub const PLAYED: [Story; 11] = [
    |sim| scaled(sim).boxed(),
    |sim| slept(sim).boxed(),
    |sim| killed_and_deleted(sim).boxed(),
    |sim| harmed(sim).boxed(),
    |sim| kept(sim, ANNOTATION_ADOPT).boxed(),
    |sim| kept(sim, ANNOTATION_DISCARD).boxed(),
    |sim| with_defaults(sim).boxed(),
    |sim| gone_with_the_cluster(sim).boxed(),
    |sim| drained(sim).boxed(),
    |sim| without_room(sim).boxed(),
    |sim| on_a_lost_node(sim).boxed(),
];

/// What happens on a bed only by chance, when much is asked of its machine.
pub const BY_CHANCE: [Story; 21] = [
    |sim| killed_again_and_again(sim).boxed(),
    |sim| ended_badly(sim, true).boxed(),
    |sim| ended_badly(sim, false).boxed(),
    |sim| stood_still(sim).boxed(),
    |sim| never_had_a_volume(sim).boxed(),
    |sim| taken_out(sim).boxed(),
    |sim| taken_out_unseen(sim).boxed(),
    |sim| forgetful_unseen(sim).boxed(),
    |sim| forgetful_without_its_claim(sim).boxed(),
    |sim| forgetful_and_deleted(sim).boxed(),
    |sim| ended_badly_again(sim).boxed(),
    |sim| gone_at_bad_moments(sim).boxed(),
    |sim| given_up(sim).boxed(),
    |sim| given_up_unheard(sim).boxed(),
    |sim| given_up_unready(sim).boxed(),
    |sim| given_up_and_taken_by_force(sim).boxed(),
    |sim| on_a_lost_node_without_its_claim(sim).boxed(),
    |sim| deleted_as_it_ends_again_and_again(sim).boxed(),
    |sim| deleted_right_after_it_ended(sim).boxed(),
    // The same with other seeds: in one of them the kubelet says once more that etcd is started later.
    |sim| taken_out_unseen(sim).boxed(),
    |sim| taken_out_unseen(sim).boxed(),
];

/// Every move in any of these.
pub fn moves(stories: &[Story]) -> BTreeSet<String> {
    let told = (1..).zip(stories).map(|(seed, story)| {
        run(seed, |sim| async move {
            let moves = look_on(&sim);
            story(sim.clone()).await;
            sim.check();
            moves.lines()
        })
    });
    told.flatten().collect()
}

async fn whole(sim: &Simulation, size: u8) {
    // Whoever is harmed is missed only a moment later.
    tokio::time::sleep(20 * SECOND).await;
    sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", size))
        .await;
}

async fn gone(sim: &Simulation) {
    sim.expect("no pod is left", 2 * MINUTE, |sim| sim.members("c").is_empty())
        .await;
}

fn delete_pod(sim: &Simulation, pod: &str) {
    sim.fake().delete_object("v1", "Pod", NAMESPACE, pod);
}

async fn scaled(sim: Simulation) {
    cluster(&sim, 1).await;
    for size in [3, 5, 3, 1] {
        sim.edit("c", |spec| spec["size"] = json!(size));
        whole(&sim, size).await;
    }
    // Again before it is done with the last.
    for size in [3, 2, 4, 1] {
        sim.edit("c", |spec| spec["size"] = json!(size));
        tokio::time::sleep(2 * SECOND).await;
    }
    whole(&sim, 1).await;
}

async fn slept(sim: Simulation) {
    cluster_of(&sim, 3, "3.5.35").await;
    sim.edit("c", |spec| spec["size"] = json!(0));
    gone(&sim).await;
    sim.edit("c", |spec| spec["size"] = json!(3));
    whole(&sim, 3).await;
}

async fn killed_and_deleted(sim: Simulation) {
    cluster(&sim, 3).await;
    for member in ["c-0", "c-1"] {
        sim.kill(member);
        whole(&sim, 3).await;
    }
    for member in ["c-1", "c-2"] {
        delete_pod(&sim, member);
        whole(&sim, 3).await;
    }
    let is_creating = |sim: &Simulation| {
        let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, "c-2");
        let state = pod.map(|pod| pod["status"]["containerStatuses"][0]["state"].clone());
        state.is_some_and(|state| state["waiting"].is_object())
    };
    // The next one has not even started when it goes, too.
    for tenths in 0..8 {
        delete_pod(&sim, "c-2");
        sim.expect("the next pod is on its way", MINUTE, is_creating)
            .await;
        tokio::time::sleep(SECOND / 10 * tenths).await;
        delete_pod(&sim, "c-2");
        whole(&sim, 3).await;
    }
}

async fn harmed(sim: Simulation) {
    cluster(&sim, 3).await;
    sim.wipe("c-1");
    whole(&sim, 3).await;
    sim.damage("c-2");
    sim.kill("c-2");
    whole(&sim, 3).await;
}

async fn kept(sim: Simulation, consent: &str) {
    cluster(&sim, 3).await;
    sim.delete("c");
    gone(&sim).await;
    sim.create("c", 3, "3.6.16");
    tokio::time::sleep(MINUTE).await;
    sim.annotate("c", consent, &claims(&sim));
    whole(&sim, 3).await;
}

fn create(sim: &Simulation, spec: &Value) {
    operator::install(sim);
    sim.create_with(json!({"metadata": {"name": "c", "namespace": NAMESPACE}, "spec": spec}));
}

async fn with_defaults(sim: Simulation) {
    create(&sim, &json!({"size": 3, "version": "3.6.16"}));
    whole(&sim, 3).await;
    for member in ["c-0", "c-1"] {
        delete_pod(&sim, member);
        whole(&sim, 3).await;
    }
}

async fn gone_with_the_cluster(sim: Simulation) {
    let storage = json!({"size": "1Gi", "retention": "Delete"});
    create(&sim, &json!({"size": 3, "version": "3.6.16", "storage": storage}));
    whole(&sim, 3).await;
    sim.delete("c");
    gone(&sim).await;
    tokio::time::sleep(10 * SECOND).await;
}

async fn drained(sim: Simulation) {
    cluster(&sim, 3).await;
    for member in ["c-0", "c-1", "c-2"] {
        sim.inject("c", &Fault::Evict(member.to_owned()));
        whole(&sim, 3).await;
    }
}

/// Whether no node takes a pod.
fn cordon_all(sim: &Simulation, is_cordoned: bool) {
    for number in 0..5 {
        sim.machine().cordon(&format!("node-{number}"), is_cordoned);
    }
}

async fn without_room(sim: Simulation) {
    cluster(&sim, 3).await;
    cordon_all(&sim, true);
    sim.edit("c", |spec| spec["size"] = json!(5));
    tokio::time::sleep(MINUTE).await;
    cordon_all(&sim, false);
    whole(&sim, 5).await;
}

async fn on_a_lost_node(sim: Simulation) {
    cluster(&sim, 3).await;
    let node = sim.pod("c-1").map(|pod| pod.node).unwrap_or_default();
    sim.machine().lose(&node);
    tokio::time::sleep(6 * MINUTE).await;
    whole(&sim, 3).await;
}

async fn killed_again_and_again(sim: Simulation) {
    cluster(&sim, 3).await;
    for _ in 0..3 {
        sim.kill("c-1");
        whole(&sim, 3).await;
    }
    delete_pod(&sim, "c-1");
    whole(&sim, 3).await;
}

/// Whoever was told to end ends slowly, is killed, or does not listen.
async fn ended_badly(sim: Simulation, has_volumes: bool) {
    let mut spec = json!({"size": 3, "version": "3.6.16"});
    if has_volumes {
        spec["storage"] = json!({"size": "1Gi"});
    }
    create(&sim, &spec);
    whole(&sim, 3).await;
    sim.stop("c-0", true);
    delete_pod(&sim, "c-0");
    tokio::time::sleep(15 * SECOND).await;
    sim.stop("c-0", false);
    whole(&sim, 3).await;
    sim.stop("c-1", true);
    delete_pod(&sim, "c-1");
    tokio::time::sleep(SECOND).await;
    sim.kill("c-1");
    whole(&sim, 3).await;
    sim.stop("c-2", true);
    delete_pod(&sim, "c-2");
    whole(&sim, 3).await;
}

/// The same of one whose container was started again before.
async fn ended_badly_again(sim: Simulation) {
    cluster(&sim, 3).await;
    sim.kill("c-1");
    whole(&sim, 3).await;
    sim.stop("c-1", true);
    delete_pod(&sim, "c-1");
    tokio::time::sleep(SECOND).await;
    sim.kill("c-1");
    whole(&sim, 3).await;
}

/// Members that keep their data in their pods stand still for a while.
async fn stood_still(sim: Simulation) {
    create(&sim, &json!({"size": 3, "version": "3.6.16"}));
    whole(&sim, 3).await;
    for member in ["c-0", "c-1"] {
        sim.stop(member, true);
        tokio::time::sleep(15 * SECOND).await;
        sim.stop(member, false);
        whole(&sim, 3).await;
    }
}

/// Nobody provides what is asked for, and whoever asked gives up.
async fn never_had_a_volume(sim: Simulation) {
    for retention in ["Retain", "Delete"] {
        let storage = json!({"size": "1Gi", "storageClassName": "imaginary", "retention": retention});
        create(&sim, &json!({"size": 3, "version": "3.6.16", "storage": storage}));
        tokio::time::sleep(20 * SECOND).await;
        sim.delete("c");
        gone(&sim).await;
        for number in 0..3 {
            let claim = format!("data-c-{number}");
            sim.fake()
                .delete_object("v1", "PersistentVolumeClaim", NAMESPACE, &claim);
        }
        tokio::time::sleep(10 * SECOND).await;
    }
}

/// Somebody takes members out by hand: etcd ends well, and what starts in its place waits.
async fn taken_out(sim: Simulation) {
    cluster(&sim, 3).await;
    for member in ["c-1", "c-2"] {
        sim.remove_by_hand("c", member).await;
        whole(&sim, 3).await;
    }
}

/// The same while no operator is there, so that containers end again and again until their pods go.
async fn taken_out_unseen(sim: Simulation) {
    cluster(&sim, 3).await;
    for (tenths, member) in [(1, "c-1"), (3, "c-2"), (11, "c-1"), (16, "c-2"), (60, "c-1")] {
        sim.kill_operator();
        sim.remove_by_hand("c", member).await;
        tokio::time::sleep(SECOND / 10 * tenths).await;
        sim.start_operator();
        whole(&sim, 3).await;
    }
}

/// A follower dies of what it has forgotten, while no operator is there. Whom a new leader hears of first gets it back.
async fn forget(sim: &Simulation) -> &'static str {
    let leads = |member: &str| sim.look("c", |cluster| cluster["status"]["leader"] == member);
    let follower = if leads("c-1") == Some(true) { "c-2" } else { "c-1" };
    let old = sim.snapshot(follower).expect("a disk");
    tokio::time::sleep(10 * SECOND).await;
    sim.kill_operator();
    sim.revert(follower, old);
    follower
}

/// It dies for long enough that its container is started ever later.
async fn forgetful_unseen(sim: Simulation) {
    cluster(&sim, 3).await;
    let _writers = sim.write("c", 2, SECOND);
    for tenths in [10, 15, 21, 60, 125, 250, 400] {
        forget(&sim).await;
        tokio::time::sleep(SECOND / 10 * tenths).await;
        sim.start_operator();
        whole(&sim, 3).await;
    }
}

/// The operator has deleted its claim, and is away for a moment before it deletes its pod.
async fn forgetful_without_its_claim(sim: Simulation) {
    cluster(&sim, 3).await;
    let _writers = sim.write("c", 2, SECOND);
    for tenths in [10, 25, 40, 60, 120, 250] {
        forget(&sim).await;
        tokio::time::sleep(SECOND / 10 * tenths).await;
        sim.start_operator();
        sim.crash_operator_around("DeletePod", Side::Before, 20 * SECOND);
        whole(&sim, 3).await;
    }
}

/// Its pod is deleted by hand.
async fn forgetful_and_deleted(sim: Simulation) {
    cluster(&sim, 3).await;
    let _writers = sim.write("c", 2, SECOND);
    for seconds in [2, 5, 12, 14, 16, 18, 25, 45] {
        let member = forget(&sim).await;
        tokio::time::sleep(SECOND * seconds).await;
        delete_pod(&sim, member);
        tokio::time::sleep(5 * SECOND).await;
        sim.start_operator();
        whole(&sim, 3).await;
    }
}

/// Pods go when their containers have just ended, or have just begun.
async fn gone_at_bad_moments(sim: Simulation) {
    cluster(&sim, 3).await;
    for milliseconds in (0..2_000).step_by(100) {
        sim.kill("c-1");
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        sim.kill("c-1");
        tokio::time::sleep(Duration::from_millis(milliseconds / 2)).await;
        delete_pod(&sim, "c-1");
        whole(&sim, 3).await;
    }
    for _ in 0..3 {
        delete_pod(&sim, "c-1");
        sees(&sim, "it begins", |pod| {
            pod["state"]["running"].is_object() && pod["ready"] == false
        })
        .await;
        sim.kill("c-1");
        whole(&sim, 3).await;
    }
    for _ in 0..4 {
        sim.remove_by_hand("c", "c-2").await;
        sees(&sim, "it ends", |pod| pod["state"]["terminated"].is_object()).await;
        delete_pod(&sim, "c-2");
        whole(&sim, 3).await;
    }
    // A member that waits on an empty disk goes as one that waits.
    sim.kill_operator();
    sim.wipe("c-0");
    tokio::time::sleep(5 * SECOND).await;
    delete_pod(&sim, "c-0");
    tokio::time::sleep(5 * SECOND).await;
    sim.start_operator();
    whole(&sim, 3).await;
    // None finds a node while there is no room, though its volume is there.
    cordon_all(&sim, true);
    delete_pod(&sim, "c-1");
    tokio::time::sleep(MINUTE).await;
    cordon_all(&sim, false);
    whole(&sim, 3).await;
}

/// Waits until a kubelet says this of a member's container, and not a moment longer.
async fn sees(sim: &Simulation, what: &str, is_so: fn(&Value) -> bool) {
    let start = tokio::time::Instant::now();
    let is_so = |member: &str| {
        let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, member);
        pod.is_some_and(|pod| is_so(&pod["status"]["containerStatuses"][0]))
    };
    while !(is_so("c-1") || is_so("c-2")) {
        assert!(start.elapsed() < MINUTE, "{what}");
        tokio::time::sleep(SECOND / 100).await;
    }
}

/// Members that a person gives up, while the operator is away for a moment before it deletes their pods.
async fn given_up(sim: Simulation) {
    cluster(&sim, 3).await;
    for tenths in [5, 9, 11, 14, 17, 30, 75, 120, 240] {
        sim.crash_operator_around("DeletePod", Side::Before, SECOND / 10 * tenths);
        sim.inject("c", &Fault::GiveUp("c-1".to_owned()));
        whole(&sim, 3).await;
    }
}

/// Members that a person gives up and that do not hear of it, nor that they are to end.
async fn given_up_unheard(sim: Simulation) {
    cluster(&sim, 3).await;
    for is_killed in [true, false] {
        for other in ["c-0", "c-2"] {
            sim.etcds().cut("c-1", other);
        }
        sim.inject("c", &Fault::GiveUp("c-1".to_owned()));
        let is_going = |sim: &Simulation| {
            let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, "c-1");
            pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
        };
        while !is_going(&sim) {
            tokio::time::sleep(SECOND / 100).await;
        }
        sim.stop("c-1", true);
        if is_killed {
            sim.kill("c-1");
        }
        tokio::time::sleep(8 * SECOND).await;
        sim.stop("c-1", false);
        sim.etcds().mend_all();
        whole(&sim, 3).await;
    }
}

/// A member that a person gives up, and that serves nobody by then.
async fn given_up_unready(sim: Simulation) {
    cluster(&sim, 3).await;
    for other in ["c-0", "c-2"] {
        sim.etcds().cut("c-1", other);
    }
    tokio::time::sleep(20 * SECOND).await;
    sim.inject("c", &Fault::GiveUp("c-1".to_owned()));
    tokio::time::sleep(20 * SECOND).await;
    sim.etcds().mend_all();
    whole(&sim, 3).await;
}

/// A user who gives a member up does not wait for its pod to end.
async fn given_up_and_taken_by_force(sim: Simulation) {
    cluster(&sim, 3).await;
    let pods: Api<Pod> = Api::default_namespaced(sim.fake().client(NAMESPACE));
    sim.inject("c", &Fault::GiveUp("c-2".to_owned()));
    let force = DeleteParams::default().grace_period(0);
    pods.delete("c-2", &force).await.expect("its pod goes");
    whole(&sim, 3).await;
}

/// The operator, which looks at nodes, is away from the moment at which it has deleted the claim of a member whose node is lost.
async fn on_a_lost_node_without_its_claim(sim: Simulation) {
    operator::install_watching_nodes(&sim);
    sim.create("c", 3, "3.6.16");
    whole(&sim, 3).await;
    sim.edit("c", |spec| spec["recovery"] = json!({"replaceAfter": "1m"}));
    let node = sim.pod("c-1").map(|pod| pod.node).unwrap_or_default();
    sim.crash_operator_around("ForceDeletePod", Side::Before, 8 * MINUTE);
    sim.machine().lose(&node);
    tokio::time::sleep(10 * MINUTE).await;
    whole(&sim, 3).await;
}

/// A pod whose container has just ended is deleted: a kubelet that hears late of it starts the container once more.
async fn deleted_right_after_it_ended(sim: Simulation) {
    cluster(&sim, 3).await;
    for _ in 0..8 {
        sim.kill_operator();
        sim.remove_by_hand("c", "c-2").await;
        let has_ended = |sim: &Simulation| {
            let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, "c-2");
            let status = pod.map(|pod| pod["status"]["containerStatuses"][0].clone());
            status.is_some_and(|status| status["state"]["terminated"].is_object())
        };
        sim.until(MINUTE, has_ended).await;
        delete_pod(&sim, "c-2");
        tokio::time::sleep(5 * SECOND).await;
        sim.start_operator();
        whole(&sim, 3).await;
    }
}

/// A pod whose container exits repeatedly while no operator runs is deleted by hand.
async fn deleted_as_it_ends_again_and_again(sim: Simulation) {
    cluster(&sim, 3).await;
    for seconds in [2, 5, 12, 14, 16, 18, 25, 45] {
        sim.kill_operator();
        sim.remove_by_hand("c", "c-2").await;
        tokio::time::sleep(SECOND * seconds).await;
        delete_pod(&sim, "c-2");
        tokio::time::sleep(5 * SECOND).await;
        sim.start_operator();
        whole(&sim, 3).await;
    }
}
