//! Changes of the spec on their way to running members, while clients write.

use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_testkit::fake::{Call, Fault, Mark, Matching, Verb};
use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::machine::MISREADING_REPOSITORY;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::{Value, json};

use super::{cluster, status};
use crate::{MINUTE, SECOND};

pub const PODS: [&str; 3] = ["c-0", "c-1", "c-2"];

fn pod(sim: &Simulation, name: &str) -> Value {
    let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, name);
    pod.unwrap_or_default()
}

pub fn uids(sim: &Simulation) -> Vec<String> {
    let uid = |name: &&str| pod(sim, name)["metadata"]["uid"].to_string();
    PODS.iter().map(uid).collect()
}

pub fn change(sim: &Simulation, value: &str) {
    sim.edit("c", |spec| {
        spec["pod"]["etcdEnv"] = json!([{"name": "CHANGE", "value": value}]);
    });
}

fn has_change(sim: &Simulation, name: &str, value: &str) -> bool {
    let env = pod(sim, name)["spec"]["containers"][0]["env"].clone();
    let mut env = env.as_array().into_iter().flatten();
    env.any(|variable| variable["name"] == "CHANGE" && variable["value"] == value)
}

pub fn condition(sim: &Simulation, type_: &str) -> (String, String) {
    let conditions = status(sim)["conditions"].clone();
    let mut conditions = conditions.as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == type_);
    let text = |field: &str| {
        found
            .and_then(|found| found[field].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    (text("status"), text("reason"))
}

pub async fn is_rolled_out(sim: &Simulation, size: u8, value: &str) {
    sim.expect("every member runs the change", 10 * MINUTE, |sim| {
        let mut pods = PODS.iter().take(size.into());
        sim.is_whole("c", size)
            && pods.all(|name| has_change(sim, name, value))
            && condition(sim, "RolledOut").0 == "True"
    })
    .await;
}

pub async fn ends_well(sim: &Simulation) {
    assert!(sim.ledger().verify(NAMESPACE, "c").await);
    sim.check();
}

#[test]
fn a_change_reaches_every_member_of_every_size_with_its_volume_kept() {
    for size in [1, 2, 3] {
        run(1, |sim| async move {
            cluster(&sim, size).await;
            let _writers = sim.write("c", 2, SECOND);
            let claims = super::claims(&sim);
            change(&sim, "1");
            is_rolled_out(&sim, size, "1").await;
            assert_eq!(super::claims(&sim), claims, "{size}");
            let rollout = status(&sim)["rollout"].clone();
            assert_eq!(
                (&rollout["target"], &rollout["current"]),
                (&json!("3.6.16"), &Value::Null)
            );
            assert_eq!(status(&sim)["updatedMembers"], json!(format!("{size}/{size}")));
            let before = uids(&sim);
            tokio::time::sleep(5 * MINUTE).await;
            assert_eq!(uids(&sim), before, "nobody is restarted twice");
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_operator_that_dies_at_any_call_of_a_rollout_goes_on_with_it() {
    for (seed, (call, side)) in ["WriteStatus", "EvictPod", "MoveLeader"]
        .into_iter()
        .flat_map(|call| [(call, Side::Before), (call, Side::After)])
        .enumerate()
    {
        run(10 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            change(&sim, "1");
            sim.crash_operator_around(call, side, 20 * SECOND);
            is_rolled_out(&sim, 3, "1").await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_bad_image_stops_at_the_first_member_and_its_correction_goes_on() {
    run(20, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let claims = super::claims(&sim);
        sim.edit("c", |spec| spec["repository"] = json!(MISREADING_REPOSITORY));
        sim.expect("it stalls", 15 * MINUTE, |sim| {
            condition(sim, "Stalled").0 == "True"
        })
        .await;
        let is_bad = |name: &&&str| {
            let image = pod(&sim, name)["spec"]["containers"][0]["image"].clone();
            image
                .as_str()
                .is_some_and(|image| image.starts_with(MISREADING_REPOSITORY))
        };
        assert_eq!(PODS.iter().filter(is_bad).count(), 1, "the others are untouched");
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("repository");
        });
        change(&sim, "1");
        is_rolled_out(&sim, 3, "1").await;
        assert_eq!(super::claims(&sim), claims, "a bad image costs no volume");
        ends_well(&sim).await;
    });
}

#[test]
fn a_bad_image_of_a_single_member_is_corrected() {
    run(21, |sim| async move {
        cluster(&sim, 1).await;
        let claims = super::claims(&sim);
        sim.edit("c", |spec| spec["repository"] = json!(MISREADING_REPOSITORY));
        sim.expect("it does not serve", 5 * MINUTE, |sim| !sim.is_whole("c", 1))
            .await;
        tokio::time::sleep(2 * MINUTE).await;
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("repository");
        });
        sim.expect("it serves again", 10 * MINUTE, |sim| sim.is_whole("c", 1))
            .await;
        assert_eq!(super::claims(&sim), claims);
        ends_well(&sim).await;
    });
}

/// What is said of why nothing gets on.
pub fn blockers(sim: &Simulation) -> Vec<Value> {
    let plan = status(sim)["plan"].clone();
    let blockers = plan["blockers"].as_array().into_iter().flatten();
    blockers.map(|blocker| blocker["reason"].clone()).collect()
}

#[test]
fn a_request_restarts_every_member_once() {
    run(22, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let before = uids(&sim);
        sim.annotate("c", ANNOTATION_RESTART, "today");
        sim.expect("the request is told", MINUTE, |sim| {
            status(sim)["rollout"]["restart"] == "today"
        })
        .await;
        assert_eq!(
            condition(&sim, "RolledOut").0,
            "False",
            "who waits for the request and then for this waits for every member"
        );
        sim.expect("every pod is another one", 10 * MINUTE, |sim| {
            let now = uids(sim);
            sim.is_whole("c", 3) && now.iter().zip(&before).all(|(now, before)| now != before)
        })
        .await;
        let restarted = uids(&sim);
        sim.fake().update_object(
            "etcd.database.coreos.com/v1beta2",
            "EtcdCluster",
            NAMESPACE,
            "c",
            |cluster| {
                cluster["metadata"]["annotations"]
                    .as_object_mut()
                    .unwrap()
                    .remove(ANNOTATION_RESTART);
            },
        );
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(uids(&sim), restarted, "taking the request away restarts nobody");
        assert_eq!(status(&sim)["rollout"]["restart"], "today");
        ends_well(&sim).await;
    });
}

#[test]
fn a_member_that_loses_its_data_in_the_middle_is_replaced_with_the_changed_template() {
    run(23, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        change(&sim, "1");
        sim.expect("the first one is restarted", 5 * MINUTE, |sim| {
            PODS.iter().any(|name| has_change(sim, name, "1"))
        })
        .await;
        sim.ledger().forgive_losses();
        sim.wipe("c-0");
        is_rolled_out(&sim, 3, "1").await;
        ends_well(&sim).await;
    });
}

#[test]
fn a_cluster_grows_and_is_edited_again_in_the_middle_of_a_rollout() {
    run(24, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        change(&sim, "1");
        sim.expect("the first one is restarted", 5 * MINUTE, |sim| {
            PODS.iter().any(|name| has_change(sim, name, "1"))
        })
        .await;
        sim.edit("c", |spec| spec["size"] = json!(5));
        change(&sim, "2");
        sim.expect("five run the last change", 15 * MINUTE, |sim| {
            sim.is_whole("c", 5) && PODS.iter().all(|name| has_change(sim, name, "2"))
        })
        .await;
        ends_well(&sim).await;
    });
}

