//! Events are one set of objects served in two forms: `v1` and `events.k8s.io/v1`. They are stored in the first.

use serde_json::{Value, json};

const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(event: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(object) = event.as_object_mut() else {
        return;
    };
    for (from, to) in pairs {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}

/// From the `events.k8s.io` form to the stored one.
pub(crate) fn to_stored(event: &mut Value) {
    rename(event, RENAMED.into_iter().map(|(core, new)| (new, core)));
    event["apiVersion"] = json!("v1");
}

/// From the stored form to the `events.k8s.io` one.
pub(crate) fn from_stored(event: &mut Value) {
    rename(event, RENAMED.into_iter());
    event["apiVersion"] = json!("events.k8s.io/v1");
}

/// The fields every stored event has.
pub(crate) fn fill(event: &mut Value) {
    let Some(object) = event.as_object_mut() else {
        return;
    };
    for (field, empty) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
        ("eventTime", Value::Null),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
    ] {
        object.entry(field).or_insert(empty);
    }
}
