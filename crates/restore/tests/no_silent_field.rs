//! No field of an `EtcdRestore` is dropped in silence: each leaf of the schema changes what is desired, or is refused by
//! name, or by the name of what it belongs to.

use etcd_operator_api::{EtcdRestore, crd, refusal::Reason};
use etcd_operator_restore::desired::desired;
use etcd_operator_testkit::samples::{Heard, leaves, silent};
use serde_json::{Value, json};

/// Objects between them showing every alternative, because one that is not chosen has no say.
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
        object(json!({"backupStorageType": "S3", "s3": {"path": "bucket/key"}})),
        object(json!({"backupStorageType": "ABS", "abs": {"path": "container/key"}})),
        object(json!({"backupStorageType": "GCS", "gcs": {"path": "bucket/key"}})),
        object(json!({"backupStorageType": "OSS", "oss": {"path": "bucket/key"}})),
    ]
}

fn hear(object: &Value) -> Option<Heard> {
    let restore: EtcdRestore = serde_json::from_value(object.clone()).ok()?;
    let outcome = desired(&restore);
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
    assert!(wishes.len() > 200, "only {} leaves were found", wishes.len());
    silent(&wishes, &bases(), hear)
}

#[test]
fn every_field_of_the_spec_changes_what_is_desired_or_is_refused_by_name() {
    let schema = crd::schema("EtcdRestore").expect("a schema");
    assert_eq!(silent_in(&schema), Vec::<String>::new());
}

#[test]
fn a_field_that_nobody_reads_is_reported() {
    let mut schema = crd::schema("EtcdRestore").expect("a schema");
    schema["properties"]["spec"]["properties"]["unheard"] = json!({"type": "string"});
    schema["properties"]["spec"]["properties"]["source"]["properties"]["unheard"] =
        json!({"type": "boolean"});
    let mut found = silent_in(&schema);
    found.sort();
    assert_eq!(found, ["spec.source.unheard", "spec.unheard"]);
}

#[test]
fn every_base_is_accepted_so_that_no_refusal_hides_a_field() {
    for base in bases() {
        let heard = hear(&base).expect("a base can be decoded");
        assert!(heard.outcome.starts_with("Ok"), "{base}: {}", heard.outcome);
    }
}
