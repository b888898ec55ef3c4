//! No field of an `EtcdRestore` is silently ignored. Every leaf of the schema changes the desired state or is refused, by its
//! own name or by that of a parent field.

use etcd_operator_api::{EtcdRestore, crd, refusal::Reason};
use etcd_operator_restore::desired::desired;
use etcd_operator_testkit::samples::{Heard, Wishes};
use serde_json::{Value, json};

/// Least number of leaves; fewer would mean that the schema is incomplete.
const LEAVES: usize = 200;

/// Valid objects that together use every alternative, because unused alternatives have no effect.
fn bases() -> Vec<Value> {
    let object = |rest: Value| {
        let mut object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": "r"},
            "spec": rest,
        });
        object["spec"]["etcdCluster"] = json!({"name": "c"});
        object
    };
    let at = |at: Value| object(json!({"source": {"backup": {"name": "b"}, "at": at}}));
    vec![
        at(json!({})),
        at(json!({"revision": 7})),
        object(json!({"source": {"backup": {"name": "b"}}, "clusterTemplate": {"spec": {"size": 3}}})),
        object(json!({"backupStorageType": "S3", "s3": {"path": "bucket/key"}})),
        object(json!({"backupStorageType": "ABS", "abs": {"path": "container/key"}})),
        object(json!({"backupStorageType": "GCS", "gcs": {"path": "bucket/key"}})),
        object(json!({"backupStorageType": "OSS", "oss": {"path": "bucket/key"}})),
        object(json!({"backupStorageType": "Local", "local": {"persistentVolumeClaim": "c"}})),
    ]
}

fn hear(object: &Value) -> Option<Heard> {
    let restore: EtcdRestore = serde_json::from_value(object.clone()).ok()?;
    Some(Heard::of(&desired(&restore), |refusal| {
        (refusal.reason == Reason::NotImplemented).then(|| refusal.field.clone())
    }))
}

fn wishes() -> Wishes {
    Wishes {
        schema: crd::schema("EtcdRestore").expect("a schema"),
        bases: bases(),
        hear,
    }
}

#[test]
fn every_field_of_the_spec_changes_what_is_desired_or_is_refused_by_name() {
    assert_eq!(wishes().silent(LEAVES), Vec::<String>::new());
}

#[test]
fn an_ignored_field_is_reported() {
    assert_eq!(
        wishes().silent_with_unheard(LEAVES, "source"),
        ["spec.source.unheard", "spec.unheard"]
    );
}

#[test]
fn every_base_object_is_accepted() {
    assert_eq!(wishes().refused_bases(), Vec::<String>::new());
}
