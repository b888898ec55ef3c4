//! The difference of two JSON documents as a JSON merge patch (RFC 7386). Pure.

use serde_json::{Map, Value};

/// The patch that turns `from` into `to`; `None` if they are equal.
///
/// The patch names only fields of `from` and `to`. All other stored fields stay: a status written by a newer version
/// keeps the fields that this version does not know. Lists are replaced as a whole, so their items must carry unknown
/// fields along. A `null` equals an absent field.
pub(super) fn diff(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut changes = Map::new();
    for (name, value) in after {
        let change = match before.get(name) {
            Some(old) => diff(old, value),
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
    fn the_patch_names_only_what_differs() {
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
            assert_eq!(diff(&from, &to), patch, "{from} -> {to}");
        }
    }
}
