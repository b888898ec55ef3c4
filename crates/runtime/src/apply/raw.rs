//! The little that is read of a stored object that cannot be decoded. Whatever is wrong with the rest is passed over
//! without recursion, so that no depth of it fails the reading.

use etcd_operator_api::condition::Condition;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A stored object that cannot be decoded.
#[derive(Debug, Deserialize)]
pub(crate) struct Raw {
    /// What a write to it must name.
    pub(super) metadata: Fences,
    status: Option<Box<RawValue>>,
}

/// Which object, and which version of it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fences {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Raw {
    /// Its conditions; none if they are what cannot be read.
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
    fn no_depth_of_an_object_hides_what_a_write_to_it_must_name() {
        let nested = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        let condition = r#"{"type": "Accepted", "status": "True"}"#;
        let text = format!(
            r#"{{"spec": {nested}, "metadata": {{"uid": "u", "resourceVersion": "5", "managedFields": {nested}}},
                 "status": {{"conditions": [{condition}]}}}}"#
        );
        let raw: Raw = serde_json::from_str(&text).unwrap();
        let named = serde_json::json!({"uid": "u", "resourceVersion": "5"});
        assert_eq!(serde_json::to_value(&raw.metadata).unwrap(), named);
        assert_eq!(raw.conditions().len(), 1);
        let odd: Raw = serde_json::from_str(r#"{"metadata": {}, "status": "odd"}"#).unwrap();
        assert!(odd.conditions().is_empty());
    }
}
