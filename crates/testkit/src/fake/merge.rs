//! The three patches that are not server-side apply: JSON merge patch, JSON patch and strategic merge patch. Pure
//! functions from value to value.

use serde_json::{Map, Value};

use super::schema::{Schema, Shape};
use super::status_error::Failure;

/// RFC 7396.
pub(crate) fn json_merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            json_merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// RFC 6902.
pub(crate) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let refused = || Failure::unreadable("the server rejected our request due to an error in our request");
    let operations = patch
        .as_array()
        .ok_or_else(|| Failure::bad_request("json patch must be a list"))?;
    for operation in operations {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let (path, value) = (
            text("path"),
            operation.get("value").cloned().unwrap_or(Value::Null),
        );
        let done = match text("op") {
            "add" => add(target, path, value),
            "remove" => take(target, path).map(drop),
            "replace" => target.pointer_mut(path).map(|slot| *slot = value),
            "test" => target.pointer(path).filter(|found| **found == value).map(drop),
            "copy" => target
                .pointer(text("from"))
                .cloned()
                .and_then(|found| add(target, path, found)),
            "move" => take(target, text("from")).and_then(|found| add(target, path, found)),
            _ => None,
        };
        done.ok_or_else(refused)?;
    }
    Ok(())
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (before, last) = path.rsplit_once('/')?;
    Some((
        target.pointer_mut(before)?,
        last.replace("~1", "/").replace("~0", "~"),
    ))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(object) => {
            object.insert(last, value);
            Some(())
        }
        Value::Array(list) if last == "-" => {
            list.push(value);
            Some(())
        }
        Value::Array(list) => {
            let index: usize = last.parse().ok()?;
            (index <= list.len()).then(|| list.insert(index, value))
        }
        _ => None,
    }
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(object) => object.remove(&last),
        Value::Array(list) => {
            let index: usize = last.parse().ok()?;
            (index < list.len()).then(|| list.remove(index))
        }
        _ => None,
    }
}

/// A strategic merge patch: like a JSON merge patch, but lists with a merge key merge by it.
pub(crate) fn strategic(schema: &Schema, target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        let kept = patch.iter().filter(|(key, _)| *key != "$patch");
        *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(items)) = target.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() || value.get("$patch").and_then(Value::as_str) == Some("delete") {
            target.remove(key);
            continue;
        }
        let (below, _) = schema.field(key);
        match (value, target.get_mut(key)) {
            (Value::Array(items), Some(Value::Array(existing))) if below.patch_merges => {
                merge_list(below, existing, items);
            }
            (Value::Array(items), _) if below.patch_merges => {
                let mut fresh = Vec::new();
                merge_list(below, &mut fresh, items);
                target.insert(key.clone(), Value::Array(fresh));
            }
            (_, Some(slot)) => strategic(below, slot, value),
            (_, None) => {
                let mut fresh = Value::Null;
                strategic(below, &mut fresh, value);
                target.insert(key.clone(), fresh);
            }
        }
    }
}

fn merge_list(schema: &Schema, existing: &mut Vec<Value>, patch: &[Value]) {
    let Shape::Array(array) = &schema.shape else {
        return;
    };
    let Some(key) = &schema.patch_merge_key else {
        for item in patch {
            if !existing.contains(item) {
                existing.push(item.clone());
            }
        }
        return;
    };
    if patch
        .iter()
        .any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace"))
    {
        *existing = patch
            .iter()
            .filter(|item| item.get("$patch").is_none())
            .cloned()
            .collect();
        return;
    }
    let order: Vec<Value> = existing
        .iter()
        .filter_map(|item| item.get(key).cloned())
        .collect();
    let mut patched = Vec::new();
    for item in patch {
        let same = |other: &Value| other.get(key) == item.get(key);
        let found = existing.iter().position(same).map(|index| existing.remove(index));
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
            continue;
        }
        let mut merged = found.unwrap_or(Value::Null);
        strategic(&array.items, &mut merged, item);
        patched.push(merged);
    }
    *existing = interleave(patched, std::mem::take(existing), &order, key);
}

/// Patched items in the order of the patch, the others where they were relative to them; new items come first.
fn interleave(patched: Vec<Value>, others: Vec<Value>, order: &[Value], key: &str) -> Vec<Value> {
    let place = |item: &Value| order.iter().position(|known| item.get(key) == Some(known));
    let mut out = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        let at = place(&item);
        while let Some(other) =
            others.next_if(|other| at.is_some_and(|at| place(other).is_some_and(|p| p < at)))
        {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others);
    out
}
