//! The admission rules, evaluated without an API server on the same table that a real one is asked about.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use kube::core::cel::Validator;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

const REFUSED: &str = include_str!("../fixtures/refused.yaml");

static SCHEMAS: LazyLock<BTreeMap<&'static str, Value>> = LazyLock::new(|| {
    ["EtcdCluster", "EtcdBackup", "EtcdRestore"]
        .map(|kind| (kind, crd::schema(kind).expect("a schema")))
        .into()
});

#[derive(Deserialize)]
struct Row {
    case: String,
    by: By,
    says: Vec<String>,
    before: Option<Value>,
    object: Value,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum By {
    Rule,
    Schema,
}

/// The API server hides null fields from rules; and `dyn` only widens a type, which an untyped evaluation never needs.
fn as_rules_see_it(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), as_rules_see_it(v)))
            .collect(),
        Value::Array(items) => items.iter().map(as_rules_see_it).collect(),
        other => other.clone(),
    }
}

/// Every message that the rules have against an object.
fn refusals(object: &Value, before: Option<&Value>) -> Vec<String> {
    let schema = &SCHEMAS[object["kind"].as_str().expect("a kind")];
    let object = as_rules_see_it(object);
    let before = before.map(as_rules_see_it);
    match Validator::new().validate_with_defaults(schema, &object, before.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|e| format!("{}: {}", e.field_path, e.message))
            .collect(),
    }
}

fn rows() -> Vec<Row> {
    serde_saphyr::from_str(REFUSED).expect("the table is YAML")
}

fn accepted_fixtures() -> Vec<(String, Value)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/accepted");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|f| f.expect("a file").path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        for document in text.split("\n---\n") {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            all.push((name, serde_saphyr::from_str(document).expect("YAML")));
        }
    }
    assert!(all.len() >= 20, "the fixtures have gone: {}", all.len());
    all
}

#[test]
fn each_bad_object_is_refused_with_the_field_and_the_remedy() {
    for row in rows().into_iter().filter(|row| row.by == By::Rule) {
        let messages = refusals(&row.object, row.before.as_ref()).join("\n");
        for words in &row.says {
            assert!(
                messages.contains(words.as_str()),
                "{}: «{words}» is not in:\n{messages}",
                row.case
            );
        }
        if let Some(before) = &row.before {
            assert_eq!(
                refusals(before, None),
                Vec::<String>::new(),
                "{}: the object of before",
                row.case
            );
        }
    }
}

#[test]
fn every_manifest_of_the_older_operator_and_of_ours_passes_every_rule() {
    for (file, object) in accepted_fixtures() {
        assert_eq!(refusals(&object, None), Vec::<String>::new(), "{file}");
        assert_eq!(
            refusals(&object, Some(&object)),
            Vec::<String>::new(),
            "{file}, applied twice"
        );
    }
}

/// 0.1.0 accepted TLS for clusters that had formed without it. Their members do not use it: the edit can be reverted.
#[test]
fn tls_that_the_members_do_not_use_can_be_removed() {
    let cluster = |tls: Value| {
        json!({
            "kind": "EtcdCluster", "metadata": {"name": "c"}, "spec": {"TLS": tls},
            "status": {"clusterID": "1f", "endpoints": ["http://c-client.shop.svc:2379"]},
        })
    };
    let both = cluster(
        json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
    );
    assert_eq!(refusals(&cluster(Value::Null), Some(&both)), Vec::<String>::new());
    let peer = cluster(json!({"static": {"member": {"peerSecret": "p"}}}));
    let renamed = cluster(json!({"static": {"member": {"peerSecret": "q"}}}));
    assert_eq!(refusals(&renamed, Some(&peer)), Vec::<String>::new());
}

#[test]
fn every_rule_is_shown_to_refuse_something() {
    let mut unused: BTreeSet<String> = BTreeSet::new();
    for schema in SCHEMAS.values() {
        collect_messages(schema, &mut unused);
    }
    assert!(unused.len() > 50, "only {} rules were found", unused.len());
    for row in rows().into_iter().filter(|row| row.by == By::Rule) {
        for message in refusals(&row.object, row.before.as_ref()) {
            unused.retain(|rule| !message.ends_with(rule.as_str()));
        }
    }
    assert!(
        unused.is_empty(),
        "rules without a row in refused.yaml: {unused:#?}"
    );
}

#[test]
fn every_message_names_its_field_and_ends_in_something_to_do() {
    let mut messages = BTreeSet::new();
    for schema in SCHEMAS.values() {
        collect_messages(schema, &mut messages);
    }
    for message in messages {
        let helps = [
            "for example",
            "set both",
            "leave",
            "create another",
            "restore",
            "needs",
            "set it to",
            "set storage.medium",
        ];
        assert!(
            helps.iter().any(|h| message.contains(h)) || message.contains("must not set"),
            "no remedy in: {message}"
        );
    }
}

#[test]
fn accepted_manifests_survive_a_round_trip_through_our_types() {
    for (file, object) in accepted_fixtures() {
        match object["kind"].as_str() {
            Some("EtcdCluster") => round_trip::<EtcdCluster>(&file, &object),
            Some("EtcdBackup") => round_trip::<EtcdBackup>(&file, &object),
            Some("EtcdRestore") => round_trip::<EtcdRestore>(&file, &object),
            other => panic!("{file}: {other:?}"),
        }
    }
}

/// Whatever the user wrote is still there after our types read and write it.
fn round_trip<K: DeserializeOwned + serde::Serialize>(file: &str, object: &Value) {
    let read: K = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{file}: {e}"));
    let written = serde_json::to_value(&read).expect("JSON");
    assert_contains(&written["spec"], &as_rules_see_it(&object["spec"]), file);
    assert_eq!(
        serde_json::from_value::<K>(written.clone())
            .map(|k| serde_json::to_value(&k).expect("JSON"))
            .ok(),
        Some(written)
    );
}

fn assert_contains(whole: &Value, part: &Value, path: &str) {
    match part {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| assert_contains(&whole[k], v, &format!("{path}.{k}"))),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(n, v)| assert_contains(&whole[n], v, &format!("{path}[{n}]")));
        }
        Value::Bool(false) if whole.is_null() => {}
        scalar => assert_eq!(whole, scalar, "{path}"),
    }
}

fn collect_messages(schema: &Value, into: &mut BTreeSet<String>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        into.insert(
            rule["message"]
                .as_str()
                .expect("every rule has a message")
                .to_owned(),
        );
    }
    for child in schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::values)
    {
        collect_messages(child, into);
    }
    for child in [&schema["items"], &schema["additionalProperties"]] {
        if child.is_object() {
            collect_messages(child, into);
        }
    }
}
