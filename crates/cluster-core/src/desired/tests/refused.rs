//! What is refused, and in which words.

use etcd_operator_api::refusal::{Reason, Refusal};
use serde_json::{Value, json};

use super::cluster;
use crate::build::desired;

fn refused(name: &str, spec: &Value) -> Vec<Refusal> {
    desired(&cluster(name, spec)).expect_err(&format!("{name} {spec}"))
}

/// The only thing that is wrong, as users read it.
fn only_refusal(name: &str, spec: &Value) -> Refusal {
    let mut all = refused(name, spec);
    assert_eq!(all.len(), 1, "{name} {spec}: {all:?}");
    all.remove(0)
}

#[test]
fn a_value_that_cannot_be_used_is_refused_by_field_with_the_limits_and_a_remedy() {
    let claim = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let table: &[(Value, &str, &[&str])] = &[
        (
            json!({"size": -1}),
            "spec.size",
            &["is -1", "0 to 9", "for example: 3"],
        ),
        (json!({"size": 10}), "spec.size", &["is 10", "0 to 9"]),
        (
            json!({"size": 0}),
            "spec.size",
            &["hibernates", "storage.medium: PersistentVolume"],
        ),
        (
            json!({"size": 0, "storage": {"medium": "Memory"}}),
            "spec.size",
            &["outlives"],
        ),
        (
            json!({"version": "abc"}),
            "spec.version",
            &["'abc'", "MAJOR.MINOR.PATCH", "for example 3.6.16"],
        ),
        (json!({"version": "3.6"}), "spec.version", &["'3.6'"]),
        (
            json!({"image": "quay.io/a/etcd"}),
            "spec.version",
            &["spec.image", "no tag", "for example: 3.6.16"],
        ),
        (
            json!({"image": "host:5000/etcd"}),
            "spec.version",
            &["host:5000/etcd"],
        ),
        (
            json!({"image": "a/etcd:latest"}),
            "spec.version",
            &["a/etcd:latest"],
        ),
        (
            json!({"storage": {"size": "0"}}),
            "spec.storage.size",
            &["above zero", "for example: 8Gi"],
        ),
        (
            json!({"storage": {"size": "big"}}),
            "spec.storage.size",
            &["'big'", "for example 8Gi"],
        ),
        (
            json!({"storage": {"size": "-1Gi"}}),
            "spec.storage.size",
            &["-1Gi"],
        ),
        (
            json!({"storage": {"medium": "Memory", "size": "x"}}),
            "spec.storage.size",
            &["'x'"],
        ),
        (
            json!({"storage": {"medium": "EmptyDir", "storageClassName": "fast"}}),
            "spec.storage.storageClassName",
            &["PersistentVolume", "leave it out"],
        ),
        (
            json!({"storage": {}, "pod": {"persistentVolumeClaimSpec": claim}}),
            "spec.storage",
            &[
                "spec.pod.persistentVolumeClaimSpec",
                "keep one of them",
                "{size: 8Gi}",
            ],
        ),
        (
            json!({"pod": {"persistentVolumeClaimSpec": {"resources": {"requests": {"storage": "0"}}}}}),
            "spec.pod.persistentVolumeClaimSpec.resources.requests.storage",
            &["above zero"],
        ),
        (
            json!({"pod": {"labels": {"app": "x"}}}),
            "spec.pod.labels",
            &["'app'", "for example: team"],
        ),
        (
            json!({"pod": {"labels": {"etcd_node": "x"}}}),
            "spec.pod.labels",
            &["'etcd_node'"],
        ),
        (
            json!({"pod": {"annotations": {"etcd.database.coreos.com/permit": "x"}}}),
            "spec.pod.annotations",
            &["'etcd.database.coreos.com/permit'", "for example: owner"],
        ),
        (
            json!({"pod": {"etcdEnv": [{"name": "ETCD_DATA_DIR", "value": "/x"}]}}),
            "spec.pod.etcdEnv",
            &["ETCD_DATA_DIR", "sets the data directory"],
        ),
        (
            json!({"pod": {"resources": {"requests": {"cpu": "lots"}}}}),
            "spec.pod.resources.requests.cpu",
            &["'lots' is not a quantity", "500m"],
        ),
        (
            json!({"pod": {"resources": {"limits": {"memory": "8GB"}}}}),
            "spec.pod.resources.limits.memory",
            &["'8GB' is not a quantity", "8Gi"],
        ),
        (
            json!({"pod": {"terminationGracePeriodSeconds": 3601}}),
            "spec.pod.terminationGracePeriodSeconds",
            &["is 3601", "0 to 3600", "for example: 30"],
        ),
        (
            json!({"etcd": {"quotaBackendBytes": "0"}}),
            "spec.etcd.quotaBackendBytes",
            &["above zero", "4Gi"],
        ),
        (
            json!({"etcd": {"quotaBackendBytes": "lots"}}),
            "spec.etcd.quotaBackendBytes",
            &["'lots'"],
        ),
        (
            json!({"etcd": {"snapshotCount": 99}}),
            "spec.etcd.snapshotCount",
            &["is 99", "100 to 1000000"],
        ),
        (
            json!({"etcd": {"snapshotCount": -5}}),
            "spec.etcd.snapshotCount",
            &["is -5"],
        ),
        (
            json!({"etcd": {"heartbeatMs": 9}}),
            "spec.etcd.heartbeatMs",
            &["is 9", "10 to 10000"],
        ),
        (
            json!({"etcd": {"electionMs": 49}}),
            "spec.etcd.electionMs",
            &["is 49", "50 to 50000"],
        ),
        (
            json!({"etcd": {"heartbeatMs": 100, "electionMs": 499}}),
            "spec.etcd.electionMs",
            &["five times", "electionMs: 1000"],
        ),
        (
            json!({"etcd": {"maxRequestBytes": 1023}}),
            "spec.etcd.maxRequestBytes",
            &["is 1023", "1024"],
        ),
        (
            json!({"etcd": {"autoCompaction": {"retention": "soon"}}}),
            "spec.etcd.autoCompaction.retention",
            &["'soon'", "for example 1h30m"],
        ),
        (
            json!({"etcd": {"autoCompaction": {"mode": "Revision", "retention": "1h"}}}),
            "spec.etcd.autoCompaction.retention",
            &["'1h'", "number of revisions", "\"10000\""],
        ),
        (
            json!({"etcd": {"extraArgs": ["--name=x"]}}),
            "spec.etcd.extraArgs",
            &["--name", "after their pods"],
        ),
        (
            json!({"etcd": {"extraArgs": ["-data-dir"]}}),
            "spec.etcd.extraArgs",
            &["--data-dir"],
        ),
        (
            json!({"etcd": {"extraArgs": ["log-level=warn"]}}),
            "spec.etcd.extraArgs",
            &[
                "'log-level=warn'",
                "--name=value",
                "for example: --log-level=warn",
            ],
        ),
        (
            json!({"TLS": {"static": {"operatorSecret": "o"}}}),
            "spec.TLS.static.operatorSecret",
            &[
                "spec.TLS.static.member.serverSecret is not",
                "set both or neither",
            ],
        ),
        (
            json!({"TLS": {"static": {"member": {"serverSecret": "s"}, "operatorSecret": ""}}}),
            "spec.TLS.static.member.serverSecret",
            &["spec.TLS.static.operatorSecret is not", "set both or neither"],
        ),
    ];
    for (spec, field, words) in table {
        let refusal = only_refusal("orders", spec);
        assert_eq!(
            (refusal.reason, refusal.field.as_str()),
            (Reason::Invalid, *field),
            "{spec}"
        );
        for word in *words {
            assert!(
                refusal.problem.contains(word),
                "{spec}: «{word}» is not in: {refusal}"
            );
        }
    }
}

