//! What every definition must be: documented to the last leaf, closed, small, and readable by the ancestor's clients.

use etcd_operator_api::condition::{self, Condition, Finding, Truth};
use etcd_operator_api::scope::NotServed;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use serde_json::{Value, json};

/// Calls `visit` for every schema below, with its path.
fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{name}"), visit);
    }
    for (suffix, child) in [("[]", &schema["items"]), ("{}", &schema["additionalProperties"])] {
        if child.is_object() {
            walk(child, &format!("{path}{suffix}"), visit);
        }
    }
}

fn each_schema(mut visit: impl FnMut(&str, &Value)) {
    for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
        walk(&crd::schema(kind).expect("a schema"), kind, &mut visit);
    }
}

#[test]
fn every_field_has_a_sentence_for_kubectl_explain() {
    let mut fields = 0;
    each_schema(|path, schema| {
        let is_element = path.ends_with("[]") || path.ends_with("{}");
        let has_own_text = !is_element && !path.ends_with(".metadata");
        if has_own_text {
            fields += 1;
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(
                text.len() >= 10 && text.contains(' '),
                "{path} has no sentence: «{text}»"
            );
        }
    });
    assert!(fields > 600, "only {fields} fields were seen");
}

#[test]
fn only_the_merge_patch_keeps_unknown_fields() {
    let mut open = Vec::new();
    each_schema(|path, schema| {
        if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) {
            open.push(path.to_owned());
        }
    });
    assert_eq!(
        open,
        [
            "EtcdCluster.spec.pod.patch",
            "EtcdRestore.spec.clusterTemplate.spec.pod.patch"
        ]
    );
}

#[test]
fn every_field_has_a_type() {
    each_schema(|path, schema| {
        let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == json!(true);
        assert!(typed, "{path} has no type: {schema}");
    });
}

#[test]
fn values_of_maps_have_the_bounds_that_kubernetes_has() {
    let mut bounds = std::collections::BTreeMap::new();
    each_schema(|path, schema| {
        if path.contains(".spec.") && path.ends_with("{}") && schema["type"] == "string" {
            bounds.insert(path.to_owned(), schema["maxLength"].as_u64());
        }
    });
    assert_eq!(bounds["EtcdCluster.spec.pod.labels{}"], Some(63));
    assert_eq!(bounds["EtcdBackup.spec.job.nodeSelector{}"], Some(63));
    assert_eq!(bounds["EtcdCluster.spec.service.annotations{}"], Some(262_144));
    let open: Vec<_> = bounds.iter().filter(|(_, most)| most.is_none()).collect();
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn definitions_fit_into_the_annotation_of_client_side_apply() {
    for crd in crd::all() {
        let bytes = serde_json::to_vec(&crd).expect("JSON").len();
        assert!(
            bytes < crd::MAX_BYTES * 3 / 4,
            "{}: {bytes} bytes",
            crd.spec.names.kind
        );
    }
}

#[test]
fn kinds_are_found_by_their_short_names_which_are_no_category() {
    let names: Vec<_> = crd::all()
        .into_iter()
        .map(|crd| {
            (
                crd.spec.names.short_names.unwrap_or_default(),
                crd.spec.names.categories.unwrap_or_default(),
            )
        })
        .collect();
    let short: Vec<_> = names.iter().flat_map(|(short, _)| short.clone()).collect();
    assert_eq!(short, ["etcd", "etcdbk", "etcdrs"]);
    for (_, categories) in &names {
        assert_eq!(categories, &["all", "etcd-operator"]);
        assert!(
            categories.iter().all(|c| !short.contains(c)),
            "kubectl get {categories:?} NAME would not work"
        );
    }
}

#[test]
fn the_scale_subresource_answers_what_an_autoscaler_asks() {
    let [cluster, ..] = crd::all();
    let scale = cluster.spec.versions[0]
        .subresources
        .clone()
        .and_then(|s| s.scale)
        .expect("a scale subresource");
    assert_eq!(scale.spec_replicas_path, ".spec.size");
    assert_eq!(scale.status_replicas_path, ".status.size");
    assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
}

#[test]
fn a_status_of_the_ancestor_is_read_with_its_nulls_and_empty_strings() {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "metadata": {"name": "c", "creationTimestamp": null},
        "spec": {"size": 3, "pod": {"ClusterDomain": "", "labels": null}, "TLS": null},
        "status": {
            "phase": "", "size": 0, "members": {}, "currentVersion": "", "targetVersion": "",
            "conditions": [{"type": "Available", "status": "True", "lastUpdateTime": "2019-12-15T15:57:59Z", "lastTransitionTime": "", "reason": "Cluster available", "message": ""}],
        },
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
    }))
    .expect("a cluster");
    assert_eq!(
        cluster.status.and_then(|s| s.conditions).map(|c| c.len()),
        Some(1)
    );

    let backup: EtcdBackup = serde_json::from_value(json!({
        "metadata": {"name": "b"}, "spec": {"storageType": "S3", "s3": {"path": "b/k", "endpoint": "", "forcePathStyle": false}},
        "status": {"succeeded": false, "Reason": "no endpoint", "lastSuccessDate": null},
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
    }))
    .expect("a backup");
    assert_eq!(
        backup.status.and_then(|s| s.reason).as_deref(),
        Some("no endpoint")
    );

    let restore: EtcdRestore = serde_json::from_value(json!({
        "metadata": {"name": "r"}, "spec": {"etcdCluster": {"name": "r"}, "backupStorageType": "S3", "s3": {"path": "b/k"}},
        "status": {"succeeded": true, "reason": "done"},
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
    }))
    .expect("a restore");
    assert_eq!(restore.status.and_then(|s| s.reason).as_deref(), Some("done"));
}

