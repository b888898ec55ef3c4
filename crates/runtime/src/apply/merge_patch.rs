//! The difference of two documents as a JSON merge patch (RFC 7386). Pure.

use serde_json::{Map, Value};

/// What turns `from` into `to`; `None` if they are the same.
///
/// Only fields that `from` or `to` have are named, so whatever else is stored stays: a status written by a newer
/// version keeps the fields this one does not know. Lists are replaced as a whole, so their items have to bring such fields
/// along; a `null` is an absent field.
pub(super) fn between(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut changes = Map::new();
    for (name, value) in after {
        let change = match before.get(name) {
            Some(old) => between(old, value),
            None if value.is_null() => None,
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            changes.insert(name.clone(), change);
        }
    }
    for (name, _) in before
        .iter()
        .filter(|(name, old)| !old.is_null() && !after.contains_key(*name))
    {
        changes.insert(name.clone(), Value::Null);
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let rows = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!(null), json!({"a": 1}), Some(json!({"a": 1}))),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 3}),
                Some(json!({"b": 3})),
            ),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1}}),
                Some(json!({"a": {"c": null}})),
            ),
            (json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
            (
                json!({"a": {}}),
                json!({"a": {"b": {}}}),
                Some(json!({"a": {"b": {}}})),
            ),
            (json!({"a": {"b": 1}}), json!({"a": 1}), Some(json!({"a": 1}))),
            (json!({"a": null}), json!({}), None),
            (json!({}), json!({"a": null}), None),
        ];
        for (from, to, patch) in rows {
            assert_eq!(between(&from, &to), patch, "{from} -> {to}");
        }
    }
}
