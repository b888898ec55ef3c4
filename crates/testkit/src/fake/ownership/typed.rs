//! Operations on values whose structure is known: which fields a value sets, how two values differ, how an applied
//! value is merged into a live one, how fields are taken out. Who owns what is decided in the parent module.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{FieldSet, Step, field_step, item_step};
use crate::fake::schema::{ListKind, Schema};

/// What nobody can own at the top of an object.
pub(super) const UNOWNABLE: [&str; 2] = ["apiVersion", "kind"];
/// What nobody can own in the metadata of an object.
pub(super) const UNOWNABLE_METADATA: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
    "managedFields",
];

/// Every field a value sets.
pub(crate) fn fields_of(schema: &Schema, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    if schema.atomic(value) {
        return set;
    }
    match value {
        Value::Object(object) => {
            for (key, child) in object {
                let (below, named) = schema.field(key);
                let step = field_step(key);
                let empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
                let inner = fields_of(below, child);
                if empty || !named || is_whole(below, child) {
                    set.members.insert(step.clone());
                }
                if !inner.is_empty() {
                    set.children.insert(step, inner);
                }
            }
        }
        Value::Array(list) => {
            let (items, kind) = schema.items();
            for item in list {
                let Some(step) = item_step(kind, items, item) else {
                    continue;
                };
                let inner = fields_of(items, item);
                if !inner.is_empty() {
                    let known = set.children.entry(step.clone()).or_default();
                    *known = known.union(&inner);
                }
                set.members.insert(step);
            }
        }
        _ => {}
    }
    set
}

/// Whether a value is set as one, not part by part.
fn is_whole(schema: &Schema, value: &Value) -> bool {
    schema.atomic(value) || !(value.is_object() || value.is_array())
}

/// What changed between two values.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Difference {
    /// The paths that were added or modified.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// What of an object is left out of a comparison.
#[derive(Debug, Clone, Copy)]
enum LeftOut<'a> {
    /// At its top: what nobody can own, and these fields.
    AtTop(&'a [&'a str]),
    /// In its metadata: what nobody can own.
    InMetadata,
    /// Further below: nothing.
    Nothing,
}

impl LeftOut<'_> {
    fn has(self, key: &str) -> bool {
        match self {
            LeftOut::AtTop(ignored) => UNOWNABLE.contains(&key) || ignored.contains(&key),
            LeftOut::InMetadata => UNOWNABLE_METADATA.contains(&key),
            LeftOut::Nothing => false,
        }
    }

    fn below(self, key: &str) -> Self {
        match self {
            LeftOut::AtTop(_) if key == "metadata" => LeftOut::InMetadata,
            _ => LeftOut::Nothing,
        }
    }
}

/// How `after` differs from `before` in what can be owned, but for these fields at the top.
pub(crate) fn compare(schema: &Schema, before: &Value, after: &Value, ignored: &[&str]) -> Difference {
    let mut difference = Difference::default();
    walk(
        schema,
        (Some(before), Some(after)),
        LeftOut::AtTop(ignored),
        &mut Vec::new(),
        &mut difference,
    );
    difference
}

/// What is equal differs nowhere below, and is not looked into.
fn are_equal(before: Option<&Value>, after: Option<&Value>) -> bool {
    before.is_some() && before == after
}

fn walk(
    schema: &Schema,
    (before, after): (Option<&Value>, Option<&Value>),
    left_out: LeftOut<'_>,
    path: &mut Vec<Step>,
    out: &mut Difference,
) {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(object)) => object.keys().all(|key| left_out.has(key)),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    };
    let is_object = |value: Option<&Value>| value.is_none_or(|v| v.is_object() || v.is_null());
    let is_array = |value: Option<&Value>| value.is_none_or(|v| v.is_array() || v.is_null());
    let whole = before.or(after).is_none_or(|value| schema.atomic(value))
        || after.is_some_and(|value| schema.atomic(value))
        || (empty(before) && empty(after))
        || !((is_object(before) && is_object(after)) || (is_array(before) && is_array(after)));
    match (before, after) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        (Some(Value::Object(_)), Some(Value::Object(_))) if empty(before) && empty(after) => {}
        (Some(old), Some(new)) if whole && old != new => out.modified.insert(path),
        _ => {}
    }
    if whole {
        return;
    }
    if is_object(before) && is_object(after) {
        let old = before.and_then(Value::as_object);
        let new = after.and_then(Value::as_object);
        let of_old = old.into_iter().flat_map(Map::keys);
        let of_new = new.into_iter().flat_map(Map::keys);
        let only_new = of_new.filter(|key| old.is_none_or(|old| !old.contains_key(*key)));
        for key in of_old.chain(only_new).filter(|key| !left_out.has(key)) {
            let both = (old.and_then(|o| o.get(key)), new.and_then(|o| o.get(key)));
            if are_equal(both.0, both.1) {
                continue;
            }
            path.push(field_step(key));
            walk(schema.field(key).0, both, left_out.below(key), path, out);
            path.pop();
        }
    } else {
        let (items, kind) = schema.items();
        let old = keyed(kind, items, before);
        let new = keyed(kind, items, after);
        let keys: BTreeSet<&Step> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let both = (old.get(key).copied(), new.get(key).copied());
            if are_equal(both.0, both.1) {
                continue;
            }
            path.push(key.clone());
            walk(items, both, LeftOut::Nothing, path, out);
            path.pop();
        }
    }
}

