//! What every cluster goes through: it is made, grows, shrinks, loses a disk.

use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::{cluster, cluster_of, plan};
use crate::{MINUTE, SECOND, operator};

#[test]
fn a_cluster_of_any_size_and_version_is_made() {
    for (seed, size, version) in [
        (1, 1, "3.6.16"),
        (2, 3, "3.6.16"),
        (3, 5, "3.7.3"),
        (4, 3, "3.5.35"),
        (5, 3, "3.4.44"),
        (6, 3, "3.3.27"),
        (7, 3, "3.2.32"),
    ] {
        run(seed, |sim| async move {
            cluster_of(&sim, size, version).await;
            sim.check();
        });
    }
}

#[test]
fn a_cluster_grows_and_shrinks_under_load() {
    for version in ["3.6.16", "3.3.27"] {
        run(2, |sim| async move {
            cluster_of(&sim, 1, version).await;
            let _writers = sim.write("c", 2, SECOND);
            for size in [3, 5, 3, 1] {
                sim.edit("c", |spec| spec["size"] = json!(size));
                sim.expect("it has the size", 4 * MINUTE, |sim| sim.is_whole("c", size))
                    .await;
            }
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn a_volume_whose_member_never_joined_stays_and_is_used_when_the_cluster_grows_again() {
    for seed in 0..6 {
        run(seed, |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            let claim = |sim: &Simulation| {
                let claim = sim
                    .fake()
                    .get_object("v1", "PersistentVolumeClaim", NAMESPACE, "data-c-4");
                claim.map(|claim| claim["metadata"]["uid"].clone())
            };
            sim.edit("c", |spec| spec["size"] = json!(5));
            sim.expect("the last one has a volume", MINUTE, |sim| claim(sim).is_some())
                .await;
            // Its pod comes, and in some of these stories reports the empty volume.
            tokio::time::sleep(u32::try_from(seed).unwrap() * SECOND / 2).await;
            let empty = claim(&sim);
            sim.edit("c", |spec| spec["size"] = json!(3));
            let is_done = |sim: &Simulation| sim.is_whole("c", 3) && sim.members("c").len() == 3;
            sim.expect("it has the size of before", 4 * MINUTE, is_done).await;
            tokio::time::sleep(2 * MINUTE).await;
            assert_eq!(claim(&sim), empty, "no member left it, so nobody deletes it");
            assert!(
                plan(&sim).contains("The cluster matches its spec"),
                "{}",
                plan(&sim)
            );
            sim.edit("c", |spec| spec["size"] = json!(5));
            sim.expect("it grows", 4 * MINUTE, |sim| sim.is_whole("c", 5))
                .await;
            assert_eq!(claim(&sim), empty);
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn a_wiped_member_is_replaced_under_load_whoever_it_is() {
    for member in ["c-0", "c-1", "c-2"] {
        run(3, |sim| async move {
            cluster(&sim, 3).await;
            let _writers = sim.write("c", 2, SECOND);
            tokio::time::sleep(20 * SECOND).await;
            sim.wipe(member);
            sim.expect("it is noticed", 20 * SECOND, |sim| !sim.is_whole("c", 3))
                .await;
            sim.expect("it is whole again", 4 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}

#[test]
fn an_operator_that_crashes_at_every_call_still_makes_a_cluster() {
    for nth in 1..120 {
        run(nth, |sim| async move {
            operator::install(&sim);
            sim.create("c", 3, "3.6.16");
            sim.crash_operator_at(nth, SECOND);
            sim.expect("the cluster is whole", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.check();
        });
    }
}
