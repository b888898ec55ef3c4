//! What is generated is what a user could have stored: the API server takes it, our types read it, and no field is out
//! of reach.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use std::collections::BTreeSet;
use std::fmt::Debug;

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use etcd_operator_testkit::Fake;
use etcd_operator_testkit::samples::{leaves, objects, seeds};
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const KINDS: [&str; 3] = ["EtcdCluster", "EtcdBackup", "EtcdRestore"];

/// How many objects of each kind are looked at.
const MANY: usize = 40;

fn generated(kind: &str) -> Vec<Value> {
    let strategy = objects(&crd::schema(kind).unwrap(), "spec", seeds(kind));
    let mut runner = TestRunner::deterministic();
    let tree = |_| strategy.new_tree(&mut runner).unwrap().current();
    (0..MANY).map(tree).collect()
}

fn server(kind: &str) -> Api<DynamicObject> {
    let fake = Fake::new();
    for definition in crd::all() {
        fake.register(&definition);
    }
    let kind = GroupVersionKind::gvk(etcd_operator_api::GROUP, etcd_operator_api::VERSION, kind);
    Api::namespaced_with(fake.client("default"), "default", &ApiResource::from_gvk(&kind))
}

async fn create(api: &Api<DynamicObject>, name: &str, object: &Value) -> Result<Value, kube::Error> {
    let mut object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    object.metadata.name = Some(name.to_owned());
    let stored = api.create(&PostParams::default(), &object).await?;
    Ok(serde_json::to_value(stored).unwrap())
}

/// Whether `whole` has everything that `part` has; what is off may be left out, and quantities become texts.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, value)| {
            whole
                .get(key)
                .map_or(*value == false, |found| holds(found, value))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| holds(whole, part))
        }
        (Value::String(whole), Value::Number(part)) => *whole == part.to_string(),
        _ => whole == part,
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_server_takes_every_generated_object_and_drops_nothing() {
    for kind in KINDS {
        let api = server(kind);
        for (number, object) in generated(kind).iter().enumerate() {
            let stored = create(&api, &format!("one-{number}"), object)
                .await
                .unwrap_or_else(|error| panic!("{object}: {error}"));
            assert!(
                holds(&stored["spec"], &object["spec"]),
                "{object} became {stored}"
            );
        }
    }
}

fn read<K: DeserializeOwned + Serialize + Debug>(kind: &str) {
    for object in generated(kind) {
        let typed: K = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{object}: {e}"));
        let again = serde_json::to_value(&typed).unwrap();
        assert!(holds(&again["spec"], &object["spec"]), "{object} became {again}");
    }
}

#[test]
fn our_types_read_every_generated_object_and_lose_nothing() {
    read::<EtcdCluster>("EtcdCluster");
    read::<EtcdBackup>("EtcdBackup");
    read::<EtcdRestore>("EtcdRestore");
}

#[test]
fn generated_objects_differ_and_are_more_than_their_seeds() {
    for kind in KINDS {
        let all: BTreeSet<String> = generated(kind).iter().map(Value::to_string).collect();
        assert!(
            all.len() > MANY * 3 / 4,
            "{kind}: {} different objects",
            all.len()
        );
        let sizes: usize = all.iter().map(String::len).sum();
        let seeds: usize = seeds(kind).iter().map(|seed| seed.to_string().len()).sum();
        let of_seed = seeds / self::seeds(kind).len();
        assert!(sizes / all.len() > of_seed * 2, "{kind}: they hardly grow");
    }
}

#[test]
fn the_same_chance_gives_the_same_objects() {
    assert_eq!(generated("EtcdBackup"), generated("EtcdBackup"));
}

#[tokio::test(start_paused = true)]
async fn no_field_of_a_spec_is_out_of_reach() {
    for kind in KINDS {
        let api = server(kind);
        let mut out_of_reach = Vec::new();
        for (number, leaf) in leaves(&crd::schema(kind).unwrap()).iter().enumerate() {
            if !leaf.is_within("spec") {
                continue;
            }
            let mut taken = false;
            'tries: for sample in leaf.samples() {
                for seed in seeds(kind) {
                    let object = leaf.with(&seed, sample, 0);
                    if create(&api, &format!("one-{number}"), &object).await.is_ok() {
                        taken = true;
                        break 'tries;
                    }
                }
            }
            if !taken {
                out_of_reach.push(leaf.path().to_owned());
            }
        }
        assert_eq!(out_of_reach, Vec::<String>::new(), "{kind}");
    }
}
