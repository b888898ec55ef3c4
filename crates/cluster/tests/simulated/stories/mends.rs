//! What people do to have things mended, and what they do that must be mended.

use etcd_operator_api::contract::Fingerprint;
use etcd_operator_api::crd;
use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_REPLACE};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_testkit::etcd::{CallFault, Calls};
use etcd_operator_testkit::fake::{Fault, Matching};
use etcd_operator_testkit::machine::MISREADING_REPOSITORY;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::{Value, json};

use super::{cluster, plan, status};
use crate::{MINUTE, SECOND, operator};

/// etcd's ID of a member, as the status has it.
fn id_of(sim: &Simulation, name: &str) -> String {
    let members = status(sim)["memberStatus"].clone();
    let mut members = members.as_array().into_iter().flatten();
    let member = members.find(|member| member["name"] == name);
    member
        .and_then(|member| member["id"].as_str())
        .unwrap()
        .to_owned()
}

fn pod(sim: &Simulation, name: &str) -> Value {
    sim.fake().get_object("v1", "Pod", NAMESPACE, name).unwrap()
}

#[test]
fn a_member_that_a_person_gives_up_is_replaced_once_with_all_its_data_kept_by_the_others() {
    run(1, |sim| async move {
        cluster(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(20 * SECOND).await;
        let before = id_of(&sim, "c-1");
        let claim = super::claims(&sim);
        sim.annotate("c", ANNOTATION_REPLACE, &before);
        sim.expect("another one has its place", 5 * MINUTE, |sim| {
            status(sim)["replaced"] == json!(before) && sim.is_whole("c", 3) && id_of(sim, "c-1") != before
        })
        .await;
        assert_ne!(super::claims(&sim), claim, "its disk is another one");
        let after = id_of(&sim, "c-1");
        sim.kill_operator();
        sim.start_operator();
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(id_of(&sim, "c-1"), after, "it is not done twice");
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn a_single_member_is_not_given_up() {
    run(2, |sim| async move {
        cluster(&sim, 1).await;
        let before = id_of(&sim, "c-0");
        sim.annotate("c", ANNOTATION_REPLACE, &before);
        sim.expect("it is said why", MINUTE, |sim| {
            plan(sim).contains("c-0 is the only voter")
        })
        .await;
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(id_of(&sim, "c-0"), before);
        sim.edit("c", |spec| spec["size"] = json!(3));
        sim.expect("others make it possible", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && id_of(sim, "c-0") != before
        })
        .await;
        sim.check();
    });
}

/// A copy of a member's volume, which bears nothing by which it could be told from it, in the place of its own.
fn exchange(sim: &Simulation, member: &str) {
    let mut copy = sim.snapshot(member).unwrap();
    copy.identity.as_mut().unwrap().fingerprint = Fingerprint::default();
    sim.put_claim_from_snapshot(member, copy);
}

#[test]
fn a_copy_that_nothing_tells_from_a_members_own_volume_runs_and_does_not_stay() {
    run(3, |sim| async move {
        cluster(&sim, 3).await;
        sim.ledger().forgive_losses();
        let before = id_of(&sim, "c-1");
        exchange(&sim, "c-1");
        sim.expect("it is replaced", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && id_of(sim, "c-1") != before
        })
        .await;
        assert!(!sim.timeline().text().contains("waits as Moved"));
        sim.check();
    });
}

#[test]
fn a_volume_that_a_person_vouches_for_stays() {
    for is_told in [true, false] {
        run(4, |sim| async move {
            cluster(&sim, 1).await;
            sim.ledger().forgive_losses();
            let before = id_of(&sim, "c-0");
            if is_told {
                sim.put_claim_from_snapshot("c-0", sim.snapshot("c-0").unwrap());
            } else {
                exchange(&sim, "c-0");
            }
            sim.expect("a person is asked", 5 * MINUTE, |sim| {
                plan(sim).contains(ANNOTATION_ADOPT)
            })
            .await;
            sim.annotate("c", ANNOTATION_ADOPT, &super::claims(&sim));
            sim.expect("nothing is left to do", MINUTE, |sim| {
                plan(sim).contains("The cluster matches its spec")
            })
            .await;
            assert_eq!(id_of(&sim, "c-0"), before);
            sim.check();
        });
    }
}

#[test]
fn a_statefulset_deleted_while_a_change_is_pending_comes_back_as_it_was() {
    run(5, |sim| async move {
        cluster(&sim, 3).await;
        let version = |sim: &Simulation| pod(sim, "c-0")["metadata"]["annotations"]["etcd.version"].clone();
        assert_eq!(version(&sim), "3.6.16");
        // No way leads back to a lower minor version, so this stays pending.
        sim.edit("c", |spec| spec["version"] = json!("3.5.35"));
        sim.expect("it is kept", MINUTE, |sim| {
            status(sim)["appliedTemplate"].is_string()
        })
        .await;
        let old = pod(&sim, "c-0")["metadata"]["uid"].clone();
        sim.fake().delete_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        sim.expect("it is whole again", 5 * MINUTE, |sim| {
            let now = sim.fake().get_object("v1", "Pod", NAMESPACE, "c-0");
            sim.is_whole("c", 3) && now.is_some_and(|now| now["metadata"]["uid"] != old)
        })
        .await;
        assert_eq!(version(&sim), "3.6.16");
        sim.check();
    });
}

/// Nothing is applied while a cluster is paused, or while its spec is refused.
#[test]
fn a_statefulset_deleted_while_nothing_is_applied_comes_back_as_it_was() {
    let changes: [fn(&mut Value); 2] = [
        |spec| spec["paused"] = json!(true),
        |spec| spec["version"] = json!("9.9.9"),
    ];
    for change in changes {
        run(5, move |sim| async move {
            cluster(&sim, 3).await;
            sim.edit("c", |spec| {
                change(spec);
                spec["pod"] = json!({"resources": {"requests": {"cpu": "123m"}}});
                spec["updates"] = json!({"strategy": "Paused"});
            });
            sim.expect("the template is kept", MINUTE, |sim| {
                status(sim)["appliedTemplate"].is_string()
            })
            .await;
            let old = pod(&sim, "c-0")["metadata"]["uid"].clone();
            sim.fake().delete_object("apps/v1", "StatefulSet", NAMESPACE, "c");
            tokio::time::sleep(MINUTE).await;
            sim.edit("c", |spec| {
                spec["paused"] = json!(false);
                spec["version"] = json!("3.6.16");
            });
            sim.expect("it is whole again", 5 * MINUTE, |sim| {
                let now = sim.fake().get_object("v1", "Pod", NAMESPACE, "c-0");
                sim.is_whole("c", 3) && now.is_some_and(|now| now["metadata"]["uid"] != old)
            })
            .await;
            for name in ["c-0", "c-1", "c-2"] {
                assert!(!pod(&sim, name).to_string().contains("123m"), "{name}");
            }
            sim.check();
        });
    }
}

/// A program that cannot read what a newer one wrote dies as if the data were damaged.
#[test]
fn an_image_that_no_member_serves_with_costs_nobody_a_volume_and_can_be_corrected() {
    run(13, |sim| async move {
        cluster(&sim, 3).await;
        sim.expect("it is recorded what served", MINUTE, |sim| {
            status(sim)["servedSpecHashes"].is_array()
        })
        .await;
        let served = status(&sim)["servedSpecHashes"].clone();
        let claims = super::claims(&sim);
        sim.kill_operator();
        // Nobody sees the edit before the StatefulSet is gone, so the next one is made from what is asked for by now.
        let image = format!("{MISREADING_REPOSITORY}:3.6.16");
        sim.edit("c", |spec| spec["image"] = json!(image));
        sim.fake().delete_object("apps/v1", "StatefulSet", NAMESPACE, "c");
        tokio::time::sleep(MINUTE).await;
        sim.start_operator();
        sim.expect("it is said of all members", 5 * MINUTE, |sim| {
            let blockers = status(sim)["plan"]["blockers"].clone();
            let blockers = blockers.as_array().into_iter().flatten();
            blockers
                .filter(|blocker| blocker["reason"] == "TemplateNotServed")
                .count()
                == 3
        })
        .await;
        for _ in 0..10 {
            tokio::time::sleep(MINUTE).await;
            assert_eq!(super::claims(&sim), claims);
            assert!(!plan(&sim).contains(ANNOTATION_DISCARD), "{}", plan(&sim));
        }
        sim.lose_status("c");
        sim.expect("it is found again on the StatefulSet", MINUTE, |sim| {
            status(sim)["servedSpecHashes"] == served
        })
        .await;
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("image");
        });
        sim.expect("it serves again", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        assert_eq!(super::claims(&sim), claims);
        sim.check();
    });
}

#[test]
fn what_keeps_members_from_their_first_start_can_be_corrected() {
    run(6, |sim| async move {
        operator::install(&sim);
        sim.create_with(json!({
            "metadata": {"name": "c", "namespace": NAMESPACE},
            "spec": {
                "size": 3, "version": "3.6.16", "image": "mirror/etcd:no-version-at-all", "storage": {"size": "1Gi"},
            },
        }));
        tokio::time::sleep(2 * MINUTE).await;
        assert_eq!(status(&sim)["clusterID"], json!(null));
        sim.edit("c", |spec| spec["image"] = json!("mirror/etcd:3.6.16"));
        sim.expect("it is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
            .await;
        sim.check();
    });
}

#[test]
fn a_claim_without_labels_is_seen_and_gets_them() {
    run(7, |sim| async move {
        cluster(&sim, 3).await;
        let (kind, name) = ("PersistentVolumeClaim", "data-c-1");
        let strip = |claim: &mut Value| claim["metadata"]["labels"] = json!({});
        sim.fake().update_object("v1", kind, NAMESPACE, name, strip);
        sim.kill("c-2");
        sim.expect("it has them again", 2 * MINUTE, |sim| {
            let claim = sim.fake().get_object("v1", kind, NAMESPACE, name).unwrap();
            claim["metadata"]["labels"]["etcd_cluster"] == "c"
        })
        .await;
        sim.check();
    });
}

#[test]
fn where_nodes_are_watched_a_silent_one_is_given_up_before_anybody_deletes_its_pods() {
    for is_object_deleted in [false, true] {
        run(8, move |sim| async move {
            operator::install_watching_nodes(&sim);
            sim.create("c", 3, "3.6.16");
            sim.expect("the cluster is whole", 3 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.edit("c", |spec| spec["recovery"] = json!({"replaceAfter": "1m"}));
            tokio::time::sleep(10 * SECOND).await;
            let node = sim.pod("c-1").unwrap().node;
            sim.machine().lose(&node);
            if is_object_deleted {
                // As Kubernetes has said by then that it does not answer.
                tokio::time::sleep(MINUTE).await;
                sim.fake().delete_object("v1", "Node", "", &node);
            }
            // Kubernetes itself would wait for five minutes more.
            sim.expect("it is whole elsewhere", 4 * MINUTE, |sim| {
                sim.is_whole("c", 3) && sim.pod("c-1").is_some_and(|pod| pod.node != node)
            })
            .await;
            if !is_object_deleted {
                sim.machine().restore(&node);
            }
            tokio::time::sleep(2 * MINUTE).await;
            assert!(sim.is_whole("c", 3));
            sim.check();
        });
    }
}

/// A quota, an admission rule or a right that was taken away: what it keeps from being so keeps nobody from being healed.
#[test]
fn a_member_is_replaced_while_the_api_server_refuses_what_the_spec_asks_for_besides() {
    let wishes = [
        ("statefulsets", "size", json!(5), 5),
        ("services", "service", json!({"type": "LoadBalancer"}), 3),
    ];
    for (resource, field, wish, size) in wishes {
        run(12, |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            sim.api_fault(
                Matching::writes().resource(resource),
                Fault::Status(403),
                u32::MAX,
            );
            sim.edit("c", |spec| spec[field] = wish);
            let before = id_of(&sim, "c-1");
            sim.wipe("c-1");
            sim.expect("another one has its place", 5 * MINUTE, |sim| {
                let members = status(sim)["memberStatus"].clone();
                let mut members = members.as_array().into_iter().flatten();
                members.any(|member| {
                    member["name"] == "c-1" && member["id"] != json!(before) && member["healthy"] == true
                })
            })
            .await;
            let refused = |sim: &Simulation| {
                let conditions = status(sim)["conditions"].clone();
                let mut conditions = conditions.as_array().into_iter().flatten();
                conditions.any(|one| one["type"] == "Applied" && one["status"] == "False")
            };
            assert!(refused(&sim), "{resource}: {}", status(&sim));
            sim.heal();
            sim.expect("all is as asked for", 10 * MINUTE, |sim| {
                sim.is_whole("c", size) && !refused(sim)
            })
            .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

/// What the condition Progressing says.
fn progress(sim: &Simulation) -> Value {
    let conditions = status(sim)["conditions"].clone();
    let mut conditions = conditions.as_array().into_iter().flatten();
    let progress = conditions.find(|one| one["type"] == "Progressing");
    progress.cloned().unwrap_or_default()
}

#[test]
fn a_start_that_the_api_server_lets_nobody_permit_is_told_with_what_to_do() {
    run(6, |sim| async move {
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        let permits = Matching::writes().resource("pods");
        sim.api_fault(permits, Fault::Status(403), u32::MAX);
        let told = |sim: &Simulation| {
            let message = progress(sim)["message"].to_string();
            message.contains("The API server refuses the step StartPermitted: annotate Pod")
                && message.contains("grant the operator the missing permission")
        };
        sim.expect("it says what is refused", 5 * MINUTE, told).await;
        for _ in 0..100 {
            tokio::time::sleep(SECOND).await;
            assert!(told(&sim), "{}", status(&sim));
        }
        sim.heal();
        sim.expect("it is whole", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && !told(sim)
        })
        .await;
        sim.check();
    });
}

/// Somebody applied definitions of an older version over those that are needed.
#[test]
fn definitions_that_drop_the_plan_are_told_of_and_all_goes_on_once_they_are_mended() {
    run(6, |sim| async move {
        let mut all = crd::all().into_iter();
        let definition = all.find(|one| one.spec.names.kind == "EtcdCluster").unwrap();
        let mut older = serde_json::to_value(&definition).unwrap();
        let status = older
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties")
            .and_then(Value::as_object_mut);
        status.unwrap().remove("plan").unwrap();
        sim.fake().register(&serde_json::from_value(older).unwrap());
        operator::install(&sim);
        sim.create("c", 3, "3.6.16");
        let told = |sim: &Simulation| progress(sim)["reason"] == "DefinitionsOutdated";
        sim.expect("it says what drops the plan", 2 * MINUTE, told).await;
        let mark = sim.fake().mark();
        for _ in 0..120 {
            tokio::time::sleep(SECOND).await;
            assert!(told(&sim), "{}", super::status(&sim));
        }
        let writes = sim.fake().writes_since(mark);
        let statuses = writes.iter().filter(|call| call.resource == "etcdclusters");
        assert!(statuses.count() <= 20, "it goes round and round: {writes:?}");
        assert_eq!(super::status(&sim)["clusterID"], json!(null));
        sim.fake().register(&definition);
        sim.expect("it is whole", 5 * MINUTE, |sim| {
            sim.is_whole("c", 3) && !told(sim)
        })
        .await;
        sim.check();
    });
}

#[test]
fn a_leader_that_takes_its_connections_for_broken_keeps_nobody_from_joining_or_leaving() {
    for call in ["MemberAdd", "MemberRemove"] {
        run(11, |sim| async move {
            cluster(&sim, 3).await;
            let leader = sim.cluster("c").expect("a cluster")["status"]["leader"].clone();
            let leader = leader.as_str().expect("a leader").to_owned();
            let by_the_leader = Calls {
                host: Some(sim.pod(&leader).expect("a pod").address),
                ..Calls::of(call)
            };
            let refusal = CallFault::Refuse(Rejection::Unhealthy);
            sim.etcds().fault(by_the_leader, refusal, u32::MAX);
            for size in [5, 3] {
                sim.edit("c", |spec| spec["size"] = json!(size));
                sim.expect("it has the size", 4 * MINUTE, |sim| sim.is_whole("c", size))
                    .await;
            }
            sim.check();
        });
    }
}
