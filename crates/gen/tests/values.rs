//! Checks that chart values that are fields of an object have exactly the field names of its CRD.

use std::collections::BTreeSet;
use std::fs;

use etcd_operator_api::crd;
use etcd_operator_gen::tree;
use serde_json::Value;

/// The schemas of chart values, with the kind and the schema of the field in its CRD.
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

/// The allowed values of a field, if the schema lists them.
fn enum_values<'a>(schema: &'a Value, name: &str) -> Option<BTreeSet<&'a str>> {
    let choices = schema["properties"][name]["enum"].as_array()?;
    Some(choices.iter().filter_map(Value::as_str).collect())
}

#[test]
fn chart_values_have_the_field_names_of_the_definition() {
    let path = tree::root().join("charts/etcd-operator/values.schema.json");
    let text = fs::read_to_string(path).expect("the schema");
    let values: Value = serde_json::from_str(&text).expect("JSON");
    let mut compared = 0;
    for (pointer, kind, field) in FIELDS {
        let chart = values
            .pointer(pointer)
            .unwrap_or_else(|| panic!("no {pointer} in the schema"));
        let definition = crd::schema(kind).expect("one of our kinds");
        let crd = definition
            .pointer(field)
            .unwrap_or_else(|| panic!("no {field} in {kind}"));
        assert_eq!(chart["additionalProperties"], false, "{pointer} takes any key");
        assert_eq!(names(chart), names(crd), "{pointer}");
        for name in names(chart) {
            if let (Some(chart), Some(crd)) = (enum_values(chart, name), enum_values(crd, name)) {
                assert_eq!(chart, crd, "{pointer}: {name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 3, "storageType, medium and retention");
}
