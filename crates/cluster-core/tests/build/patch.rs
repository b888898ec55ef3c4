//! The user's patch on the pod: what it changes, and what it may not.

use etcd_operator_api::refusal::Refusal;
use etcd_operator_cluster_core::build::desired;
use serde_json::{Value, json};

use crate::fixtures::{asks, cluster, container, objects, template};

fn patched(patch: &Value) -> Value {
    template(&json!({"pod": {"patch": patch}}))
}

fn refused(spec: &Value) -> Vec<Refusal> {
    desired(&cluster(spec)).expect_err(&spec.to_string())
}

#[test]
fn what_no_field_covers_is_merged_into_the_pod() {
    let pod = patched(&json!({"spec": {
        "runtimeClassName": "kata",
        "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["a"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "initContainers": [{"name": "own", "image": "i"}],
        "containers": [
            {"name": "sidecar", "image": "s"},
            {"name": "etcd", "env": [{"name": "A", "value": "b"}], "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        ],
        "volumes": [{"name": "notes", "configMap": {"name": "n"}}],
    }}));
    let spec = &pod["spec"];
    assert_eq!(spec["runtimeClassName"], "kata");
    assert_eq!(spec["hostAliases"][0]["hostnames"], json!(["a"]));
    assert_eq!(spec["dnsConfig"]["options"][0]["value"], "2");
    assert_eq!(container(&pod, "sidecar")["image"], "s");
    let etcd = container(&pod, "etcd");
    assert_eq!(etcd["lifecycle"]["preStop"]["sleep"]["seconds"], 1);
    let env = etcd["env"].as_array().expect("variables");
    assert_eq!((env.len(), &env[4]), (5, &json!({"name": "A", "value": "b"})));
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().expect("a list").iter();
        items
            .map(|item| item["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&spec["initContainers"]), ["install", "own"]);
    assert_eq!(names(&spec["containers"]), ["etcd", "sidecar"]);
    assert_eq!(names(&spec["volumes"]), ["data", "tools", "permit", "notes"]);
}

#[test]
fn defaults_of_the_operator_can_be_changed_or_taken_away() {
    let pod = patched(&json!({"spec": {
        "securityContext": {"runAsUser": null, "runAsGroup": null, "fsGroup": null},
        "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "$patch": "delete"}],
        "containers": [{"name": "etcd",
            "livenessProbe": {"failureThreshold": 30}, "readinessProbe": {"periodSeconds": 9},
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}],
    }}));
    let security = pod["spec"]["securityContext"].as_object().expect("a context");
    assert!(!security.contains_key("runAsUser") && security.contains_key("seccompProfile"));
    let spread = pod["spec"]["topologySpreadConstraints"]
        .as_array()
        .expect("constraints");
    assert_eq!(spread.len(), 1);
    let etcd = container(&pod, "etcd");
    assert_eq!(etcd["livenessProbe"]["failureThreshold"], 30);
    assert_eq!(etcd["livenessProbe"]["tcpSocket"]["port"], 2380);
    assert_eq!(etcd["readinessProbe"]["periodSeconds"], 9);
    assert_eq!(
        etcd["securityContext"]["capabilities"],
        json!({"add": ["IPC_LOCK"], "drop": ["ALL"]})
    );
}

#[test]
fn labels_and_annotations_of_a_patch_reach_running_pods_too() {
    let patch = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    let pod = objects(&json!({"pod": {"patch": patch}}))
        .live_metadata
        .of_pod("orders-0");
    assert_eq!(
        pod.metadata.labels.expect("labels").get("a").map(String::as_str),
        Some("b")
    );
    assert_eq!(
        pod.metadata
            .annotations
            .expect("some")
            .get("c")
            .map(String::as_str),
        Some("d")
    );
}

#[test]
fn what_belongs_to_the_operator_is_refused_by_its_path() {
    let etcd = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("etcd");
        json!({"spec": {"containers": [container]}})
    };
    let install = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("install");
        json!({"spec": {"initContainers": [container]}})
    };
    let volume =
        |name: &str| json!({"spec": {"volumes": [{"name": name, "emptyDir": {"medium": "Memory"}}]}});
    let spec = |field: &str, value: Value| json!({"spec": {field: value}});
    for (patch, path, word) in [
        (
            etcd(json!({"image": "x"})),
            "spec.containers[etcd].image",
            "use spec.image",
        ),
        (
            etcd(json!({"command": ["sh"]})),
            "spec.containers[etcd].command",
            "spec.etcd.extraArgs",
        ),
        (
            etcd(json!({"args": ["--x"]})),
            "spec.containers[etcd].args",
            "spec.etcd.extraArgs",
        ),
        (
            etcd(json!({"envFrom": [{"configMapRef": {"name": "x"}}]})),
            "spec.containers[etcd].envFrom",
            "spec.pod.etcdEnv",
        ),
        (
            etcd(json!({"env": [{"name": "POD_UID", "value": "x", "valueFrom": null}]})),
            "spec.containers[etcd].env[POD_UID]",
            "another name",
        ),
        (
            etcd(json!({"env": [{"name": "ETCD_FORCE_NEW_CLUSTER", "value": "true"}]})),
            "spec.containers[etcd].env[ETCD_FORCE_NEW_CLUSTER]",
            "acknowledged writes",
        ),
        (
            etcd(json!({"env": [{"name": "ETCD_LOGGER", "value": "zap"}]})),
            "spec.containers[etcd].env[ETCD_LOGGER]",
            "--logger",
        ),
        (
            etcd(json!({"readinessProbe": {"httpGet": {"path": "/"}}})),
            "spec.containers[etcd].readinessProbe.httpGet",
            "when clients come",
        ),
        (
            etcd(json!({"readinessProbe": {"successThreshold": 1}})),
            "spec.containers[etcd].readinessProbe.successThreshold",
            "taken for a voter",
        ),
        (
            etcd(json!({"volumeMounts": [{"name": "tools", "mountPath": "/var/etcd"}]})),
            "spec.containers[etcd].volumeMounts[/var/etcd]",
            "beside it",
        ),
        (
            etcd(json!({"volumeMounts": [{"name": "tools", "mountPath": "/var/etcd/data/member/wal"}]})),
            "spec.containers[etcd].volumeMounts[/var/etcd/data/member/wal]",
            "elsewhere",
        ),
        (
            etcd(json!({"volumeMounts": [{"name": "tools", "mountPath": "/var/etcd/"}]})),
            "spec.containers[etcd].volumeMounts[/var/etcd/]",
            "elsewhere",
        ),
        (
            etcd(json!({"ports": [{"containerPort": 2380, "name": "own"}]})),
            "spec.containers[etcd].ports[2380]",
            "beside it",
        ),
        (
            etcd(json!({"$patch": "delete"})),
            "spec.containers[etcd]",
            "members need it",
        ),
        (
            install(json!({"image": "x"})),
            "spec.initContainers[install].image",
            "own",
        ),
        (
            install(json!({"$patch": "delete"})),
            "spec.initContainers[install]",
            "members need it",
        ),
        (volume("data"), "spec.volumes[data]", "another name"),
        (volume("tools"), "spec.volumes[tools]", "another name"),
        (volume("permit"), "spec.volumes[permit]", "another name"),
        (
            spec("automountServiceAccountToken", json!(true)),
            "spec.automountServiceAccountToken",
            "credential",
        ),
        (
            spec("restartPolicy", json!("Never")),
            "spec.restartPolicy",
            "restart",
        ),
        (spec("subdomain", json!("x")), "spec.subdomain", "names"),
        (
            json!({"metadata": {"labels": {"etcd_cluster": "x"}}}),
            "metadata.labels[etcd_cluster]",
            "another key",
        ),
        (
            json!({"metadata": {"labels": {"app": null}}}),
            "metadata.labels[app]",
            "another key",
        ),
        (
            json!({"metadata": {"annotations": {"etcd.database.coreos.com/permit": "x"}}}),
            "metadata.annotations[etcd.database.coreos.com/permit]",
            "another key",
        ),
        (
            json!({"metadata": {"name": "x"}}),
            "metadata.name",
            "labels and annotations",
        ),
    ] {
        let all = refused(&json!({"pod": {"patch": patch}}));
        assert_eq!(all.len(), 1, "{patch}: {all:?}");
        assert_eq!(all[0].field, format!("spec.pod.patch.{path}"), "{patch}");
        assert!(
            all[0].problem.contains(word),
            "{patch}: «{word}» is not in: {}",
            all[0]
        );
    }
}

#[test]
fn a_volume_of_a_claim_cannot_be_replaced_by_one_of_its_name() {
    let patch = json!({"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}});
    let all = refused(&json!({"storage": {}, "pod": {"patch": patch}}));
    assert_eq!(all[0].field, "spec.pod.patch.spec.volumes[data]");
}

#[test]
fn what_no_pod_has_is_refused_and_not_dropped() {
    for (patch, field, word) in [
        (
            json!({"spec": {"tolerationz": []}}),
            "spec.tolerationz",
            "is no field of a pod",
        ),
        (json!({"spek": {}}), "spek", "is no field of a pod"),
        (
            json!({"spec": {"containers": [{"name": "etcd", "lifecycle": {"preStap": {}}}]}}),
            "spec.containers[0].lifecycle.preStap",
            "is no field of a pod",
        ),
        (
            json!({"spec": {"terminationGracePeriodSeconds": "long"}}),
            "spec.terminationGracePeriodSeconds",
            "cannot be part of a pod",
        ),
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "spec.containers[0]",
            "must have name",
        ),
    ] {
        let all = refused(&json!({"pod": {"patch": patch}}));
        assert_eq!(all.len(), 1, "{patch}: {all:?}");
        assert_eq!(all[0].field, format!("spec.pod.patch.{field}"), "{patch}");
        assert!(all[0].problem.contains(word), "{patch}: {}", all[0]);
    }
}

#[test]
fn an_empty_patch_is_none() {
    assert_eq!(asks(&json!({"pod": {"patch": {}}})).pod, asks(&json!({})).pod);
    assert_eq!(
        patched(&json!({"spec": {}})),
        template_but_for_the_hash(&json!({"spec": {}}))
    );
}

/// The template without a patch, but with the hash of this one.
fn template_but_for_the_hash(patch: &Value) -> Value {
    let key = "/metadata/annotations/etcd.database.coreos.com~1intent";
    let mut plain = template(&json!({}));
    *plain.pointer_mut(key).expect("a hash") = patched(patch).pointer(key).expect("a hash").clone();
    plain
}
