//! What is written down of a plan, and what no plan is made for.

use etcd_operator_api::{EtcdCluster, EtcdClusterStatus};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use super::any_world::worlds;
use super::restore_props;
use super::scene::Scene;
use super::told::told;
use crate::desired::desired;
use crate::intent::Intent;
use crate::memory::Memory;
use crate::plan::plan;
use crate::status;
use crate::world::Ordinal;

/// The same worlds each time.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 256,
        rng_seed: RngSeed::Fixed(4),
        ..ProptestConfig::default()
    }
}

fn read(scene: &Scene, status: &EtcdClusterStatus) -> Memory {
    let place = |name: &str| Ordinal::of_name(&scene.world.desired.name, name);
    Memory::read(Some(status), place)
}

/// Parts of a spec that cannot be, and the field that each is refused for.
fn faults() -> Vec<(&'static str, Value)> {
    vec![
        ("spec.size", json!({"size": -1})),
        ("spec.size", json!({"size": 10})),
        ("spec.version", json!({"version": "abc"})),
        ("spec.storage.size", json!({"storage": {"size": "0"}})),
        ("spec.storage.size", json!({"storage": {"size": "big"}})),
        ("spec.pod.labels", json!({"pod": {"labels": {"app": "x"}}})),
        (
            "spec.pod.terminationGracePeriodSeconds",
            json!({"pod": {"terminationGracePeriodSeconds": 3601}}),
        ),
        ("spec.etcd.snapshotCount", json!({"etcd": {"snapshotCount": 99}})),
        (
            "spec.etcd.quotaBackendBytes",
            json!({"etcd": {"quotaBackendBytes": "0"}}),
        ),
        (
            "spec.etcd.extraArgs",
            json!({"etcd": {"extraArgs": ["--name=x"]}}),
        ),
        (
            "spec.TLS.static.operatorSecret",
            json!({"TLS": {"static": {"operatorSecret": "o"}}}),
        ),
    ]
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A cluster whose spec has these faults, and what was told of it before it had them.
fn spoilt(scene: &Scene, size: u8, faults: &[(&'static str, Value)]) -> EtcdCluster {
    let mut spec = json!({"size": size, "version": "3.6.16", "storage": {"size": "1Gi"}});
    for (_, fault) in faults {
        merge(&mut spec, fault);
    }
    let cluster = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "ns", "generation": 9},
        "spec": spec,
    });
    let mut cluster: EtcdCluster = serde_json::from_value(cluster).expect("a cluster");
    cluster.status = Some(told(scene));
    cluster
}

proptest! {
    #![proptest_config(config())]

    /// P7. One world is written down in one way, byte by byte, and read back as it was meant.
    #[test]
    fn what_is_written_down_is_the_same_each_time_and_is_read_back(scene in worlds()) {
        let written = serde_json::to_string(&told(&scene)).expect("JSON");
        prop_assert_eq!(&serde_json::to_string(&told(&scene.clone())).expect("JSON"), &written);
        let status: EtcdClusterStatus = serde_json::from_str(&written).expect("a status");
        prop_assert_eq!(&serde_json::to_string(&status).expect("JSON"), &written);
        let next = plan(&scene.world);
        let mut memory = Memory {
            generation: next.memory.generation,
            ..read(&scene, &status)
        };
        // How far members have come is written as it is by then.
        for (place, member) in &mut memory.members {
            let noted = next.memory.members.get(place).and_then(|noted| noted.reached.as_ref());
            let now = scene.world.seen(*place).status().map(|status| status.raft_index);
            if let (Some(reached), Some(noted)) = (&mut member.reached, noted) {
                prop_assert_eq!(&reached.pod, &noted.pod);
                prop_assert!(reached.index == noted.index || Some(reached.index) == now);
                reached.index = noted.index;
            }
        }
        prop_assert_eq!(&memory, &next.memory);
        let step = |intent: &Intent| {
            let step = intent.write(|place| scene.world.name(place));
            serde_json::to_string(&step).expect("JSON")
        };
        let steps = [memory.intent.as_ref().map(step), next.memory.intent.as_ref().map(step)];
        prop_assert_eq!(&steps[0], &steps[1]);
    }

    /// P7. So is what a restore has come to, which decides between commit and roll-back.
    #[test]
    fn a_restore_is_written_down_the_same_each_time_and_is_read_back(scene in restore_props::scenes()) {
        let written = serde_json::to_string(&told(&scene)).expect("JSON");
        prop_assert_eq!(&serde_json::to_string(&told(&scene.clone())).expect("JSON"), &written);
        let status: EtcdClusterStatus = serde_json::from_str(&written).expect("a status");
        prop_assert_eq!(&serde_json::to_string(&status).expect("JSON"), &written);
        let (memory, next) = (read(&scene, &status), plan(&scene.world).memory);
        prop_assert_eq!(&memory.intent, &next.intent);
        prop_assert_eq!(&memory.restore, &next.restore);
        prop_assert_eq!(memory.incarnation, next.incarnation);
        prop_assert_eq!(memory.last_incarnation, next.last_incarnation);
    }

    /// P8. A spec that cannot be is none that a plan could be made for, each fault is named, and what was begun before stays
    /// written down as it was.
    #[test]
    fn a_spec_that_cannot_be_yields_no_step(
        scene in worlds(),
        size in 1..=9_u8,
        faults in prop::sample::subsequence(faults(), 1..=4),
    ) {
        let cluster = spoilt(&scene, size, &faults);
        let Err(refusals) = desired(&cluster) else {
            return Err(TestCaseError::fail(format!("it was accepted: {faults:?}")));
        };
        for (field, _) in &faults {
            let is_named = refusals.iter().any(|refusal| refusal.field.as_str() == *field);
            prop_assert!(is_named, "{field} is not named: {refusals:?}");
        }
        let before = read(&scene, cluster.status.as_ref().expect("a status"));
        let after = status::refused(&cluster, &refusals, "default", scene.world.now);
        prop_assert_eq!(after.phase.as_str(), "Invalid");
        let kept = Memory {
            generation: before.generation,
            ..read(&scene, &after)
        };
        prop_assert_eq!(&kept, &before);
    }
}
