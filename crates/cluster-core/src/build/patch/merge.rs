//! How a strategic merge patch is put over an object: fields are merged, `null` takes one away, and lists of named
//! things are merged by their names, while every other list is replaced.

use etcd_operator_api::refusal::Refusal;
use serde_json::{Map, Value};

/// The field of the spec.
pub(super) const FIELD: &str = "spec.pod.patch";

type Fields = Map<String, Value>;

/// Lists of a pod that are merged, and what names their items.
const KEYS: [(&str, &str); 12] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("schedulingGates", "name"),
    ("resourceClaims", "name"),
];

const DIRECTIVE: &str = "$patch";

/// What a part of a patch does with what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatchDirective {
    Merge,
    Replace,
    Delete,
}

/// The object with the patch merged over it. A refusal for an unknown directive, and for an item of a merged list
/// without its key.
pub(super) fn merged(object: &Value, patch: &Fields) -> Result<Value, Refusal> {
    let mut merged = object.as_object().cloned().unwrap_or_default();
    merge(&mut merged, patch, FIELD)?;
    Ok(Value::Object(merged))
}

/// Merges a part of the patch into an object. `null` and the directive `delete` remove a field.
fn merge(current: &mut Fields, patch: &Fields, path: &str) -> Result<(), Refusal> {
    if read_directive(patch, path)? == PatchDirective::Replace {
        current.clear();
    }
    for (name, wanted) in patch.iter().filter(|(name, _)| *name != DIRECTIVE) {
        let path = format!("{path}.{name}");
        if name.starts_with('$') {
            let problem = "is no directive that is understood here: list what is wanted, and take things away by null or by $patch: delete";
            return Err(Refusal::invalid(path, problem));
        }
        let key = KEYS.iter().find(|(list, _)| list == name).map(|(_, key)| *key);
        match (wanted, key) {
            (Value::Null, _) => {
                current.remove(name);
            }
            (Value::Object(wanted), _) if read_directive(wanted, &path)? == PatchDirective::Delete => {
                current.remove(name);
            }
            (Value::Object(wanted), _) => {
                let mut merged_item = match current.remove(name) {
                    Some(Value::Object(merged_item)) => merged_item,
                    _ => Fields::new(),
                };
                merge(&mut merged_item, wanted, &path)?;
                current.insert(name.clone(), Value::Object(merged_item));
            }
            (Value::Array(wanted), Some(key)) => {
                let mut items = match current.remove(name) {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                };
                merge_list(&mut items, wanted, key, &path)?;
                current.insert(name.clone(), Value::Array(items));
            }
            (plain, _) => {
                current.insert(name.clone(), plain.clone());
            }
        }
    }
    Ok(())
}

/// Merges items of a list into those with the same key; an item with another key is added.
fn merge_list(items: &mut Vec<Value>, wanted: &[Value], key: &str, path: &str) -> Result<(), Refusal> {
    for (index, item) in wanted.iter().enumerate() {
        let item = item.as_object().ok_or_else(|| {
            let problem = format!("must be an object with its {key}");
            Refusal::invalid(format!("{path}[{index}]"), problem)
        })?;
        let Some(name) = item.get(key) else {
            // Alone, the directive is about the list.
            if item.len() == 1 && read_directive(item, path)? == PatchDirective::Replace {
                items.clear();
                continue;
            }
            let problem = format!("must have {key}, which tells what it is merged with");
            return Err(Refusal::invalid(format!("{path}[{index}]"), problem));
        };
        let path = match name {
            Value::String(name) => format!("{path}[{name}]"),
            other => format!("{path}[{other}]"),
        };
        let position = items.iter().position(|found| found.get(key) == Some(name));
        let mut merged_item = match position.and_then(|position| items[position].as_object()) {
            Some(found) => found.clone(),
            None => Fields::new(),
        };
        match (read_directive(item, &path)?, position) {
            (PatchDirective::Delete, Some(position)) => {
                items.remove(position);
            }
            (PatchDirective::Delete, None) => {}
            (_, position) => {
                merge(&mut merged_item, item, &path)?;
                match position {
                    Some(position) => items[position] = Value::Object(merged_item),
                    None => items.push(Value::Object(merged_item)),
                }
            }
        }
    }
    Ok(())
}

