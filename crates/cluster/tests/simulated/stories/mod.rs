//! Stories with the real controller, told one by one.

mod basic;
mod downgrades;
mod experiments;
mod images;
mod lives;
mod losses;
mod meddled;
mod mends;
mod overtaken;
mod rollouts;
mod rules;
mod stale;
mod upgrades;

use etcd_operator_testkit::simulation::{NAMESPACE, Simulation};
use serde_json::{Value, json};

use crate::{MINUTE, operator};

/// A cluster of this size, whole.
pub async fn cluster(sim: &Simulation, size: u8) {
    cluster_of(sim, size, "3.6.16").await;
}

/// The same of a version.
pub async fn cluster_of(sim: &Simulation, size: u8, version: &str) {
    operator::install(sim);
    sim.create("c", size, version);
    sim.expect("the cluster is whole", 3 * MINUTE, |sim| sim.is_whole("c", size))
        .await;
    sim.expect("it is known", MINUTE, |sim| status(sim)["clusterID"].is_string())
        .await;
}

/// The same with more in its spec.
pub async fn cluster_with(sim: &Simulation, size: u8, more: Value) {
    operator::install(sim);
    let mut spec = json!({"size": size, "version": "3.6.16"});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    sim.create_with(json!({"metadata": {"name": "c", "namespace": NAMESPACE}, "spec": spec}));
    sim.expect("the cluster is whole", 3 * MINUTE, |sim| sim.is_whole("c", size))
        .await;
}

/// What the operator says of the cluster.
pub fn status(sim: &Simulation) -> Value {
    sim.cluster("c")
        .map_or(Value::Null, |cluster| cluster["status"].clone())
}

/// Why nothing goes on, in the operator's words.
pub fn plan(sim: &Simulation) -> String {
    status(sim)["plan"].to_string()
}

/// Whether a status says that the quorum is lost.
pub fn is_quorum_lost(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "QuorumLost" && one["status"] == "True")
}

/// What is under way, in one word.
pub fn step(sim: &Simulation) -> String {
    let step = status(sim)["plan"]["step"]["kind"].clone();
    step.as_str().unwrap_or_default().to_owned()
}

/// The UIDs of all claims that there are.
pub fn claims(sim: &Simulation) -> String {
    let namespace = etcd_operator_testkit::simulation::NAMESPACE;
    let claims = sim.fake().list_objects("v1", "PersistentVolumeClaim", namespace);
    let uids: Vec<&str> = claims
        .iter()
        .filter_map(|claim| claim["metadata"]["uid"].as_str())
        .collect();
    uids.join(",")
}

/// No member reaches another one.
pub fn sever(sim: &Simulation, size: u8) {
    for one in 0..size {
        for other in (0..size).filter(|other| *other != one) {
            sim.etcds().cut(&format!("c-{one}"), &format!("c-{other}"));
        }
    }
}
