//! No field is lost between the spec and the objects: each leaf of the schema changes what is built, or is refused, or
//! is one of those whose meaning is elsewhere.

use etcd_operator_api::{EtcdCluster, crd, refusal::Reason};
use etcd_operator_cluster_core::build::{ANNOTATION_SPEC_HASH, build, claim, desired};
use etcd_operator_testkit::samples::{Heard, Wishes};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use crate::fixtures::inputs;

/// Accepted from manifests of the older operator, named in the condition Accepted, and not needed.
const WITHOUT_EFFECT: [&str; 2] = ["spec.pod.DNSTimeoutInSecond", "spec.pod.busyboxImage"];
/// Not about objects: it decides whether the first start waits for a restore.
const AWAITS: &str = "spec.bootstrap.awaitRestore";
/// Nor is this: while it is set none of them is touched.
const PAUSED: &str = "spec.paused";
/// Not about objects either: it decides when a member is replaced.
const PATIENCE: &str = "spec.recovery.replaceAfter";
/// How changes reach running members, which no object says.
const UPDATES: [&str; 5] = [
    "spec.updates.allowDowngrade",
    "spec.updates.backupFirst",
    "spec.updates.minReadySeconds",
    "spec.updates.progressDeadlineSeconds",
    "spec.updates.strategy",
];

fn bases() -> Vec<Value> {
    let object = |spec: Value| json!({"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"}, "spec": spec});
    vec![object(json!({}))]
}

fn hear(object: &Value) -> Option<Heard> {
    let cluster: EtcdCluster = serde_json::from_value(object.clone()).ok()?;
    let built = desired(&cluster).map(|desired| {
        let inputs = inputs(&desired);
        let claim = claim(&desired, &inputs, &PersistentVolumeClaim::default());
        let mut objects = build(&desired, &inputs).expect("what is accepted can be built");
        // A hash of the spec would hear everything.
        let template = objects.members.spec.template.metadata.as_mut().expect("metadata");
        let hash = template
            .annotations
            .as_mut()
            .expect("annotations")
            .remove(ANNOTATION_SPEC_HASH);
        assert!(hash.is_some());
        objects.members.metadata.annotations = None;
        (objects, claim)
    });
    Some(Heard::of(&built, |refusal| {
        (refusal.reason == Reason::NotImplemented).then(|| refusal.field.clone())
    }))
}

#[test]
fn every_field_of_the_spec_reaches_an_object() {
    let wishes = Wishes {
        schema: crd::schema("EtcdCluster").expect("a schema"),
        bases: bases(),
        hear,
    };
    let elsewhere = [
        &[AWAITS, PAUSED],
        WITHOUT_EFFECT.as_slice(),
        &[PATIENCE],
        &UPDATES,
    ]
    .concat();
    assert_eq!(wishes.silent(180), elsewhere);
}