/// The directive `$patch` of a part of the patch; merge if it has none.
fn read_directive(patch: &Fields, path: &str) -> Result<PatchDirective, Refusal> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None | Some(Some("merge")) => Ok(PatchDirective::Merge),
        Some(Some("replace")) => Ok(PatchDirective::Replace),
        Some(Some("delete")) => Ok(PatchDirective::Delete),
        Some(_) => Err(Refusal::invalid(
            format!("{path}.{DIRECTIVE}"),
            "must be merge, replace or delete; for example: $patch: delete",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn over(object: &Value, patch: &Value) -> Result<Value, String> {
        merged(object, patch.as_object().expect("an object")).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn fields_are_merged_and_null_takes_one_away() {
        let object = json!({"a": {"b": 1, "c": 2}, "d": 3});
        let patch = json!({"a": {"b": 9, "e": {"f": null, "g": 1}}, "d": null});
        assert_eq!(
            over(&object, &patch),
            Ok(json!({"a": {"b": 9, "c": 2, "e": {"g": 1}}}))
        );
    }

    #[test]
    fn named_things_are_merged_by_their_names_and_other_lists_replaced() {
        let object = json!({
            "env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
            "ports": [{"containerPort": 1, "name": "x"}],
            "tolerations": [{"key": "a"}], "command": ["a", "b"],
        });
        let patch = json!({
            "env": [{"name": "b", "value": "3"}, {"name": "c", "value": "4"}],
            "ports": [{"containerPort": 1, "hostPort": 7}],
            "tolerations": [{"key": "b"}], "command": ["c"],
        });
        let wanted = json!({
            "env": [{"name": "a", "value": "1"}, {"name": "b", "value": "3"}, {"name": "c", "value": "4"}],
            "ports": [{"containerPort": 1, "name": "x", "hostPort": 7}],
            "tolerations": [{"key": "b"}], "command": ["c"],
        });
        assert_eq!(over(&object, &patch), Ok(wanted));
    }

    #[test]
    fn directives_delete_and_replace_fields_items_and_lists() {
        let object = json!({"a": {"b": 1}, "c": {"d": 1}, "env": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v"}]});
        let patch = json!({
            "a": {"$patch": "delete"}, "c": {"$patch": "replace", "e": 2},
            "env": [{"$patch": "delete", "name": "a"}, {"$patch": "delete", "name": "none"}],
            "volumes": [{"$patch": "replace"}, {"name": "w"}],
        });
        let wanted = json!({"c": {"e": 2}, "env": [{"name": "b"}], "volumes": [{"name": "w"}]});
        assert_eq!(over(&object, &patch), Ok(wanted));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_its_path() {
        for (patch, words) in [
            (
                json!({"a": {"$retainKeys": ["b"]}}),
                "spec.pod.patch.a.$retainKeys: is no directive",
            ),
            (
                json!({"a": {"$patch": "drop"}}),
                "spec.pod.patch.a.$patch: must be merge, replace or delete",
            ),
            (
                json!({"env": [{"value": "b"}]}),
                "spec.pod.patch.env[0]: must have name",
            ),
            (json!({"env": ["b"]}), "spec.pod.patch.env[0]: must be an object"),
            (
                json!({"env": [{"name": "x", "$set": 1}]}),
                "spec.pod.patch.env[x].$set: is no directive",
            ),
        ] {
            let said = over(&json!({}), &patch).expect_err("refused");
            assert!(said.starts_with(words), "{patch}: {said}");
        }
    }
}
