//! A stored object that cannot be decoded, read only as far as a status update needs it.
//!
//! The rest of the object is skipped without recursion, so that deep nesting cannot fail the read.

use etcd_operator_api::condition::Condition;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A stored object that cannot be decoded.
#[derive(Debug, Deserialize)]
pub(crate) struct RawObject {
    /// UID and resourceVersion, which a write to the object must name.
    pub(super) metadata: Identity,
    status: Option<Box<RawValue>>,
}

/// Identifies one version of one object.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl RawObject {
    /// The conditions in the status; empty if they cannot be read.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let status = self.status.as_ref();
        status
            .and_then(|raw| serde_json::from_str::<Status>(raw.get()).ok())
            .map(|status| status.conditions)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_does_not_hide_uid_and_resource_version() {
        let nested = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        let condition = r#"{"type": "Accepted", "status": "True"}"#;
        let text = format!(
            r#"{{"spec": {nested}, "metadata": {{"uid": "u", "resourceVersion": "5", "managedFields": {nested}}},
                 "status": {{"conditions": [{condition}]}}}}"#
        );
        let raw: RawObject = serde_json::from_str(&text).unwrap();
        let named = serde_json::json!({"uid": "u", "resourceVersion": "5"});
        assert_eq!(serde_json::to_value(&raw.metadata).unwrap(), named);
        assert_eq!(raw.conditions().len(), 1);
        let odd: RawObject = serde_json::from_str(r#"{"metadata": {}, "status": "odd"}"#).unwrap();
        assert!(odd.conditions().is_empty());
    }
}