fn keyed<'a>(kind: &ListKind, items: &Schema, list: Option<&'a Value>) -> BTreeMap<Step, &'a Value> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|item| Some((item_step(kind, items, item)?, item)))
        .collect()
}

/// The live value with the applied one laid over it.
pub(crate) fn merge(schema: &Schema, live: Value, applied: &Value) -> Value {
    if schema.atomic(applied) {
        return applied.clone();
    }
    match (live, applied) {
        (Value::Object(mut out), Value::Object(new)) => {
            for (key, value) in new {
                if let Some(existing) = out.get_mut(key) {
                    let (below, _) = schema.field(key);
                    *existing = merge(below, existing.take(), value);
                } else {
                    out.insert(key.clone(), value.clone());
                }
            }
            Value::Object(out)
        }
        (Value::Array(old), Value::Array(new)) => {
            let (items, kind) = schema.items();
            Value::Array(merge_lists(kind, items, &old, new))
        }
        _ => applied.clone(),
    }
}

/// Items of both lists in an order that respects the applied list and keeps the live one's where it says nothing.
fn merge_lists(kind: &ListKind, items: &Schema, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Vec<Step> {
        list.iter()
            .map(|item| item_step(kind, items, item).unwrap_or_default())
            .collect()
    };
    let (left, right) = (steps(live), steps(applied));
    let in_left: BTreeMap<&Step, usize> = left
        .iter()
        .enumerate()
        .map(|(index, step)| (step, index))
        .collect();
    let in_right: BTreeSet<&Step> = right.iter().collect();
    let mut shared = right.iter().filter(|step| in_left.contains_key(*step));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&Step> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() && left[l] != right[r] {
            let step = &left[l];
            if in_right.contains(step) && next_shared.is_some_and(|next| next != step) {
                l += 1;
                continue;
            }
        }
        if l < left.len() && (r >= right.len() || left[l] != right[r]) {
            let step = &left[l];
            if !in_right.contains(step) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if taken.contains(step) {
                l += 1;
                continue;
            }
        }
        if r < right.len() {
            let step = &right[r];
            if l < left.len() && left[l] == *step {
                l += 1;
            }
            taken.insert(step);
            let merged = in_left.get(step).map_or_else(
                || applied[r].clone(),
                |&index| merge(items, live[index].clone(), &applied[r]),
            );
            out.push(merged);
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
            r += 1;
        } else {
            l += 1;
        }
    }
    out
}

/// The value without the paths in `remove`. What becomes empty by it becomes null.
pub(crate) fn without(schema: &Schema, value: &Value, remove: &FieldSet) -> Value {
    match value {
        Value::Object(object) if !object.is_empty() => {
            let mut out = Map::new();
            for (key, child) in object {
                let step = field_step(key);
                if remove.members.contains(&step) {
                    continue;
                }
                let (below, _) = schema.field(key);
                let kept = match remove.children.get(&step) {
                    Some(subset) if !subset.is_empty() => without(below, child, subset),
                    _ => child.clone(),
                };
                out.insert(key.clone(), kept);
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Object(out)
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let (items, kind) = schema.items();
            let mut out = Vec::new();
            for item in list {
                let step = item_step(kind, items, item).unwrap_or_default();
                if remove.members.contains(&step) {
                    continue;
                }
                match remove.children.get(&step) {
                    Some(subset) if !subset.is_empty() => out.push(without(items, item, subset)),
                    _ => out.push(item.clone()),
                }
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Array(out)
            }
        }
        _ => value.clone(),
    }
}
