//! What is written down of a plan, and what no plan is made for.

use etcd_operator_api::{EtcdCluster, EtcdClusterStatus};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use super::any_cluster::worlds;
use super::explanations::status_of;
use super::restore_props;
use super::scene::Scene;
use crate::build::desired;
use crate::observed_state::Ordinal;
use crate::pending_operation::PendingOperation;
use crate::persisted_state::PersistedState;
use crate::plan::plan;
use crate::status;

/// The same worlds each time.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 256,
        rng_seed: RngSeed::Fixed(4),
        ..ProptestConfig::default()
    }
}

fn read(scene: &Scene, status: &EtcdClusterStatus) -> PersistedState {
    let ordinal = |name: &str| Ordinal::from_name(&scene.observed.desired.name, name);
    PersistedState::read(Some(status), ordinal)
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
    cluster.status = Some(status_of(scene));
    cluster
}

proptest! {
    #![proptest_config(config())]

    /// P7. One world is written down in one way, byte by byte, and read back as it was meant.
    #[test]
    fn what_is_written_down_is_the_same_each_time_and_is_read_back(scene in worlds()) {
        let written = serde_json::to_string(&status_of(&scene)).expect("JSON");
        prop_assert_eq!(&serde_json::to_string(&status_of(&scene.clone())).expect("JSON"), &written);
        let status: EtcdClusterStatus = serde_json::from_str(&written).expect("a status");
        prop_assert_eq!(&serde_json::to_string(&status).expect("JSON"), &written);
        let next = plan(&scene.observed);
        let mut persisted = PersistedState {
            generation: next.persisted.generation,
            ..read(&scene, &status)
        };
        // How far members have come is written as it is by then.
        for (ordinal, member) in &mut persisted.members {
            let noted = next.persisted.members.get(ordinal).and_then(|noted| noted.last_index.as_ref());
            let now = scene.observed.member(*ordinal).status().map(|status| status.raft_index);
            if let (Some(last_index), Some(noted)) = (&mut member.last_index, noted) {
                prop_assert_eq!(&last_index.pod, &noted.pod);
                prop_assert!(last_index.index == noted.index || Some(last_index.index) == now);
                last_index.index = noted.index;
            }
        }
        prop_assert_eq!(&persisted, &next.persisted);
        let step = |pending: &PendingOperation| {
            let step = pending.write(|ordinal| scene.observed.name(ordinal));
            serde_json::to_string(&step).expect("JSON")
        };
        let steps = [persisted.pending.as_ref().map(step), next.persisted.pending.as_ref().map(step)];
        prop_assert_eq!(&steps[0], &steps[1]);
    }

    /// P7. So is what a restore has come to, which decides between commit and roll-back.
    #[test]
    fn a_restore_is_written_down_the_same_each_time_and_is_read_back(scene in restore_props::scenes()) {
        let written = serde_json::to_string(&status_of(&scene)).expect("JSON");
        prop_assert_eq!(&serde_json::to_string(&status_of(&scene.clone())).expect("JSON"), &written);
        let status: EtcdClusterStatus = serde_json::from_str(&written).expect("a status");
        prop_assert_eq!(&serde_json::to_string(&status).expect("JSON"), &written);
        let (persisted, next) = (read(&scene, &status), plan(&scene.observed).persisted);
        prop_assert_eq!(&persisted.pending, &next.pending);
        prop_assert_eq!(&persisted.restore, &next.restore);
        prop_assert_eq!(persisted.incarnation, next.incarnation);
        prop_assert_eq!(persisted.last_incarnation, next.last_incarnation);
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
        let after = status::for_refused_spec(&cluster, &refusals, "default", scene.observed.now);
        prop_assert_eq!(after.phase.as_str(), "Invalid");
        let kept = PersistedState {
            generation: before.generation,
            ..read(&scene, &after)
        };
        prop_assert_eq!(&kept, &before);
    }
}
