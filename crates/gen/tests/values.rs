//! Values of the chart that are fields of an object have the names that its definition has, no more and no fewer.

use std::collections::BTreeSet;
use std::fs;

use etcd_operator_api::crd;
use etcd_operator_gen::tree;
use serde_json::Value;

/// Where fields are values, and where the definition of their kind has them.
const FIELDS: [(&str, &str, &str); 6] = [
    (
        "/properties/etcdCluster/properties/storage",
        "EtcdCluster",
        "/properties/spec/properties/storage",
    ),
    (
        "/properties/etcdCluster/properties/pod",
        "EtcdCluster",
        "/properties/spec/properties/pod",
    ),
    (
        "/properties/etcdCluster/properties/spec",
        "EtcdCluster",
        "/properties/spec",
    ),
    (
        "/properties/etcdBackup/properties/spec",
        "EtcdBackup",
        "/properties/spec",
    ),
    (
        "/definitions/podSecurityContext",
        "EtcdCluster",
        "/properties/spec/properties/pod/properties/securityContext",
    ),
    (
        "/definitions/tolerations/items",
        "EtcdCluster",
        "/properties/spec/properties/pod/properties/tolerations/items",
    ),
];

fn names(schema: &Value) -> BTreeSet<&str> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.map(|(name, _)| name.as_str()).collect()
}

/// The only values that a field may have, where both say which those are.
fn choices<'a>(schema: &'a Value, name: &str) -> Option<BTreeSet<&'a str>> {
    let choices = schema["properties"][name]["enum"].as_array()?;
    Some(choices.iter().filter_map(Value::as_str).collect())
}

#[test]
fn values_that_are_fields_have_the_names_that_the_definition_has() {
    let path = tree::root().join("charts/etcd-operator/values.schema.json");
    let text = fs::read_to_string(path).expect("the schema");
    let values: Value = serde_json::from_str(&text).expect("JSON");
    let mut compared = 0;
    for (place, kind, field) in FIELDS {
        let ours = values
            .pointer(place)
            .unwrap_or_else(|| panic!("no {place} in the schema"));
        let definition = crd::schema(kind).expect("one of our kinds");
        let theirs = definition
            .pointer(field)
            .unwrap_or_else(|| panic!("no {field} in {kind}"));
        assert_eq!(ours["additionalProperties"], false, "{place} takes any key");
        assert_eq!(names(ours), names(theirs), "{place}");
        for name in names(ours) {
            if let (Some(ours), Some(theirs)) = (choices(ours, name), choices(theirs, name)) {
                assert_eq!(ours, theirs, "{place}: {name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 3, "storageType, medium and retention");
}
