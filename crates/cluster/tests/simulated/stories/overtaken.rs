//! Operators that were stopped in the middle of their pass, and go on with what they saw before another one led.

use etcd_operator_testkit::gate::{Ambush, Gate, Side};
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::cluster;
use crate::{MINUTE, SECOND};

/// The operator is stopped right before its next call of this name, and another one leads.
pub async fn overtaken_at(sim: &Simulation, call: &str) -> Gate {
    let gate = sim.gate().unwrap();
    gate.lie_in_wait(Ambush {
        call: call.to_owned(),
        side: Side::Before,
        is_stop: true,
    });
    let held = tokio::time::timeout(5 * MINUTE, gate.held()).await;
    assert!(held.is_ok(), "never called: {call}\n{}", sim.timeline().text());
    sim.start_operator();
    gate
}

/// While nobody can tell who the members are there are as many pods as there were. Whoever saw that of one pod must not
/// hold on to it once there are three.
#[test]
fn what_was_seen_before_another_one_led_takes_no_member_its_pod() {
    for seed in 1..5 {
        run(seed, |sim| async move {
            cluster(&sim, 1).await;
            sim.stop("c-0", true);
            sim.edit("c", |spec| spec["size"] = json!(3));
            // From here on its status says nothing new.
            assert!(sim.quiet(30 * SECOND, 5 * MINUTE).await);
            assert_eq!(sim.members("c").len(), 1);
            let stopped = overtaken_at(&sim, "Report").await;
            sim.stop("c-0", false);
            sim.expect("there are three", 5 * MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            // Whoever was stopped knows of no other pod, and this one is as silent as it was.
            sim.stop("c-0", true);
            stopped.go_on();
            tokio::time::sleep(20 * SECOND).await;
            stopped.kill();
            assert_eq!(sim.members("c").len(), 3, "{}", sim.timeline().text());
            sim.stop("c-0", false);
            sim.expect("it stays whole", MINUTE, |sim| sim.is_whole("c", 3))
                .await;
            assert!(sim.ledger().verify(NAMESPACE, "c").await);
            sim.check();
        });
    }
}