#[test]
fn members_that_keep_their_data_in_their_pods_are_replaced_beside_one_more() {
    for size in [1, 2, 3] {
        run(25, |sim| async move {
            super::cluster_with(&sim, size, json!({"storage": {"medium": "EmptyDir"}})).await;
            let _writers = sim.write("c", 2, SECOND);
            change(&sim, "1");
            sim.expect("one more joins first", 5 * MINUTE, |sim| {
                usize::from(size) + 1 == sim.voters("c").1
            })
            .await;
            is_rolled_out(&sim, size, "1").await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_bad_image_replaces_no_member_that_keeps_its_data_in_its_pod() {
    run(26, |sim| async move {
        super::cluster_with(&sim, 3, json!({"storage": {"medium": "EmptyDir"}})).await;
        let _writers = sim.write("c", 2, SECOND);
        let before = uids(&sim);
        sim.edit("c", |spec| spec["repository"] = json!(MISREADING_REPOSITORY));
        sim.expect("it stalls", 15 * MINUTE, |sim| {
            condition(sim, "RolledOut").1 == "Stalled"
        })
        .await;
        assert_eq!(uids(&sim), before);
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("repository");
        });
        change(&sim, "1");
        is_rolled_out(&sim, 3, "1").await;
        ends_well(&sim).await;
    });
}

#[test]
fn two_members_without_learners_keep_their_data_and_their_pods() {
    run(27, |sim| async move {
        let spec = json!({"storage": {"medium": "EmptyDir"}, "version": "3.3.27"});
        super::cluster_with(&sim, 2, spec).await;
        let before = pod(&sim, "c-0")["metadata"]["uid"].clone();
        change(&sim, "1");
        sim.expect("it is told", 2 * MINUTE, |sim| {
            condition(sim, "RolledOut") == ("False".to_owned(), "Blocked".to_owned())
        })
        .await;
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(pod(&sim, "c-0")["metadata"]["uid"], before);
        ends_well(&sim).await;
    });
}

#[test]
fn two_budgets_on_one_pod_block_the_rollout_by_name_until_one_is_deleted() {
    run(25, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        sim.fake().put_object(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "of-the-user", "namespace": NAMESPACE},
            "spec": {"maxUnavailable": 1, "selector": {"matchExpressions": [
                {"key": "etcd_cluster", "operator": "In", "values": ["c"]},
            ]}},
        }));
        change(&sim, "1");
        sim.expect("it is blocked", 5 * MINUTE, |sim| {
            condition(sim, "RolledOut") == ("False".to_owned(), "Blocked".to_owned())
        })
        .await;
        let refused = status(&sim)["plan"]["refusedStep"]["message"].clone();
        let is_told = |pod: &&str| {
            let told = format!(
                "evict Pod {NAMESPACE}/{pod}: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support. The PodDisruptionBudgets c, of-the-user apply to the pod, and only one may"
            );
            refused == told
        };
        assert!(PODS.iter().any(is_told), "{refused}");
        sim.fake()
            .delete_object("policy/v1", "PodDisruptionBudget", NAMESPACE, "of-the-user");
        is_rolled_out(&sim, 3, "1").await;
        ends_well(&sim).await;
    });
}

