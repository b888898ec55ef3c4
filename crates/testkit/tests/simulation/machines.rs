//! The machines by themselves: what Kubernetes does with pods, claims, nodes and budgets, and what a waiting member tells.

use etcd_operator_api::contract::Verdict;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_testkit::etcd::{CallFault, Calls};
use etcd_operator_testkit::machine::Unreported;
use etcd_operator_testkit::simulation::{NAMESPACE, OPERATOR, Simulation, run};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams};
use serde_json::{Value, json};

use crate::apprentice::Flaw;
use crate::objects;
use crate::stories::{MINUTE, SECOND, cluster};

fn pod(sim: &Simulation, name: &str) -> Option<Value> {
    sim.fake().get_object("v1", "Pod", NAMESPACE, name)
}

fn pods(sim: &Simulation) -> Api<Pod> {
    Api::default_namespaced(sim.fake().client(NAMESPACE))
}

fn claim(sim: &Simulation, name: &str) -> Option<Value> {
    sim.fake()
        .get_object("v1", "PersistentVolumeClaim", NAMESPACE, name)
}

fn change_set(sim: &Simulation, change: impl FnOnce(&mut Value)) {
    sim.fake()
        .update_object("apps/v1", "StatefulSet", NAMESPACE, "c", change);
}

/// A StatefulSet whose members wait, because nobody permits anything.
async fn waiting(sim: &Simulation, size: u64) {
    let cluster = sim.create("c", 3, "3.6.16");
    sim.fake().put_object(objects::service(&cluster, true));
    sim.fake().put_object(objects::set(&cluster, size, true));
    sim.expect("all wait", MINUTE, |sim| {
        let pods = sim.fake().list_objects("v1", "Pod", NAMESPACE);
        let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
        pods.len() == usize::try_from(size).unwrap() && pods.iter().all(is_running)
    })
    .await;
}

#[test]
fn a_statefulset_makes_pods_with_claims_and_makes_a_deleted_one_again_on_its_own_disk() {
    run(1, |sim| async move {
        waiting(&sim, 3).await;
        sim.expect("it is counted", MINUTE, |sim| {
            let set = sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
            set.is_some_and(|set| set["status"]["replicas"] == 3 && set["status"]["readyReplicas"] == 0)
        })
        .await;
        let before = (pod(&sim, "c-1").unwrap(), sim.pod("c-1").unwrap());
        assert_eq!(
            before.0["metadata"]["labels"]["apps.kubernetes.io/pod-index"],
            "1"
        );
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-1");
        sim.expect("another pod waits", MINUTE, |sim| {
            sim.pod("c-1")
                .is_some_and(|pod| pod.uid != before.1.uid && pod.disk.is_some())
        })
        .await;
        let after = sim.pod("c-1").unwrap();
        assert_eq!(after.disk, before.1.disk);
        assert_ne!(after.address, before.1.address);
    });
}

#[test]
fn fewer_replicas_take_the_highest_pods_and_leave_their_claims() {
    run(2, |sim| async move {
        waiting(&sim, 3).await;
        change_set(&sim, |set| set["spec"]["replicas"] = json!(1));
        sim.expect("one is left", MINUTE, |sim| sim.members("c") == ["c-0"])
            .await;
        assert!(claim(&sim, "data-c-2").is_some());
    });
}

#[test]
fn a_new_template_restarts_nothing_and_is_for_the_next_pod() {
    run(3, |sim| async move {
        waiting(&sim, 2).await;
        let revision = |sim: &Simulation, name: &str| {
            pod(sim, name).map(|pod| pod["metadata"]["labels"]["controller-revision-hash"].clone())
        };
        let uid = sim.pod("c-0").unwrap().uid;
        let first = revision(&sim, "c-0");
        change_set(&sim, |set| {
            set["spec"]["template"]["metadata"]["annotations"] = json!({"new": "yes"});
        });
        tokio::time::sleep(MINUTE).await;
        assert_eq!(sim.pod("c-0").unwrap().uid, uid);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-0");
        sim.expect("it is new", MINUTE, |sim| {
            let now = revision(sim, "c-0");
            now.is_some() && now != first
        })
        .await;
        let other = revision(&sim, "c-1").unwrap();
        assert_eq!(Some(other), first, "one template makes one revision");
    });
}

