//! What a spec may not ask of a pod or of its version of etcd.

use etcd_operator_api::refusal::Refusal;
use etcd_operator_cluster_core::build::{BuildInputs, NoOperatorImage, build, desired};
use serde_json::{Value, json};

use crate::fixtures::{asks, cluster, inputs};

fn only_refusal(spec: &Value) -> Refusal {
    let mut all = desired(&cluster(spec)).expect_err(&spec.to_string());
    assert_eq!(all.len(), 1, "{spec}: {all:?}");
    all.remove(0)
}

#[test]
fn what_cannot_be_built_is_refused_by_field_with_a_remedy() {
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let env = |variables: Value| json!({"pod": {"etcdEnv": variables}});
    let extra = |version: &str, flag: &str| json!({"version": version, "etcd": {"extraArgs": [flag]}});
    let args = "spec.etcd.extraArgs";
    for (spec, field, words) in [
        (
            extra("3.5.35", "--feature-gates=A=true"),
            args,
            &["3.5.35", "since 3.6.0"][..],
        ),
        (extra("3.6.16", "--enable-v2"), args, &["enable-v2", "before 3.6"]),
        (
            extra("3.2.25", "--max-txn-ops=9"),
            args,
            &["3.2.25", "since 3.3.0"],
        ),
        (
            json!({"etcd": {"extraArgs": ["--log-level=warn", "--log-level=info"]}}),
            args,
            &["--log-level", "twice"],
        ),
        (
            json!({"version": "3.2.25", "etcd": {"autoCompaction": {"retention": "90m"}}}),
            "spec.etcd.autoCompaction.retention",
            &["whole hours"],
        ),
        (
            json!({"version": "3.2.25", "etcd": {"autoCompaction": {"mode": "Revision", "retention": "90"}}}),
            "spec.etcd.autoCompaction.mode",
            &["3.2.25", "since 3.3.0"],
        ),
        (
            env(json!([{"name": "ETCD_LOGGER", "value": "zap"}])),
            "spec.pod.etcdEnv",
            &["ETCD_LOGGER", "does not start", "--logger=VALUE"],
        ),
        (
            env(json!([{"name": "POD_NAME", "value": "a"}])),
            "spec.pod.etcdEnv",
            &["POD_NAME", "$(POD_NAME)"],
        ),
        (
            env(json!([{"name": "A"}, {"name": "A"}])),
            "spec.pod.etcdEnv",
            &["A twice", "keep one"],
        ),
        (
            json!({"pod": {"topologySpreadConstraints": [spread, spread]}}),
            "spec.pod.topologySpreadConstraints",
            &["topologyKey: zone", "keep one"],
        ),
        (
            json!({"pod": {"ClusterDomain": "Cluster Local"}}),
            "spec.pod.ClusterDomain",
            &["for example: cluster.local"],
        ),
        (
            json!({"pod": {"labels": {"app.kubernetes.io/managed-by": "helm"}}}),
            "spec.pod.labels",
            &["app.kubernetes.io/managed-by", "for example: team"],
        ),
        (
            json!({"storage": {"labels": {"app": "x"}}}),
            "spec.storage.labels",
            &["'app'", "for example: backup"],
        ),
        (
            json!({"service": {"annotations": {"etcd.version": "x"}}}),
            "spec.service.annotations",
            &["'etcd.version'", "for example: owner"],
        ),
        (
            json!({"service": {"loadBalancerClass": "x"}}),
            "spec.service.loadBalancerClass",
            &["type: LoadBalancer"],
        ),
        (
            json!({"repository": "quay.io/coreos/etcd:v3.6.1"}),
            "spec.repository",
            &["without tag", "for example: quay.io/coreos/etcd"],
        ),
        (
            json!({"version": "3.1.20"}),
            "spec.version",
            &["3.2 to 3.7", "3.6.16"],
        ),
        (
            json!({"version": "3.5.1"}),
            "spec.version",
            &["3.5.1", "take 3.5.35"],
        ),
        (
            json!({"image": "a/etcd:v3.8.0"}),
            "spec.image",
            &["3.8.0", "3.2 to 3.7"],
        ),
        (
            json!({"version": "3.6.0-rc.0"}),
            "spec.version",
            &["not a release"],
        ),
    ] {
        let refusal = only_refusal(&spec);
        assert_eq!(refusal.field, field, "{spec}");
        for word in words {
            assert!(
                refusal.problem.contains(word),
                "{spec}: «{word}» is not in: {refusal}"
            );
        }
    }
}

#[test]
fn a_flag_is_judged_by_the_version_that_runs_where_the_user_names_none() {
    let spec = json!({"etcd": {"extraArgs": ["--enable-v2"]}});
    let newest = only_refusal(&spec);
    assert_eq!(newest.field, "spec.etcd.extraArgs");
    let mut old = cluster(&spec);
    old.status.get_or_insert_default().current_version = "3.5.35".to_owned();
    assert_eq!(desired(&old).err(), None);
}

#[test]
fn a_version_that_cannot_take_the_flags_is_refused_when_it_is_its_turn() {
    let desired = asks(&json!({"version": "3.6.16", "etcd": {"extraArgs": ["--feature-gates=A=true"]}}));
    let older = BuildInputs {
        version: "3.5.35".parse().expect("a version"),
        ..inputs(&desired)
    };
    let refused = build(&desired, &older).expect_err("3.5 has no gates");
    assert_eq!(refused[0].field, "spec.etcd.extraArgs");
}

#[test]
fn without_its_own_image_the_operator_says_how_to_give_it() {
    let said = NoOperatorImage.to_string();
    assert!(
        said.contains("--operator-image") && said.contains("OPERATOR_IMAGE"),
        "{said}"
    );
}
