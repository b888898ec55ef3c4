//! What is accepted, and as what.

mod refused;

use std::time::Duration;

use etcd_operator_api::cluster::Retention;
use serde_json::Value;

use super::*;
use crate::build::desired;

fn cluster(name: &str, spec: &Value) -> EtcdCluster {
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).expect("a cluster")
}

fn accepted(spec: &Value) -> Desired {
    desired(&cluster("orders", spec)).unwrap_or_else(|refused| panic!("{spec}: {refused:?}"))
}

#[test]
fn an_empty_spec_is_three_members_on_ephemeral_storage_in_plain_text() {
    let desired = accepted(&json!({}));
    assert_eq!(desired.name.to_string(), "orders");
    assert_eq!(desired.size.get(), 3);
    let image = Image::Tagged {
        repository: None,
        version: None,
    };
    assert_eq!(desired.image, image);
    assert!(desired.storage.is_ephemeral() && !desired.paused);
    assert_eq!((desired.pod, desired.options, desired.tls), <_>::default());
    assert_eq!(desired.without_effect, Vec::<&str>::new());
}

#[test]
fn the_image_is_a_tagged_repository_or_a_whole_reference_with_a_version() {
    let version = |text: &str| text.parse::<Version>().expect("a version");
    let tagged = |repository: Option<&str>, v: Option<&str>| Image::Tagged {
        repository: repository.map(str::to_owned),
        version: v.map(version),
    };
    let whole = |reference: &str, v: &str| Image::Whole {
        reference: reference.to_owned(),
        version: version(v),
    };
    for (spec, image) in [
        (json!({"version": "3.2.25"}), tagged(None, Some("3.2.25"))),
        (
            json!({"version": "v3.6.1", "repository": "a/b"}),
            tagged(Some("a/b"), Some("3.6.1")),
        ),
        (
            json!({"version": "", "repository": "", "image": ""}),
            tagged(None, None),
        ),
        (
            json!({"image": "a/etcd:v3.6.16"}),
            whole("a/etcd:v3.6.16", "3.6.16"),
        ),
        (
            json!({"image": "a/etcd@sha256:0", "version": "3.5.9"}),
            whole("a/etcd@sha256:0", "3.5.9"),
        ),
        (
            json!({"image": "a/etcd:v3.6.1", "version": "3.6.2"}),
            whole("a/etcd:v3.6.1", "3.6.2"),
        ),
    ] {
        assert_eq!(accepted(&spec).image, image, "{spec}");
    }
}

#[test]
fn storage_is_described_as_what_it_is() {
    let claim = json!({"storageClassName": "slow", "resources": {"requests": {"storage": "2Gi"}}});
    for (spec, words, ephemeral) in [
        (json!({"storage": {}}), "PersistentVolume 8Gi", false),
        (
            json!({"size": 0, "storage": {"size": "1Gi"}}),
            "PersistentVolume 1Gi",
            false,
        ),
        (
            json!({"storage": {"size": "1Gi", "storageClassName": "fast"}}),
            "PersistentVolume 1Gi of class fast",
            false,
        ),
        (
            json!({"pod": {"persistentVolumeClaimSpec": claim}}),
            "PersistentVolume 2Gi of class slow",
            false,
        ),
        (
            json!({"storage": {"medium": "Memory", "size": "1Gi"}}),
            "Memory",
            true,
        ),
        (json!({"storage": {"medium": "EmptyDir"}}), "EmptyDir", true),
        (json!({}), "EmptyDir", true),
    ] {
        let storage = accepted(&spec).storage;
        assert_eq!(
            (storage.describe().as_str(), storage.is_ephemeral()),
            (words, ephemeral),
            "{spec}"
        );
    }
    let spec = json!({"storage": {"medium": "Memory", "size": "1Gi", "retention": "Retain"}});
    let Storage::Ephemeral {
        in_memory,
        limit,
        retention,
        ..
    } = accepted(&spec).storage
    else {
        panic!("not ephemeral");
    };
    assert_eq!(
        (in_memory, limit, retention),
        (true, Some(1 << 30), Retention::Retain)
    );
}

#[test]
fn settings_of_etcd_become_numbers_and_spans() {
    let compaction = |mode: &str, retention: &str| {
        let spec = json!({"etcd": {"autoCompaction": {"mode": mode, "retention": retention}}});
        accepted(&spec).options.compaction
    };
    let hours = |n: u64| Some(Compaction::Periodic(Duration::from_hours(n)));
    assert_eq!(
        compaction("Periodic", "90m"),
        Some(Compaction::Periodic(Duration::from_mins(90)))
    );
    assert_eq!(compaction("Periodic", "2"), hours(2));
    assert_eq!(compaction("Revision", "2"), Some(Compaction::Revisions(2)));
    let options = accepted(&json!({"etcd": {
        "quotaBackendBytes": "4Gi", "snapshotCount": 100, "heartbeatMs": 100, "electionMs": 500,
        "maxRequestBytes": 1024, "extraArgs": ["--log-level=warn", "--pre-vote"],
    }}));
    let options = options.options;
    assert_eq!(options.quota, Some(4 << 30));
    assert_eq!(
        (options.heartbeat_ms, options.election_ms),
        (Some(100), Some(500))
    );
    assert_eq!(
        (options.snapshot_count, options.max_request_bytes),
        (Some(100), Some(1024))
    );
    assert_eq!(options.extra, ["--log-level=warn", "--pre-vote"]);
}

#[test]
fn tls_is_taken_by_halves_only_between_members() {
    let tls = |spec: &Value| accepted(&json!({"TLS": {"static": spec}})).tls;
    let peer = tls(&json!({"member": {"peerSecret": "p"}}));
    assert_eq!((peer.peer.as_deref(), peer.client), (Some("p"), None));
    let client = tls(&json!({"member": {"serverSecret": "s", "peerSecret": ""}, "operatorSecret": "o"}));
    let wanted = ClientTls {
        server: "s".to_owned(),
        operator: "o".to_owned(),
    };
    assert_eq!((client.peer, client.client), (None, Some(wanted)));
}

#[test]
fn fields_that_are_taken_and_do_nothing_are_named() {
    let affinity = json!({"podAffinity": {}});
    let spec = json!({
        "image": "a/etcd:v3.6.1", "repository": "a/b",
        "pod": {"busyboxImage": "b", "DNSTimeoutInSecond": 5, "antiAffinity": true, "affinity": affinity},
    });
    let desired = accepted(&spec);
    let wanted = [
        "spec.pod.busyboxImage",
        "spec.pod.DNSTimeoutInSecond",
        "spec.pod.antiAffinity",
        "spec.repository",
    ];
    assert_eq!(desired.without_effect, wanted);
    assert!(!desired.pod.one_per_node);
    assert!(accepted(&json!({"pod": {"antiAffinity": true}})).pod.one_per_node);
    let silent = json!({"pod": {"busyboxImage": "", "DNSTimeoutInSecond": 0, "antiAffinity": false}});
    assert_eq!(accepted(&silent).without_effect, Vec::<&str>::new());
}