#[test]
fn a_claim_goes_after_its_pod_and_no_pod_comes_before_it_is_gone() {
    run(4, |sim| async move {
        waiting(&sim, 1).await;
        let before = sim.pod("c-0").unwrap();
        sim.fake()
            .delete_object("v1", "PersistentVolumeClaim", NAMESPACE, "data-c-0");
        tokio::time::sleep(MINUTE).await;
        assert!(claim(&sim, "data-c-0").unwrap()["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(sim.pod("c-0").unwrap().uid, before.uid);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-0");
        sim.expect("another pod has another disk", MINUTE, |sim| {
            sim.pod("c-0")
                .is_some_and(|pod| pod.disk.is_some() && pod.disk != before.disk)
        })
        .await;
        assert!(
            sim.etcds().content(before.disk.unwrap()).is_none(),
            "the old disk is gone"
        );
    });
}

#[test]
fn a_pod_that_goes_tells_how_it_ended_and_what_others_said_of_it_stays() {
    run(13, |sim| async move {
        waiting(&sim, 1).await;
        let before = sim.pod("c-0").unwrap().uid;
        sim.fake().update_object("v1", "Pod", NAMESPACE, "c-0", |pod| {
            pod["metadata"]["finalizers"] = json!(["accounting.example/seen"]);
            let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": "Billed", "status": "True"}));
        });
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-0");
        tokio::time::sleep(10 * SECOND).await;
        let stored = pod(&sim, "c-0").unwrap();
        assert_eq!(stored["metadata"]["uid"], before.as_str());
        let status = &stored["status"];
        // As the program in it ends that was told to.
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(
            (&status["phase"], &ended["exitCode"]),
            (&json!("Failed"), &json!(70))
        );
        assert!(status["conditions"].to_string().contains("Billed"), "{status}");
    });
}

#[test]
fn a_claim_that_no_pod_on_a_node_uses_goes_at_once_and_a_pod_that_misses_it_gets_another() {
    run(14, |sim| async move {
        sim.machine().set_too_large(NAMESPACE, "c-0", true);
        let cluster = sim.create("c", 1, "3.6.16");
        sim.fake().put_object(objects::set(&cluster, 1, true));
        tokio::time::sleep(10 * SECOND).await;
        let uid = |object: Option<Value>| object.map(|object| object["metadata"]["uid"].clone());
        let (claim_before, pod_before) = (uid(claim(&sim, "data-c-0")), uid(pod(&sim, "c-0")));
        assert!(claim_before.is_some() && pod_before.is_some());
        sim.fake()
            .delete_object("v1", "PersistentVolumeClaim", NAMESPACE, "data-c-0");
        tokio::time::sleep(10 * SECOND).await;
        let after = uid(claim(&sim, "data-c-0"));
        assert!(after.is_some() && after != claim_before, "{after:?}");
        assert_eq!(uid(pod(&sim, "c-0")), pod_before, "the pod is another");
    });
}

#[test]
fn a_process_that_is_stopped_ends_when_it_goes_on_or_is_killed_in_the_end() {
    for (seed, goes_on) in [(15, true), (16, false)] {
        run(seed, |sim| async move {
            cluster(&sim, 1, Flaw::None).await;
            let process = sim.pod("c-0").unwrap().process.unwrap();
            sim.stop("c-0", true);
            sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-0");
            tokio::time::sleep(20 * SECOND).await;
            assert_eq!(sim.etcds().exit(process), None);
            if goes_on {
                sim.etcds().go_on(process);
            }
            tokio::time::sleep(15 * SECOND).await;
            let code = sim.etcds().exit(process).unwrap().code;
            assert_eq!(code, if goes_on { 0 } else { 137 });
        });
    }
}

#[test]
fn a_lost_node_s_pods_are_unready_soon_deleted_later_and_gone_only_by_force() {
    run(5, |sim| async move {
        cluster(&sim, 3, Flaw::None).await;
        sim.kill_operator();
        let lost = sim.pod("c-1").unwrap();
        sim.machine().lose(&lost.node);
        tokio::time::sleep(45 * SECOND).await;
        let stored = pod(&sim, "c-1").unwrap();
        assert!(
            stored["status"]["conditions"]
                .to_string()
                .contains("NodeNotReady")
        );
        tokio::time::sleep(7 * MINUTE).await;
        let stored = pod(&sim, "c-1").unwrap();
        assert!(stored["metadata"]["deletionTimestamp"].is_string(), "{stored}");
        assert_eq!(stored["metadata"]["uid"], lost.uid.as_str());
        let force = DeleteParams::default().grace_period(0);
        pods(&sim).delete("c-1", &force).await.unwrap();
        sim.expect("it runs elsewhere", 2 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert_ne!(sim.pod("c-1").unwrap().node, lost.node);
    });
}

#[test]
fn an_eviction_is_refused_when_the_budget_is_spent() {
    run(6, |sim| async move {
        cluster(&sim, 3, Flaw::None).await;
        sim.expect("the budget is counted", MINUTE, |sim| {
            let budget = sim
                .fake()
                .get_object("policy/v1", "PodDisruptionBudget", NAMESPACE, "c");
            budget.is_some_and(|budget| budget["status"]["disruptionsAllowed"] == 1)
        })
        .await;
        let params = EvictParams::default();
        pods(&sim).evict("c-0", &params).await.unwrap();
        assert!(pods(&sim).evict("c-1", &params).await.is_err());
        sim.expect("it is back", 2 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
    });
}

#[test]
fn a_container_that_keeps_ending_starts_again_after_growing_pauses() {
    run(7, |sim| async move {
        cluster(&sim, 1, Flaw::None).await;
        let disk = sim.pod("c-0").unwrap().disk.unwrap();
        sim.etcds().fill(disk, true);
        sim.kill("c-0");
        tokio::time::sleep(3 * MINUTE).await;
        let status = pod(&sim, "c-0").unwrap()["status"]["containerStatuses"][0].clone();
        let restarts = status["restartCount"].as_u64().unwrap();
        assert!((4..10).contains(&restarts), "{status}");
        assert_eq!(status["state"]["waiting"]["reason"], "CrashLoopBackOff");
        sim.etcds().fill(disk, false);
        sim.expect("it serves again", 6 * MINUTE, |sim| sim.is_whole("c", 1))
            .await;
    });
}

#[test]
fn a_waiting_member_reports_with_a_nonce_that_is_renewed_and_a_process_that_is_new_after_a_restart() {
    run(8, |sim| async move {
        waiting(&sim, 1).await;
        let address = sim.pod("c-0").unwrap().address;
        let report = || sim.machine().report(&address, &[OPERATOR.to_owned()]);
        let first = report().unwrap();
        assert_eq!(
            (first.verdict.clone(), first.expected_incarnation),
            (Verdict::Empty, 1)
        );
        assert_eq!(report().unwrap(), first);
        tokio::time::sleep(61 * SECOND).await;
        let second = report().unwrap();
        assert_eq!(second.process, first.process);
        assert_ne!(second.nonce, first.nonce);
        let node = sim.pod("c-0").unwrap().node;
        sim.machine().lose(&node);
        assert_eq!(report(), Err(Unreported::Unreachable));
        sim.machine().restore(&node);
        sim.expect("it waits again", MINUTE, |_| report().is_ok()).await;
        assert_ne!(report().unwrap().process, first.process);
    });
}

#[test]
fn a_member_that_runs_reports_nothing_and_one_behind_a_cut_cannot_be_asked() {
    run(9, |sim| async move {
        cluster(&sim, 1, Flaw::None).await;
        let address = sim.pod("c-0").unwrap().address;
        let report = || sim.machine().report(&address, &[OPERATOR.to_owned()]);
        assert_eq!(report(), Err(Unreported::NotWaiting));
        sim.etcds().part(OPERATOR, "c-0");
        assert_eq!(report(), Err(Unreported::Unreachable));
    });
}

#[test]
fn a_learner_is_never_behind_the_service_for_clients() {
    run(10, |sim| async move {
        cluster(&sim, 1, Flaw::None).await;
        let wait = CallFault::Refuse(Rejection::LearnerNotReady);
        sim.etcds().fault(Calls::of("MemberPromote"), wait, u32::MAX);
        sim.edit("c", |spec| spec["size"] = json!(2));
        sim.expect("the learner runs", MINUTE, |sim| {
            sim.pod("c-1").is_some_and(|pod| pod.process.is_some())
        })
        .await;
        tokio::time::sleep(MINUTE).await;
        assert_eq!(sim.machine().endpoints(NAMESPACE, "c").len(), 2);
        assert_eq!(sim.machine().endpoints(NAMESPACE, "c-client").len(), 1);
    });
}

#[test]
fn a_pod_that_fits_nowhere_says_so_and_a_claim_of_an_unknown_class_stays_unbound() {
    run(11, |sim| async move {
        sim.machine().set_too_large(NAMESPACE, "c-0", true);
        let cluster = sim.create("c", 3, "3.6.16");
        let mut set = objects::set(&cluster, 2, true);
        set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!("gold");
        sim.fake().put_object(set);
        tokio::time::sleep(10 * SECOND).await;
        let condition = |name: &str| pod(&sim, name).unwrap()["status"]["conditions"][0].clone();
        assert_eq!(condition("c-0")["reason"], "Unschedulable");
        assert!(condition("c-1")["message"].as_str().unwrap().contains("unbound"));
        assert!(claim(&sim, "data-c-1").unwrap()["spec"]["volumeName"].is_null());
        sim.machine().set_class("gold", true);
        sim.expect("the other one runs", MINUTE, |sim| sim.pod("c-1").is_some())
            .await;
        assert!(sim.pod("c-0").is_none());
    });
}