/// The schema of an entry of `status.conditions`.
fn condition_schema(kind: &str) -> Value {
    let schema = crd::schema(kind).expect("a schema");
    schema["properties"]["status"]["properties"]["conditions"]["items"].clone()
}

#[test]
fn conditions_are_those_of_metav1() {
    for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
        let item = condition_schema(kind);
        let required = ["lastTransitionTime", "message", "reason", "status", "type"];
        assert_eq!(item["required"], json!(required), "{kind}");
        for field in required {
            let property = &item["properties"][field];
            assert_eq!(
                (&property["type"], &property["nullable"]),
                (&json!("string"), &Value::Null),
                "{kind} {field}"
            );
        }
        let field = |name: &str, what: &str| item["properties"][name][what].clone();
        assert_eq!(
            field("status", "enum"),
            json!(["True", "False", "Unknown"]),
            "{kind}"
        );
        assert_eq!(field("lastTransitionTime", "format"), "date-time", "{kind}");
        assert_eq!(field("lastUpdateTime", "format"), "date-time", "{kind}");
        assert_eq!(field("lastUpdateTime", "nullable"), true, "{kind}");
    }
}

/// Conditions reach a status in these three ways. What the ancestor and others stored becomes complete, too.
#[test]
fn every_condition_that_is_written_has_all_fields_that_the_schema_requires() {
    let stored: Vec<Condition> = serde_json::from_value(json!([
        {"type": "Available", "status": "True"},
        {"type": "Scaling", "status": "True", "lastTransitionTime": "", "reason": "Scaling up"},
        {"type": "FromElsewhere", "status": "true", "lastTransitionTime": "", "lastUpdateTime": ""},
    ]))
    .expect("conditions");
    let not_served = NotServed { why: "so".to_owned() };
    let now = "2026-03-01T03:00:00Z".parse().expect("a time");
    let finding = |type_| Finding {
        type_,
        status: Truth::True,
        reason: "So",
        message: String::new(),
    };
    let written = [
        condition::merge(&stored, &condition::ALL.map(finding), Some(1), now),
        condition::given_up(&stored, &not_served, true, Some(1), now),
        condition::left_alone(Some(&stored), &not_served, true, Some(1), now).expect("conditions"),
        condition::left_alone(None, &not_served, true, Some(1), now).expect("conditions"),
    ];
    let schema = condition_schema("EtcdCluster");
    let required = schema["required"].as_array().expect("a list");
    let properties = schema["properties"].as_object().expect("properties");
    assert_eq!(written[0].len(), condition::ALL.len() + 1);
    for condition in written.iter().flatten() {
        let condition = serde_json::to_value(condition).expect("JSON");
        for field in required {
            assert!(
                condition[field.as_str().expect("a name")].is_string(),
                "{field}: {condition}"
            );
        }
        for (field, value) in condition.as_object().expect("an object") {
            let property = &properties[field];
            let is_allowed = property["enum"]
                .as_array()
                .is_none_or(|allowed| allowed.contains(value));
            let is_time = value
                .as_str()
                .is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok());
            assert!(
                is_allowed && (property["format"] != "date-time" || is_time),
                "{field}: {condition}"
            );
        }
    }
}

/// kstatus takes an object for current that has neither conditions nor an observed generation.
#[test]
fn an_object_that_no_operator_has_seen_has_the_observed_generation_minus_one() {
    for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
        let schema = crd::schema(kind).expect("a schema");
        let default = &schema["properties"]["status"]["default"];
        assert_eq!(*default, json!({"observedGeneration": -1}), "{kind}");
    }
}

/// 0.1.0 stored only these values, so no stored status is refused.
#[test]
fn phases_of_backups_and_restores_are_enumerated() {
    let pattern = |kind: &str| {
        let schema = crd::schema(kind).expect("a schema");
        let phase = &schema["properties"]["status"]["properties"]["phase"];
        assert_eq!(phase["nullable"], json!(true));
        phase["pattern"].as_str().expect("a pattern").to_owned()
    };
    assert_eq!(
        pattern("EtcdBackup"),
        "^(Scheduled|Queued|Waiting|Running|Suspended|Succeeded|Failed|Invalid|Deleting)$"
    );
    assert_eq!(
        pattern("EtcdRestore"),
        "^(Waiting|Verifying|BackingUp|Stopping|Preparing|Committed|RollingBack|Serving|Succeeded|Failed|RolledBack|Invalid)$"
    );
}

#[test]
fn odd_key_casing_of_the_ancestor_is_written_as_it_was() {
    let mut seen = Vec::new();
    each_schema(|path, _| seen.push(path.to_owned()));
    for path in [
        "EtcdCluster.spec.TLS.static.member.peerSecret",
        "EtcdCluster.spec.pod.DNSTimeoutInSecond",
        "EtcdCluster.spec.pod.ClusterDomain",
        "EtcdBackup.status.Reason",
        "EtcdBackup.spec.clientTLSSecret",
        "EtcdRestore.status.reason",
    ] {
        assert!(seen.iter().any(|p| p == path), "{path}");
    }
}
