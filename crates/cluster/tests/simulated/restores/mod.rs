//! Restores carried out by the real controller, whatever goes wrong in the middle: to the end, or back to where it began.

mod asker;
mod basic;
mod crashes;
pub mod lives;
mod single;
mod swaps;

use std::time::Duration;

use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_testkit::ledger::Writers;
use etcd_operator_testkit::machine::FetchTrouble;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation};

use crate::stories::{cluster, status};
use crate::{MINUTE, SECOND};
use asker::Asked;

const MEMBERS: [&str; 3] = ["c-0", "c-1", "c-2"];

/// etcd's ID of the cluster as the status has it.
fn cluster_id(sim: &Simulation) -> String {
    status(sim)["clusterID"].as_str().unwrap_or_default().to_owned()
}

/// A cluster into which was written before a backup of it was made, and after that.
async fn written(sim: &Simulation) -> (Asked, Writers) {
    cluster(sim, 3).await;
    sim.ledger().guard_doors(NAMESPACE, "c");
    let writers = sim.write("c", 2, SECOND);
    tokio::time::sleep(15 * SECOND).await;
    let asked = Asked::of(sim, "back");
    tokio::time::sleep(15 * SECOND).await;
    (asked, writers)
}

/// The downloads of a member fail for good.
fn corrupt(sim: &Simulation, member: &str) {
    let trouble = FetchTrouble {
        reason: "ObjectCorrupt".to_owned(),
        retriable: false,
    };
    sim.machine().set_fetch_trouble(member, Some(trouble));
}

/// The downloads of a member fail for now.
fn unreachable(sim: &Simulation, member: &str) {
    let trouble = FetchTrouble {
        reason: "StoreUnreachable".to_owned(),
        retriable: true,
    };
    sim.machine().set_fetch_trouble(member, Some(trouble));
}

/// The old cluster is back after a restore that was withdrawn so many seconds after it was asked for. The store is away for this
/// member, so that nobody is prepared before.
async fn is_back_when_withdrawn(sim: &Simulation, asked: &Asked, member: &str, seconds: u32) {
    let before = cluster_id(sim);
    unreachable(sim, member);
    asked.ask();
    tokio::time::sleep(seconds * SECOND).await;
    assert_ne!(asked.progress()["committed"], true);
    asked.withdraw();
    sim.expect("it is forgotten", 10 * MINUTE, |sim| {
        status(sim)["restore"].is_null()
    })
    .await;
    is_back(sim, &before).await;
}

/// The old cluster is back as it was, with everything it ever acknowledged.
async fn is_back(sim: &Simulation, before: &str) {
    sim.expect("the old cluster is whole", 15 * MINUTE, |sim| {
        sim.is_whole("c", 3)
    })
    .await;
    assert_eq!(cluster_id(sim), before);
    assert_eq!(sim.ledger().verify_all(NAMESPACE, "c").await, 3);
    sim.check();
}

/// The cluster whose data a member serves.
fn serves(sim: &Simulation, member: &str) -> Option<String> {
    let process = sim.pod(member)?.process?;
    sim.etcds().cluster_of(process).map(|id| id.to_string())
}

/// Whether a member runs on restored data.
fn is_swapped(sim: &Simulation, member: &str, before: &str) -> bool {
    serves(sim, member).is_some_and(|id| id != before)
}

/// The permits of a member come late from now on.
fn delay(sim: &Simulation, member: &str, least: Duration, most: Duration) {
    if let Some(pod) = sim.pod(member) {
        sim.machine().set_lateness(&pod.node, least, most);
    }
}

/// Whether anybody still asks for a restore.
fn is_asked(sim: &Simulation) -> bool {
    sim.look("c", |cluster| {
        cluster["metadata"]["annotations"][ANNOTATION_RESTORE].is_string()
    }) == Some(true)
}
