//! Stories with the small operator that does things right: they end well, nobody is blamed, and they repeat themselves.

use std::time::Duration;

use etcd_operator_testkit::simulation::{Schedule, Simulation, run};
use serde_json::json;

use crate::apprentice::{Apprentice, Flaw};

pub const MINUTE: Duration = Duration::from_mins(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// A cluster of this size, whole, made by an operator with this flaw.
pub async fn cluster(sim: &Simulation, size: u8, flaw: Flaw) {
    sim.operate(move |seat| async move { Apprentice::run(seat, "c", flaw, true).await });
    sim.create("c", size, "3.6.16");
    sim.expect("the cluster is whole", 2 * MINUTE, |sim| sim.is_whole("c", size))
        .await;
    sim.until(MINUTE, |sim| {
        let cluster = sim.cluster("c");
        cluster.is_some_and(|cluster| cluster["status"]["clusterID"].is_string())
    })
    .await;
}

#[test]
fn a_cluster_is_made_and_keeps_every_write() {
    run(1, |sim| async move {
        cluster(&sim, 3, Flaw::None).await;
        let writers = sim.write("c", 4, SECOND);
        tokio::time::sleep(MINUTE).await;
        drop(writers);
        assert!(sim.ledger().verify("default", "c").await);
        assert!(sim.ledger().acknowledged() > 200);
        sim.check();
    });
}

#[test]
fn a_lost_disk_is_replaced_under_load_whoever_had_it() {
    for member in ["c-0", "c-1", "c-2"] {
        run(2, |sim| async move {
            cluster(&sim, 3, Flaw::None).await;
            let _writers = sim.write("c", 2, SECOND);
            tokio::time::sleep(10 * SECOND).await;
            sim.wipe(member);
            sim.expect("it is noticed", 10 * SECOND, |sim| !sim.is_whole("c", 3))
                .await;
            sim.expect("it is whole again", 2 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify("default", "c").await);
            sim.check();
        });
    }
}

#[test]
fn a_cluster_grows_and_shrinks_under_load() {
    run(3, |sim| async move {
        cluster(&sim, 1, Flaw::None).await;
        let _writers = sim.write("c", 2, SECOND);
        for size in [3, 5, 3, 1] {
            sim.edit("c", |spec| spec["size"] = json!(size));
            sim.expect("it has the size", 3 * MINUTE, |sim| sim.is_whole("c", size))
                .await;
        }
        assert!(sim.ledger().verify("default", "c").await);
        sim.check();
    });
}

#[test]
fn an_operator_that_crashes_at_every_call_still_makes_a_cluster() {
    for nth in (1..60).step_by(5) {
        run(nth, |sim| async move {
            sim.operate(|seat| async move { Apprentice::run(seat, "c", Flaw::None, true).await });
            sim.create("c", 3, "3.6.16");
            sim.crash_operator_at(nth, SECOND);
            sim.expect("the cluster is whole", 3 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.expect("it crashed", MINUTE, |sim| sim.starts() == 2).await;
            sim.expect("the cluster stays whole", MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            sim.check();
        });
    }
}

fn weather(seed: u64) -> (String, String, usize) {
    run(seed, |sim| async move {
        cluster(&sim, 3, Flaw::None).await;
        let writers = sim.write("c", 2, 2 * SECOND);
        let injected = sim.suffer(&Schedule::of("c", 12)).await;
        tokio::time::sleep(2 * MINUTE).await;
        drop(writers);
        sim.ledger().verify("default", "c").await;
        (sim.complaint(), sim.timeline().text(), injected.len())
    })
}

#[test]
fn in_bad_weather_nobody_is_blamed_who_did_nothing_wrong() {
    let mut faults = 0;
    for seed in 0..10 {
        let (complaint, _, injected) = weather(seed);
        assert!(complaint.is_empty(), "{complaint}");
        faults += injected;
    }
    assert!(faults > 80, "{faults}");
}

#[test]
fn a_seed_replays_byte_for_byte() {
    for seed in [11, 12] {
        let ((_, first, injected), (_, second, _)) = (weather(seed), weather(seed));
        let told = first.lines().filter(|line| line.contains(" faults ")).count();
        assert!(injected > 8 && told > injected, "{injected} faults of {first}");
        assert_eq!(first, second);
    }
}
