//! What lost thirty of thirty acknowledged writes without the permits, tried on real etcd: now nothing is lost.

use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};

use super::cluster;
use crate::{MINUTE, SECOND};

/// C is down for a while, everything is acknowledged by A and B, B loses its disk in some way, and C comes back.
async fn b_forgets(sim: &Simulation, forget: impl FnOnce(&Simulation)) {
    cluster(sim, 3).await;
    tokio::time::sleep(20 * SECOND).await;
    let away = sim.pod("c-2").unwrap().node;
    let at_rest = sim.pod("c-0").unwrap().node;
    sim.machine().lose(&away);
    let writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(30 * SECOND).await;
    drop(writers);
    assert!(sim.ledger().acknowledged() > 30);
    sim.machine().lose(&at_rest);
    forget(sim);
    sim.machine().restore(&away);
    tokio::time::sleep(2 * MINUTE).await;
    // A, which alone remembers, was away while B and C could have agreed without it.
    sim.machine().restore(&at_rest);
    sim.expect("it is whole again", 10 * MINUTE, |sim| sim.is_whole("c", 3))
        .await;
    assert!(sim.ledger().verify(NAMESPACE, "c").await);
    sim.check();
}

#[test]
fn a_voter_that_restarts_on_an_empty_disk_while_another_is_away_loses_nothing() {
    for seed in 1..6 {
        run(seed, |sim| async move {
            b_forgets(&sim, |sim| sim.wipe("c-1")).await;
        });
    }
}

#[test]
fn a_voter_on_a_volume_from_a_snapshot_loses_nothing() {
    for seed in 1..6 {
        run(seed, |sim| async move {
            let early = sim.clone();
            let snapshot = std::sync::Arc::new(std::sync::Mutex::new(None));
            let taken = std::sync::Arc::clone(&snapshot);
            tokio::spawn(async move {
                early.until(5 * MINUTE, |sim| sim.is_whole("c", 3)).await;
                *taken.lock().unwrap() = early.snapshot("c-1");
            });
            b_forgets(&sim, |sim| {
                let content = snapshot.lock().unwrap().take().unwrap();
                sim.put_claim_from_snapshot("c-1", content);
            })
            .await;
        });
    }
}
