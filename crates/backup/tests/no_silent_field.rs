//! No field of an `EtcdBackup` is ignored: each leaf of the schema changes the parsed spec, or is refused by its name or by
//! that of its parent.

use etcd_operator_api::{EtcdBackup, crd, refusal::Reason};
use etcd_operator_backup::desired::parse_spec;
use etcd_operator_testkit::samples::{Heard, Wishes};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The least number of leaves: fewer mean that the test no longer walks the whole schema.
const LEAVES: usize = 100;

/// Objects that together use every alternative, because the fields of an alternative matter only where it is used.
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
    let mut local = object("Local", "local", "etcd/orders");
    local["spec"]["local"]["persistentVolumeClaim"] = json!("backups");
    vec![
        object("S3", "s3", "bucket/key"),
        object("ABS", "abs", "container/key"),
        object("GCS", "gcs", "bucket/key"),
        object("OSS", "oss", "bucket/key"),
        local,
        scheduled,
        of_cluster,
    ]
}

fn hear(object: &Value) -> Option<Heard> {
    let backup: EtcdBackup = serde_json::from_value(object.clone()).ok()?;
    Some(Heard::of(
        &parse_spec(&backup, Timestamp::UNIX_EPOCH),
        |refusal| (refusal.reason == Reason::NotImplemented).then(|| refusal.field.clone()),
    ))
}

fn wishes() -> Wishes {
    Wishes {
        schema: crd::schema("EtcdBackup").expect("a schema"),
        bases: bases(),
        hear,
    }
}

#[test]
fn every_field_of_the_spec_changes_the_parsed_spec_or_is_refused_by_name() {
    assert_eq!(wishes().silent(LEAVES), Vec::<String>::new());
}

#[test]
fn an_ignored_field_is_reported() {
    assert_eq!(
        wishes().silent_with_unheard(LEAVES, "backupPolicy"),
        ["spec.backupPolicy.unheard", "spec.unheard"]
    );
}

#[test]
fn every_base_is_accepted_so_that_no_refusal_hides_a_field() {
    assert_eq!(wishes().refused_bases(), Vec::<String>::new());
}