/// Requests to create pods.
fn pod_creations() -> Matching {
    Matching::any()
        .verb(Verb::Create)
        .resource("pods")
        .subresource("")
}

fn dry_runs(sim: &Simulation, since: Mark) -> usize {
    let calls = sim.fake().calls_since(since);
    let is_dry_run =
        |call: &&Call| call.verb == Verb::Create && call.resource == "pods" && call.subresource.is_empty();
    calls.iter().filter(is_dry_run).count()
}

#[test]
fn a_change_whose_pods_the_api_server_refuses_touches_nobody_until_it_accepts_them() {
    run(30, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let before = uids(&sim);
        let set = || sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        let template = set().map(|set| set["spec"]["template"].clone());
        let words = "pods \"c-0\" is forbidden: violates PodSecurity \"restricted:latest\"";
        let refusal = Fault::Refuse(403, words.to_owned());
        sim.fake().fault(pod_creations(), refusal, u32::MAX);
        let mark = sim.fake().mark();
        change(&sim, "1");
        sim.expect("it is blocked", 2 * MINUTE, |sim| {
            condition(sim, "RolledOut") == ("False".to_owned(), "Blocked".to_owned())
                && super::plan(sim).contains("PodRefused")
        })
        .await;
        assert!(
            status(&sim)["conditions"]
                .to_string()
                .contains("violates PodSecurity")
        );
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(uids(&sim), before);
        assert_eq!(set().map(|set| set["spec"]["template"].clone()), template);
        let asked = dry_runs(&sim, mark);
        assert!((10..=22).contains(&asked), "asked {asked} times in ten minutes");
        sim.fake().clear_faults();
        is_rolled_out(&sim, 3, "1").await;
        let mark = sim.fake().mark();
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(dry_runs(&sim, mark), 0, "nothing changes");
        ends_well(&sim).await;
    });
}

#[test]
fn a_full_quota_and_a_missing_right_hold_no_rollout_up_and_a_broken_webhook_does_until_it_answers() {
    for (seed, code, words, times) in [
        (
            31,
            403,
            "pods \"c-0\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3",
            1,
        ),
        (
            32,
            403,
            "pods is forbidden: User \"operator\" cannot create resource \"pods\" in API group \"\" in the namespace \"default\"",
            1,
        ),
        (
            33,
            500,
            "Internal error occurred: failed calling webhook \"w\"",
            3,
        ),
    ] {
        run(seed, |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            let refusal = Fault::Refuse(code, words.to_owned());
            sim.fake().fault(pod_creations(), refusal, times);
            let mark = sim.fake().mark();
            change(&sim, "1");
            if code == 500 {
                sim.expect("it waits", MINUTE, |sim| {
                    condition(sim, "RolledOut") == ("False".to_owned(), "Pending".to_owned())
                        && status(sim)["conditions"]
                            .to_string()
                            .contains("failed calling webhook")
                })
                .await;
            }
            is_rolled_out(&sim, 3, "1").await;
            assert_eq!(
                dry_runs(&sim, mark),
                usize::try_from(times).unwrap() + usize::from(code == 500)
            );
            ends_well(&sim).await;
        });
    }
}
