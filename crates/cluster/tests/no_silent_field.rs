//! No field of an `EtcdCluster` is dropped in silence: each leaf of the schema changes what is desired, or is refused by
//! name, or by the name of what it belongs to.

use etcd_operator_api::{EtcdCluster, crd, refusal::Reason};
use etcd_operator_cluster::desired::desired;
use etcd_operator_testkit::samples::{Heard, leaves, silent};
use serde_json::{Value, json};

/// Objects between them showing every alternative, because one that is not chosen has no say.
fn bases() -> Vec<Value> {
    let object = |spec: Value| json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"}, "spec": spec});
    vec![object(json!({}))]
}

fn hear(object: &Value) -> Option<Heard> {
    let cluster: EtcdCluster = serde_json::from_value(object.clone()).ok()?;
    let outcome = desired(&cluster);
    let refused = outcome.as_ref().err().into_iter().flatten();
    let not_built = refused
        .filter(|refusal| refusal.reason == Reason::NotImplemented)
        .map(|refusal| refusal.field.clone())
        .collect();
    Some(Heard {
        outcome: format!("{outcome:?}"),
        not_built,
    })
}

/// The silent fields of the spec. What else an object has is none of the user's wishes: the status is written by the
/// operator, and metadata is the API server's.
fn silent_in(schema: &Value) -> Vec<String> {
    let mut wishes = leaves(schema);
    wishes.retain(|leaf| leaf.is_within("spec"));
    assert!(wishes.len() > 180, "only {} leaves were found", wishes.len());
    silent(&wishes, &bases(), hear)
}

#[test]
fn every_field_of_the_spec_changes_what_is_desired_or_is_refused_by_name() {
    let schema = crd::schema("EtcdCluster").expect("a schema");
    assert_eq!(silent_in(&schema), Vec::<String>::new());
}

#[test]
fn a_field_that_nobody_reads_is_reported() {
    let mut schema = crd::schema("EtcdCluster").expect("a schema");
    schema["properties"]["spec"]["properties"]["unheard"] = json!({"type": "string"});
    schema["properties"]["spec"]["properties"]["pod"]["properties"]["unheard"] = json!({"type": "boolean"});
    let mut found = silent_in(&schema);
    found.sort();
    assert_eq!(found, ["spec.pod.unheard", "spec.unheard"]);
}

#[test]
fn every_base_is_accepted_so_that_no_refusal_hides_a_field() {
    for base in bases() {
        let heard = hear(&base).expect("a base can be decoded");
        assert!(heard.outcome.starts_with("Ok"), "{base}: {}", heard.outcome);
    }
}
