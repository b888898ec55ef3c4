//! No field of an `EtcdBackup` is dropped in silence: each leaf of the schema changes what is desired, or is refused by
//! name, or by the name of what it belongs to.

use etcd_operator_api::{EtcdBackup, crd, refusal::Reason};
use etcd_operator_backup::desired::desired;
use etcd_operator_testkit::samples::{Heard, leaves, silent};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Objects between them showing every alternative, because one that is not chosen has no say.
fn bases() -> Vec<Value> {
    let object = |kind: &str, block: &str, path: &str| {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup", "metadata": {"name": "b"},
            "spec": {"etcdEndpoints": ["http://a:2379"], "storageType": kind, block: {"path": path}},
        })
    };
    let mut scheduled = object("S3", "s3", "bucket/key");
    scheduled["spec"]["schedule"] = json!("0 3 * * *");
    let mut of_cluster = object("S3", "s3", "bucket/key");
    of_cluster["spec"]["etcdEndpoints"] = json!([]);
    of_cluster["spec"]["etcdCluster"] = json!({"name": "c"});
    vec![
        object("S3", "s3", "bucket/key"),
        object("ABS", "abs", "container/key"),
        object("GCS", "gcs", "bucket/key"),
        object("OSS", "oss", "bucket/key"),
        scheduled,
        of_cluster,
    ]
}

fn hear(object: &Value) -> Option<Heard> {
    let backup: EtcdBackup = serde_json::from_value(object.clone()).ok()?;
    let outcome = desired(&backup, Timestamp::UNIX_EPOCH);
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
    assert!(wishes.len() > 100, "only {} leaves were found", wishes.len());
    silent(&wishes, &bases(), hear)
}

#[test]
fn every_field_of_the_spec_changes_what_is_desired_or_is_refused_by_name() {
    let schema = crd::schema("EtcdBackup").expect("a schema");
    assert_eq!(silent_in(&schema), Vec::<String>::new());
}

#[test]
fn a_field_that_nobody_reads_is_reported() {
    let mut schema = crd::schema("EtcdBackup").expect("a schema");
    schema["properties"]["spec"]["properties"]["unheard"] = json!({"type": "string"});
    schema["properties"]["spec"]["properties"]["backupPolicy"]["properties"]["unheard"] =
        json!({"type": "boolean"});
    let mut found = silent_in(&schema);
    found.sort();
    assert_eq!(found, ["spec.backupPolicy.unheard", "spec.unheard"]);
}

#[test]
fn every_base_is_accepted_so_that_no_refusal_hides_a_field() {
    for base in bases() {
        let heard = hear(&base).expect("a base can be decoded");
        assert!(heard.outcome.starts_with("Ok"), "{base}: {}", heard.outcome);
    }
}
