//! Somebody writes into what the operator has noted, at a bad moment.

use etcd_operator_testkit::simulation::{Meddling, NAMESPACE, Simulation, run};
use serde_json::json;

use super::{cluster, status, step};
use crate::{MINUTE, SECOND, operator};

/// A cluster whose data live with its pods.
async fn fleeting(sim: &Simulation, size: u8) {
    operator::install(sim);
    sim.create_with(json!({
        "metadata": {"name": "c", "namespace": NAMESPACE},
        "spec": {"size": size, "version": "3.6.16"},
    }));
    sim.expect("it is whole", 3 * MINUTE, |sim| sim.is_whole("c", size))
        .await;
}

#[test]
fn the_id_of_a_cluster_is_taken_away_while_it_shrinks_and_nobody_answers() {
    for seed in 0..6 {
        run(seed, |sim| async move {
            fleeting(&sim, 5).await;
            let _writers = sim.write("c", 2, SECOND);
            tokio::time::sleep(10 * SECOND).await;
            sim.edit("c", |spec| spec["size"] = json!(1));
            sim.expect("it shrinks", MINUTE, |sim| step(sim) == "Remove")
                .await;
            for number in 1..5 {
                sim.stop(&format!("c-{number}"), true);
            }
            sim.meddle("c", Meddling::NoCluster);
            tokio::time::sleep(20 * SECOND).await;
            for number in 1..5 {
                sim.stop(&format!("c-{number}"), false);
            }
            sim.expect("one is left, with all data", 10 * MINUTE, |sim| {
                sim.is_whole("c", 1)
            })
            .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn an_incarnation_that_never_was_costs_no_member_its_pod_as_its_container_begins_anew() {
    run(7, |sim| async move {
        fleeting(&sim, 3).await;
        let _writers = sim.write("c", 2, SECOND);
        let uid = |sim: &Simulation, name: &str| {
            let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, name);
            pod.map(|pod| pod["metadata"]["uid"].clone())
        };
        for number in [1, 0, 2] {
            let name = format!("c-{number}");
            let before = uid(&sim, &name);
            sim.meddle("c", Meddling::OtherIncarnation);
            sim.kill(&name);
            sim.expect("it is missed", MINUTE, |sim| !sim.is_whole("c", 3))
                .await;
            sim.expect("it is back", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert_eq!(uid(&sim, &name), before);
        }
        sim.expect("it is put right", MINUTE, |sim| status(sim)["incarnation"] == 1)
            .await;
        assert!(sim.ledger().verify(NAMESPACE, "c").await);
        sim.check();
    });
}

#[test]
fn all_pods_are_gone_and_what_was_known_of_the_members_with_them_and_that_data_are_lost_is_told() {
    run(8, |sim| async move {
        cluster(&sim, 3).await;
        sim.ledger().forgive_losses();
        sim.meddle("c", Meddling::NoMembers);
        for number in 0..3 {
            sim.wipe(&format!("c-{number}"));
        }
        sim.expect("it is told", 10 * MINUTE, |sim| {
            super::plan(sim).contains("no data are left")
        })
        .await;
        sim.check();
    });
}