#[test]
fn a_name_that_children_cannot_carry_is_refused_with_an_example() {
    let long = "a".repeat(53);
    for (name, words) in [
        ("", "start with a letter"),
        ("1orders", "start with a letter"),
        ("Orders", "lower-case"),
        ("orders-", "lower-case"),
        ("or.ders", "lower-case"),
        ("orders-client", "suffix of client Services"),
        (long.as_str(), "at most 52"),
    ] {
        let refusal = only_refusal(name, &json!({}));
        assert_eq!(refusal.field, "metadata.name", "{name}");
        assert!(refusal.problem.contains(words), "{name}: {refusal}");
        assert!(
            refusal.problem.contains("for example: orders-etcd"),
            "{name}: {refusal}"
        );
    }
}

#[test]
fn a_feature_that_does_not_exist_is_refused_by_its_field_alone() {
    for (spec, field) in [
        (
            json!({"service": {"externalNames": ["etcd.example.com"]}}),
            "spec.service.externalNames",
        ),
        (json!({"TLS": {"managed": {}}}), "spec.TLS.managed"),
        (
            json!({"TLS": {"certManager": {"issuerRef": {"name": "i"}}}}),
            "spec.TLS.certManager",
        ),
        (json!({"auth": {"enabled": false}}), "spec.auth"),
        (json!({"maintenance": {}}), "spec.maintenance"),
        (
            json!({"recovery": {"onQuorumLoss": "Automatic"}}),
            "spec.recovery.onQuorumLoss",
        ),
        (
            json!({"recovery": {"onDataLoss": "RestoreLatestBackup"}}),
            "spec.recovery.onDataLoss",
        ),
        (json!({"monitoring": {}}), "spec.monitoring"),
    ] {
        assert_eq!(
            only_refusal("orders", &spec),
            Refusal::not_implemented(field),
            "{spec}"
        );
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let spec = json!({
        "size": 12, "version": "x", "auth": {"enabled": true},
        "etcd": {"snapshotCount": 1, "extraArgs": ["--wal-dir=/w", "bad"]},
        "pod": {"labels": {"app": "a"}, "terminationGracePeriodSeconds": -1},
        "storage": {"size": "none"},
    });
    let mut fields: Vec<_> = refused("9", &spec).into_iter().map(|r| r.field).collect();
    fields.sort();
    let wanted = [
        "metadata.name",
        "spec.auth",
        "spec.etcd.extraArgs",
        "spec.etcd.extraArgs",
        "spec.etcd.snapshotCount",
        "spec.pod.labels",
        "spec.pod.terminationGracePeriodSeconds",
        "spec.size",
        "spec.storage.size",
        "spec.version",
    ];
    assert_eq!(fields, wanted);
}
