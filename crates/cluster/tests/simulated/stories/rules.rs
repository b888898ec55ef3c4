//! The interleavings for which the rules about permits and fences were made, with the real controller.

use std::sync::{Arc, Mutex};

use etcd_operator_testkit::etcd::{CallFault, Calls};
use etcd_operator_testkit::fake::{Fault, Matching};
use etcd_operator_testkit::gate::{Ambush, Side};
use etcd_operator_testkit::simulation::{NAMESPACE, OPERATOR, Simulation, run};
use serde_json::{Value, json};

use super::overtaken::overtaken_at;
use super::{cluster, cluster_of, is_quorum_lost, sever, status, step};
use crate::{MINUTE, SECOND, operator};

#[test]
fn b1_a_member_that_may_have_run_is_not_permitted_to_begin_again() {
    for seed in 1..5 {
        run(seed, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            // Nobody reads who the members are before the harm is done.
            let blind = Calls {
                caller: Some(OPERATOR.to_owned()),
                ..Calls::of("Connect")
            };
            sim.etcds().fault(blind, CallFault::LoseRequest, u32::MAX);
            sim.expect("there are pods", MINUTE, |sim| sim.pod("c-2").is_some())
                .await;
            let late = sim.pod("c-2").unwrap().node;
            sim.machine().set_lateness(&late, 50 * SECOND, 50 * SECOND);
            sim.expect("two of three serve", MINUTE, |sim| sim.voters("c") == (2, 3))
                .await;
            let writers = sim.write("c", 4, SECOND);
            tokio::time::sleep(20 * SECOND).await;
            drop(writers);
            assert!(sim.ledger().acknowledged() > 5);
            let node = sim.pod("c-1").unwrap().node;
            sim.machine().lose(&node);
            sim.wipe("c-0");
            tokio::time::sleep(2 * MINUTE).await;
            sim.machine().restore(&node);
            sim.etcds().clear_faults();
            sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn b2_a_voter_whose_own_volume_moved_goes_on_though_another_member_is_being_brought_in() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(10 * SECOND).await;
        // The place of a third voter, which has not started, counts for the quorum of nobody.
        let late = sim.pod("c-2").unwrap().node;
        sim.machine().set_lateness(&late, 5 * MINUTE, 5 * MINUTE);
        sim.wipe("c-2");
        sim.expect("it is to join", 2 * MINUTE, |sim| {
            step(sim) == "Join" && sim.voters("c") == (2, 2)
        })
        .await;
        tokio::time::sleep(10 * SECOND).await;
        let content = sim.snapshot("c-0").unwrap();
        sim.exchange("c-0", content);
        sim.expect("the two serve again", 2 * MINUTE, |sim| sim.voters("c") == (2, 2))
            .await;
        sim.machine().set_lateness(&late, SECOND / 10, SECOND / 2);
        sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn b6_names_that_do_not_resolve_delay_a_start_and_nothing_else() {
    run(1, |sim| async move {
        sim.machine().set_nameless(true);
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        tokio::time::sleep(5 * MINUTE).await;
        sim.machine().set_nameless(false);
        sim.expect("it is whole", 3 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

#[test]
fn b7_what_clients_may_have_written_is_not_begun_anew() {
    run(1, |sim| async move {
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        let blind = Calls {
            caller: Some(OPERATOR.to_owned()),
            ..Calls::of("Connect")
        };
        sim.etcds().fault(blind, CallFault::LoseRequest, u32::MAX);
        sim.expect("all serve", MINUTE, |sim| sim.voters("c") == (3, 3))
            .await;
        let writers = sim.write("c", 4, SECOND);
        tokio::time::sleep(20 * SECOND).await;
        drop(writers);
        assert!(sim.ledger().acknowledged() > 5);
        sim.ledger().forgive_losses();
        for member in ["c-0", "c-1"] {
            sim.wipe(member);
        }
        sim.etcds().clear_faults();
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(status(&sim)["clusterID"], json!(null));
        let kept = sim.snapshot("c-2").unwrap();
        assert!(kept.data.is_some(), "what may be the last copy is still there");
    });
}

#[test]
fn b14_another_size_waits_for_the_first_members() {
    for size in [1, 5] {
        run(1, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            sever(&sim, 3);
            sim.expect("it begins", MINUTE, |sim| step(sim) == "Bootstrap")
                .await;
            tokio::time::sleep(2 * SECOND).await;
            sim.edit("c", |spec| spec["size"] = json!(size));
            tokio::time::sleep(MINUTE).await;
            assert_eq!(sim.members("c").len(), 3);
            sim.etcds().mend_all();
            sim.expect("it has the size", 5 * MINUTE, |sim| sim.is_whole("c", size))
                .await;
            sim.check();
        });
    }
}

#[test]
fn b14_another_size_waits_while_the_first_members_start_over() {
    run(2, |sim| async move {
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        sever(&sim, 3);
        sim.expect("all run", MINUTE, |sim| {
            (0..3).all(|number| {
                sim.pod(&format!("c-{number}"))
                    .is_some_and(|pod| pod.process.is_some())
            })
        })
        .await;
        sim.wipe("c-0");
        sim.wipe("c-1");
        sim.expect("it starts over", MINUTE, |sim| step(sim) == "StartOver")
            .await;
        sim.edit("c", |spec| spec["size"] = json!(1));
        tokio::time::sleep(20 * SECOND).await;
        sim.etcds().mend_all();
        sim.expect("it has the size", 5 * MINUTE, |sim| sim.is_whole("c", 1))
            .await;
        sim.check();
    });
}

/// A leader is stopped right before a call, another one works on, and the first goes on with its call.
async fn stopped_at(sim: &Simulation, call: &str, meanwhile: impl FnOnce(&Simulation)) {
    let gate = overtaken_at(sim, call).await;
    meanwhile(sim);
    tokio::time::sleep(MINUTE).await;
    gate.go_on();
    tokio::time::sleep(5 * SECOND).await;
    gate.kill();
}

#[test]
fn b16_a_stale_leader_that_goes_on_with_an_add_leaves_nothing_behind() {
    for version in ["3.6.16", "3.3.27"] {
        run(1, |sim| async move {
            cluster_of(&sim, 1, version).await;
            sim.edit("c", |spec| spec["size"] = json!(2));
            stopped_at(&sim, "MemberAdd", |sim| {
                sim.edit("c", |spec| spec["size"] = json!(1));
            })
            .await;
            sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 1))
                .await;
            tokio::time::sleep(MINUTE).await;
            sim.expect("it stays whole", MINUTE, |sim| sim.is_whole("c", 1))
                .await;
            sim.check();
        });
    }
}

#[test]
fn b16_a_stale_leader_that_goes_on_with_a_permit_starts_nobody_twice() {
    for call in ["Permit Bootstrap", "TakeOver"] {
        run(1, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            if call == "TakeOver" {
                sim.crash_operator_around("Permit Bootstrap", Side::Before, SECOND);
                sim.expect("it crashes", MINUTE, |sim| sim.starts() == 2).await;
            }
            stopped_at(&sim, call, |_| {}).await;
            sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.check();
        });
    }
    for call in [
        "Permit Join",
        "MemberPromote",
        "MemberRemove",
        "DeleteClaim",
        "DeletePod",
    ] {
        run(2, |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            sim.damage("c-1");
            sim.kill("c-1");
            stopped_at(&sim, call, |_| {}).await;
            sim.expect("it is whole", 10 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn b16_taking_over_is_tried_again_until_every_pod_was_touched() {
    run(3, |sim| async move {
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        sim.crash_operator_around("Permit Bootstrap", Side::Before, SECOND);
        sim.expect("it crashes", MINUTE, |sim| sim.starts() == 2).await;
        let touches = Matching::writes().resource("pods").name("c-1");
        sim.api_fault(touches, Fault::Status(500), 1);
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        // The second one failed at first, and the third one would never have been touched.
        assert_eq!(sim.tally().counts().get("step TakeOver"), Some(&3));
        sim.check();
    });
}

#[test]
fn b17_a_learner_that_is_gone_gets_no_vote() {
    run(4, |sim| async move {
        cluster(&sim, 1).await;
        let wait = CallFault::Refuse(etcd_operator_etcd::rejection::Rejection::LearnerNotReady);
        sim.etcds().fault(Calls::of("MemberPromote"), wait, u32::MAX);
        sim.edit("c", |spec| spec["size"] = json!(2));
        sim.expect("the learner runs", 2 * MINUTE, |sim| {
            sim.pod("c-1").is_some_and(|pod| pod.process.is_some())
        })
        .await;
        tokio::time::sleep(10 * SECOND).await;
        let node = sim.pod("c-1").unwrap().node;
        sim.machine().lose(&node);
        tokio::time::sleep(20 * SECOND).await;
        sim.etcds().clear_faults();
        tokio::time::sleep(MINUTE).await;
        assert_eq!(sim.voters("c"), (1, 1));
        sim.machine().restore(&node);
        sim.expect("it gets its vote", 5 * MINUTE, |sim| sim.is_whole("c", 2))
            .await;
        sim.check();
    });
}

#[test]
fn b18_a_claim_that_somebody_holds_is_not_started_on_again() {
    run(5, |sim| async move {
        cluster(&sim, 3).await;
        let kind = "PersistentVolumeClaim";
        let hold = |sim: &Simulation, is_held: bool| {
            sim.fake()
                .update_object("v1", kind, NAMESPACE, "data-c-2", |claim| {
                    let list = claim["metadata"]["finalizers"].as_array_mut().unwrap();
                    list.retain(|finalizer| finalizer != "snapshots.example/held");
                    if is_held {
                        list.push(json!("snapshots.example/held"));
                    }
                });
        };
        hold(&sim, true);
        sim.edit("c", |spec| spec["size"] = json!(1));
        sim.expect("it shrinks", 3 * MINUTE, |sim| sim.voters("c") == (1, 1))
            .await;
        sim.edit("c", |spec| spec["size"] = json!(3));
        tokio::time::sleep(3 * MINUTE).await;
        hold(&sim, false);
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

#[test]
fn b18_a_claim_that_somebody_holds_makes_no_other_member_wait() {
    run(6, |sim| async move {
        cluster(&sim, 4).await;
        let _writers = sim.write("c", 2, SECOND);
        let kind = "PersistentVolumeClaim";
        sim.fake()
            .update_object("v1", kind, NAMESPACE, "data-c-3", |claim| {
                let list = claim["metadata"]["finalizers"].as_array_mut().unwrap();
                list.push(json!("snapshots.example/held"));
            });
        sim.edit("c", |spec| spec["size"] = json!(3));
        sim.expect("it shrinks", 3 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        tokio::time::sleep(20 * SECOND).await;
        sim.wipe("c-1");
        sim.expect("it is noticed", 20 * SECOND, |sim| !sim.is_whole("c", 3))
            .await;
        sim.expect("it is whole again", 4 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

/// The second member votes before it has started, and without it nobody can tell who the members are.
#[test]
fn a_second_member_starts_where_there_are_no_learners_although_nobody_can_tell_the_members() {
    for (call, side) in [
        ("MemberAdd", Side::After),
        ("WriteStatus", Side::Before),
        ("Permit Join", Side::Before),
        ("Permit Join", Side::After),
    ] {
        run(7, |sim| async move {
            cluster_of(&sim, 1, "3.3.27").await;
            sim.edit("c", |spec| spec["size"] = json!(2));
            if call == "WriteStatus" {
                let added = |sim: &Simulation| sim.voters("c").1 == 2;
                sim.expect("it is added", 2 * MINUTE, added).await;
            }
            sim.crash_operator_around(call, side, SECOND);
            sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 2))
                .await;
            sim.check();
        });
    }
}

/// A single voter of before there were learners takes in a second one, and starts anew before that one has started: it
/// serves no client, for its quorum is two by now.
#[test]
fn b16_a_second_voter_starts_though_the_first_one_serves_nobody_any_more() {
    for (seed, version, forgets) in [(1, "3.3.27", false), (2, "3.2.32", true), (3, "3.3.27", true)] {
        run(seed, |sim| async move {
            cluster_of(&sim, 1, version).await;
            let writers = sim.write("c", 2, SECOND);
            tokio::time::sleep(10 * SECOND).await;
            drop(writers);
            let gate = sim.gate().unwrap();
            gate.lie_in_wait(Ambush {
                call: "MemberAdd".to_owned(),
                side: Side::After,
                is_stop: true,
            });
            sim.edit("c", |spec| spec["size"] = json!(2));
            let held = tokio::time::timeout(5 * MINUTE, gate.held()).await;
            assert!(held.is_ok(), "{}", sim.timeline().text());
            sim.kill("c-0");
            tokio::time::sleep(10 * SECOND).await;
            if forgets {
                // Nobody but the first voter knows of the second one.
                sim.kill_operator();
                sim.lose_status("c");
                sim.start_operator();
            } else {
                gate.go_on();
            }
            sim.expect("both serve", 5 * MINUTE, |sim| sim.is_whole("c", 2))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn members_of_a_cluster_whose_spec_is_refused_are_left_alone_and_told_of_as_they_are() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        sim.edit("c", |spec| spec["version"] = json!("9.9.9"));
        let is = |sim: &Simulation, type_: &str, wanted: &str| {
            let conditions = status(sim)["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == type_ && one["status"] == wanted)
        };
        let looked_at = |sim: &Simulation| is(sim, "Accepted", "False") && is(sim, "Available", "True");
        sim.expect("the refusal is told, and that it serves", MINUTE, looked_at)
            .await;
        for member in ["c-1", "c-2"] {
            sim.stop(member, true);
        }
        let is_lost = |sim: &Simulation| is(sim, "Available", "False") && is(sim, "QuorumLost", "True");
        sim.expect("it is told that it does not serve", 2 * MINUTE, is_lost)
            .await;
        assert_eq!(status(&sim)["phase"], "Invalid");
        for member in ["c-1", "c-2"] {
            sim.stop(member, false);
        }
        sim.edit("c", |spec| spec["version"] = json!("3.6.16"));
        sim.expect("all is well", 2 * MINUTE, |sim| {
            sim.is_whole("c", 3) && is(sim, "Accepted", "True") && is(sim, "QuorumLost", "False")
        })
        .await;
        sim.check();
    });
}

#[test]
fn a_set_that_lost_its_owner_is_taken_back_with_its_pods() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        let set = |sim: &Simulation| sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        let mut orphan = set(&sim).unwrap();
        orphan["metadata"]["ownerReferences"] = json!([]);
        let pods = |sim: &Simulation| -> Vec<String> {
            let names = sim.members("c");
            names.iter().map(|name| sim.pod(name).unwrap().uid).collect()
        };
        let before = pods(&sim);
        sim.fake().put_object(orphan);
        let is_owned = |sim: &Simulation| {
            set(sim).is_some_and(|set| set["metadata"]["ownerReferences"][0]["kind"] == "EtcdCluster")
        };
        sim.expect("it is taken back", 2 * MINUTE, is_owned).await;
        sim.expect("it is whole", MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert_eq!(pods(&sim), before);
        sim.check();
    });
}

#[test]
fn pods_that_a_deleted_set_left_behind_serve_on_and_nobody_calls_their_quorum_lost() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        let pods = |sim: &Simulation| -> Vec<String> {
            let names = sim.members("c");
            names.iter().map(|name| sim.pod(name).unwrap().uid).collect()
        };
        let before = pods(&sim);
        let statuses: Arc<Mutex<Vec<Value>>> = Arc::default();
        let written = Arc::clone(&statuses);
        sim.read_statuses(move |status| written.lock().unwrap().push(status.clone()));
        // As with --cascade=orphan.
        for name in sim.members("c") {
            let free = |pod: &mut Value| pod["metadata"]["ownerReferences"] = json!([]);
            sim.fake().update_object("v1", "Pod", NAMESPACE, &name, free);
        }
        sim.fake().delete_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        let are_owned = |sim: &Simulation| {
            let set = sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
            let pods = sim.fake().list_objects("v1", "Pod", NAMESPACE);
            set.is_some_and(|set| {
                let uid = &set["metadata"]["uid"];
                let mut pods = pods.iter();
                pods.all(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid)
            })
        };
        sim.expect("another set has taken them", 2 * MINUTE, are_owned)
            .await;
        tokio::time::sleep(2 * MINUTE).await;
        assert!(sim.is_whole("c", 3));
        assert_eq!(pods(&sim), before, "nobody was restarted");
        for status in statuses.lock().unwrap().iter() {
            assert!(!is_quorum_lost(status), "{status}");
            let ready = &status["readyMembers"];
            assert!(ready.is_null() || ready == "3/3", "{status}");
        }
        sim.check();
    });
}
