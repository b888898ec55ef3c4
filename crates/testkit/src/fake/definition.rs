//! Custom resource definitions as objects: the defaults and conditions a definition gets when it is accepted.

use serde_json::{Value, json};

/// Accepts a definition at once: its kinds are served from the next request on.
pub(crate) fn establish(definition: &mut Value, stamp: &str) {
    let spec = &mut definition["spec"];
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    for (field, value) in [
        ("singular", kind.to_lowercase()),
        ("listKind", format!("{kind}List")),
    ] {
        if spec["names"].get(field).is_none() {
            spec["names"][field] = json!(value);
        }
    }
    if spec.get("conversion").is_none() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let stored: Vec<&Value> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == json!(true))
        .map(|version| &version["name"])
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp});
    definition["status"] = json!({
        "acceptedNames": spec["names"],
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
}
