//! No field of an `EtcdCluster` is dropped in silence: each leaf of the schema changes what is desired, or is refused by
//! name, or by the name of what it belongs to.

use etcd_operator_api::{EtcdCluster, crd, refusal::Reason};
use etcd_operator_cluster_core::build::desired;
use etcd_operator_testkit::samples::{Heard, Wishes};
use serde_json::{Value, json};

/// Fewer would mean that the schema is not what it was.
const LEAVES: usize = 180;

/// Objects between them showing every alternative, because one that is not chosen has no say.
fn bases() -> Vec<Value> {
    let object = |spec: Value| json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"}, "spec": spec});
    vec![object(json!({}))]
}

fn hear(object: &Value) -> Option<Heard> {
    let cluster: EtcdCluster = serde_json::from_value(object.clone()).ok()?;
    Some(Heard::of(&desired(&cluster), |refusal| {
        (refusal.reason == Reason::NotImplemented).then(|| refusal.field.clone())
    }))
}

fn wishes() -> Wishes {
    Wishes {
        schema: crd::schema("EtcdCluster").expect("a schema"),
        bases: bases(),
        hear,
    }
}

#[test]
fn every_field_of_the_spec_changes_what_is_desired_or_is_refused_by_name() {
    assert_eq!(wishes().silent(LEAVES), Vec::<String>::new());
}

#[test]
fn a_field_that_nobody_reads_is_reported() {
    assert_eq!(
        wishes().silent_with_unheard(LEAVES, "pod"),
        ["spec.pod.unheard", "spec.unheard"]
    );
}

#[test]
fn every_base_is_accepted_so_that_no_refusal_hides_a_field() {
    assert_eq!(wishes().refused_bases(), Vec::<String>::new());
}
