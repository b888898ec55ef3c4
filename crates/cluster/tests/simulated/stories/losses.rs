//! Members that lose their data, their node or their pod, at bad moments.

use etcd_operator_testkit::etcd::{CallFault, Calls};
use etcd_operator_testkit::simulation::{Fault, NAMESPACE, OPERATOR, Simulation, run};
use serde_json::json;

use super::{cluster, plan, sever, status, step};
use crate::{MINUTE, SECOND, operator};

#[test]
fn ordinal_0_wiped_at_any_moment_of_its_first_minute_is_replaced_or_begun_anew() {
    for tenths in (0..100).step_by(2) {
        run(tenths, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            sim.expect("it has a pod", MINUTE, |sim| sim.pod("c-0").is_some())
                .await;
            tokio::time::sleep(SECOND / 10 * u32::try_from(tenths).unwrap()).await;
            sim.wipe("c-0");
            tokio::time::sleep(20 * SECOND).await;
            sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.check();
        });
    }
}

#[test]
fn the_leader_wiped_is_replaced_like_any_other() {
    run(3, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(40 * SECOND).await;
        let leader = status(&sim)["leader"].as_str().unwrap().to_owned();
        sim.wipe(&leader);
        sim.expect("it is noticed", 20 * SECOND, |sim| !sim.is_whole("c", 3))
            .await;
        sim.expect("it is whole again", 4 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_damaged_database_is_replaced() {
    run(4, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(10 * SECOND).await;
        sim.damage("c-1");
        sim.kill("c-1");
        sim.expect("it is noticed", MINUTE, |sim| !sim.is_whole("c", 3))
            .await;
        sim.expect("it is whole again", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_node_lost_for_good_is_given_up_after_its_time() {
    run(5, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let node = sim.pod("c-1").unwrap().node;
        sim.machine().lose(&node);
        tokio::time::sleep(4 * MINUTE).await;
        assert_eq!(sim.voters("c"), (2, 3), "nobody is given up early");
        sim.expect("it is whole elsewhere", 20 * MINUTE, |sim| {
            sim.is_whole("c", 3) && sim.pod("c-1").is_some_and(|pod| pod.node != node)
        })
        .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        // Its old process must not come back as anybody.
        sim.machine().restore(&node);
        tokio::time::sleep(2 * MINUTE).await;
        assert!(sim.is_whole("c", 3));
        sim.check();
    });
}

#[test]
fn a_voter_on_a_silent_node_that_missed_one_answer_is_asked_again_and_stays() {
    run(11, |sim| async move {
        operator::install_watching_nodes(&sim);
        sim.create("c", 3, "3.6.16");
        sim.expect("the cluster is whole", 3 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.edit("c", |spec| spec["recovery"] = json!({"replaceAfter": "1m"}));
        let _writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(40 * SECOND).await;
        let leader = status(&sim)["leader"].clone();
        let (ordinal, member) = (0..3)
            .map(|ordinal| (ordinal, format!("c-{ordinal}")))
            .find(|(_, member)| leader != json!(member))
            .unwrap();
        let id = |sim: &Simulation| status(sim)["memberStatus"][ordinal]["id"].clone();
        let before = id(&sim);
        // The kubelet stops. etcd serves on.
        let node = sim.pod(&member).unwrap().node;
        sim.machine().cut_off(&node);
        tokio::time::sleep(3 * MINUTE).await;
        assert_eq!((sim.voters("c"), id(&sim)), ((3, 3), before.clone()));
        let calls = Calls {
            call: Some("Status".to_owned()),
            host: Some(sim.pod(&member).unwrap().address),
            caller: Some(OPERATOR.to_owned()),
        };
        sim.etcds().fault(calls, CallFault::Silence, 1);
        sim.annotate("c", "example.com/wakes", "the operator");
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(id(&sim), before, "{}", sim.timeline().text());
        assert_eq!(step(&sim), "", "{}", plan(&sim));
        sim.machine().reconnect(&node);
        sim.expect("it is whole", 2 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn all_pods_killed_at_once_come_back_by_themselves() {
    run(6, |sim| async move {
        cluster(&sim, 3).await;
        sim.kill_operator();
        for member in ["c-0", "c-1", "c-2"] {
            sim.fake().delete_object("v1", "Pod", NAMESPACE, member);
        }
        tokio::time::sleep(10 * SECOND).await;
        sim.expect("it is whole without the operator", 3 * MINUTE, |sim| {
            sim.is_whole("c", 3)
        })
        .await;
        sim.check();
    });
}

#[test]
fn members_that_lost_all_data_are_not_begun_anew_behind_the_users_back() {
    run(7, |sim| async move {
        cluster(&sim, 3).await;
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(10 * SECOND).await;
        drop(writers);
        sim.ledger().forgive_losses();
        for member in ["c-0", "c-1", "c-2"] {
            sim.wipe(member);
        }
        sim.expect("it is said", 2 * MINUTE, |sim| {
            let conditions = status(sim)["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == "DataLost" && condition["status"] == "True")
        })
        .await;
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(sim.voters("c").0, 0);
    });
}

#[test]
fn a_majority_without_data_waits_for_a_person() {
    run(8, |sim| async move {
        cluster(&sim, 3).await;
        sim.ledger().forgive_losses();
        sim.wipe("c-0");
        sim.wipe("c-1");
        sim.expect("it is said", 2 * MINUTE, |sim| {
            plan(sim).contains("no quorum can come back by itself")
        })
        .await;
        tokio::time::sleep(5 * MINUTE).await;
        assert!(sim.voters("c").0 <= 1);
    });
}

#[test]
fn members_that_lost_what_nobody_had_agreed_on_start_over() {
    for (seed, lost) in [(1, 1), (2, 2), (3, 3)] {
        run(seed, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            sever(&sim, 3);
            sim.expect("it begins", MINUTE, |sim| step(sim) == "Bootstrap")
                .await;
            sim.expect("all run", MINUTE, |sim| {
                (0..3).all(|number| {
                    sim.pod(&format!("c-{number}"))
                        .is_some_and(|pod| pod.process.is_some())
                })
            })
            .await;
            for number in 0..lost {
                sim.wipe(&format!("c-{number}"));
            }
            tokio::time::sleep(10 * SECOND).await;
            sim.etcds().mend_all();
            sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            let incarnation = status(&sim)["incarnation"].clone();
            assert_eq!(incarnation, json!(if lost > 1 { 2 } else { 1 }), "{lost}");
            sim.check();
        });
    }
}

#[test]
fn a_pod_that_no_node_takes_delays_only_itself() {
    run(9, |sim| async move {
        cluster(&sim, 3).await;
        sim.machine().set_too_large(NAMESPACE, "c-3", true);
        sim.edit("c", |spec| spec["size"] = json!(5));
        sim.expect("the other one joins", 4 * MINUTE, |sim| sim.voters("c") == (4, 4))
            .await;
        sim.wipe("c-1");
        tokio::time::sleep(20 * SECOND).await;
        sim.expect("a lost disk is replaced", 4 * MINUTE, |sim| {
            sim.voters("c") == (4, 4)
        })
        .await;
        sim.machine().set_too_large(NAMESPACE, "c-3", false);
        sim.expect("it is whole", 4 * MINUTE, |sim| sim.is_whole("c", 5))
            .await;
        sim.check();
    });
}

#[test]
fn a_child_that_somebody_deletes_is_put_back() {
    run(10, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        for (version, kind, name) in [
            ("v1", "Service", "c"),
            ("v1", "Service", "c-client"),
            ("policy/v1", "PodDisruptionBudget", "c"),
            ("apps/v1", "StatefulSet", "c"),
        ] {
            sim.fake().delete_object(version, kind, NAMESPACE, name);
            sim.expect("it is back", MINUTE, |sim| {
                sim.fake().get_object(version, kind, NAMESPACE, name).is_some()
            })
            .await;
            sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
        }
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

/// Somebody loses the status while the operator is away, and the volume of the only member is attached elsewhere.
async fn moved_unseen(sim: &Simulation) {
    cluster(sim, 1).await;
    let _writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(40 * SECOND).await;
    sim.kill_operator();
    sim.lose_status("c");
    sim.inject("c", &Fault::Reattach("c-0".to_owned()));
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(sim.voters("c").0, 0, "it waits for the operator");
}

#[test]
fn a_single_member_whose_volume_moves_while_its_status_is_lost_goes_on() {
    run(8, |sim| async move {
        moved_unseen(&sim).await;
        sim.start_operator();
        sim.expect("it is whole again", 4 * MINUTE, |sim| sim.is_whole("c", 1))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_single_member_whose_own_volume_nobody_knows_any_more_waits_for_a_person_who_is_told() {
    run(9, |sim| async move {
        moved_unseen(&sim).await;
        sim.fake()
            .update_object("apps/v1", "StatefulSet", NAMESPACE, "c", |set| {
                if let Some(noted) = set["metadata"]["annotations"].as_object_mut() {
                    noted.remove("etcd.database.coreos.com/members");
                }
            });
        sim.start_operator();
        sim.expect("it is said", 2 * MINUTE, |sim| {
            plan(sim).contains("cannot be told from a copy")
        })
        .await;
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(sim.voters("c").0, 0, "nothing is begun");
        let conditions = status(&sim)["conditions"].clone();
        let mut conditions = conditions.as_array().into_iter().flatten();
        assert!(
            conditions.any(|condition| condition["reason"] == "Blocked"),
            "{}",
            status(&sim)
        );
    });
}

#[test]
fn a_volume_put_back_in_its_place_while_its_member_was_away_is_given_up() {
    run(31, |sim| async move {
        cluster(&sim, 3).await;
        let id = |sim: &Simulation| status(sim)["memberStatus"][1]["id"].clone();
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(10 * SECOND).await;
        let (before, disk) = (
            sim.snapshot("c-1").unwrap(),
            sim.pod("c-1").unwrap().disk.unwrap(),
        );
        let first = id(&sim);
        tokio::time::sleep(20 * SECOND).await;
        // With whatever else is news it is noted how far members have come.
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-2");
        tokio::time::sleep(10 * SECOND).await;
        sim.expect("it is whole", 2 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.machine().set_too_large(NAMESPACE, "c-1", true);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, "c-1");
        tokio::time::sleep(10 * SECOND).await;
        // So that nobody remembers how far it was, and it is no etcd that finds out.
        let leader = status(&sim)["leader"].as_str().unwrap().to_owned();
        sim.kill(&leader);
        tokio::time::sleep(10 * SECOND).await;
        sim.etcds().revert(disk, before);
        sim.machine().set_too_large(NAMESPACE, "c-1", false);
        sim.expect("it is told", MINUTE, |sim| {
            plan(sim).contains("another volume lies in the place of its own, or its own as it was before")
        })
        .await;
        sim.expect("another one takes its place", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && id(sim) != first
        })
        .await;
        drop(writers);
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}
