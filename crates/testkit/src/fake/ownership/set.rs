//! Sets of field paths in the form of `fieldsV1`. What belongs into a set is decided by `typed`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::fake::schema::{ListKind, Schema, Shape};

/// A step of a path as `fieldsV1` writes it: `f:name`, `k:{"name":"a"}` or `v:"x"`.
pub(crate) type Step = String;

/// A set of paths, as a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    pub(crate) members: BTreeSet<Step>,
    pub(crate) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// Reads `fieldsV1`.
    pub(crate) fn parse(written: &Value) -> Self {
        let mut set = FieldSet::default();
        for (step, inner) in written.as_object().into_iter().flatten() {
            if step == "." {
                continue;
            }
            let below = inner.as_object().filter(|object| !object.is_empty());
            match below {
                None => {
                    set.members.insert(step.clone());
                }
                Some(object) => {
                    if object.contains_key(".") {
                        set.members.insert(step.clone());
                    }
                    let child = FieldSet::parse(inner);
                    if !child.is_empty() {
                        set.children.insert(step.clone(), child);
                    }
                }
            }
        }
        set
    }

    /// Writes `fieldsV1`.
    pub(crate) fn write(&self) -> Value {
        let mut out = Map::new();
        let steps: BTreeSet<&Step> = self.members.iter().chain(self.children.keys()).collect();
        for step in steps {
            let mut inner = match self.children.get(step) {
                Some(child) => child.write(),
                None => json!({}),
            };
            if self.members.contains(step)
                && let Value::Object(object) = &mut inner
                && !object.is_empty()
            {
                object.insert(".".to_owned(), json!({}));
            }
            out.insert(step.clone(), inner);
        }
        Value::Object(out)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(FieldSet::is_empty)
    }

    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(crate) fn remove(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.remove(last);
                self.children.remove(last);
            }
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(first) {
                    child.remove(rest);
                    if child.is_empty() {
                        self.children.remove(first);
                    }
                }
            }
        }
    }

    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let merged = out
                .children
                .get(step)
                .map_or_else(|| child.clone(), |mine| mine.union(child));
            out.children.insert(step.clone(), merged);
        }
        out
    }

    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.combine(
            other,
            |mine, theirs| mine.difference(theirs).cloned().collect(),
            FieldSet::difference,
            true,
        )
    }

    /// Whether any path is in both sets: whether [`FieldSet::difference`] leaves anything out.
    pub(crate) fn overlaps(&self, other: &FieldSet) -> bool {
        let children = self.children.iter().any(|(step, child)| {
            let theirs = other.children.get(step);
            theirs.is_some_and(|theirs| child.overlaps(theirs))
        });
        children || !self.members.is_disjoint(&other.members)
    }

    /// Whether every path of the other set is in this one, too: whether [`FieldSet::union`] adds nothing.
    pub(crate) fn has_all(&self, other: &FieldSet) -> bool {
        other.members.is_subset(&self.members)
            && other.children.iter().all(|(step, theirs)| {
                let own = self.children.get(step);
                own.is_some_and(|own| own.has_all(theirs))
            })
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.combine(
            other,
            |mine, theirs| mine.intersection(theirs).cloned().collect(),
            FieldSet::intersection,
            false,
        )
    }

    fn combine(
        &self,
        other: &FieldSet,
        members: fn(&BTreeSet<Step>, &BTreeSet<Step>) -> BTreeSet<Step>,
        below: fn(&FieldSet, &FieldSet) -> FieldSet,
        keep_unmatched: bool,
    ) -> FieldSet {
        let mut out = FieldSet {
            members: members(&self.members, &other.members),
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let combined = match other.children.get(step) {
                Some(theirs) => below(child, theirs),
                None if keep_unmatched => child.clone(),
                None => continue,
            };
            if !combined.is_empty() {
                out.children.insert(step.clone(), combined);
            }
        }
        out
    }

    /// Also makes a member of every named field something below which is in the set.
    pub(crate) fn with_named_fields(&self, schema: &Schema) -> FieldSet {
        let mut out = FieldSet {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let below = match step.strip_prefix("f:") {
                Some(name) => {
                    let (below, named) = schema.field(name);
                    if named {
                        out.members.insert(step.clone());
                    }
                    below
                }
                None => schema.items().0,
            };
            out.children.insert(step.clone(), child.with_named_fields(below));
        }
        out
    }

    /// Every member as a path, for people.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, prefix: &str, out: &mut Vec<String>) {
        let steps: BTreeSet<&Step> = self.members.iter().chain(self.children.keys()).collect();
        for step in steps {
            let path = format!("{prefix}{}", printed(step));
            if self.members.contains(step) {
                out.push(path.clone());
            }
            if let Some(child) = self.children.get(step) {
                child.collect_paths(&path, out);
            }
        }
    }
}

fn printed(step: &str) -> String {
    if let Some(name) = step.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(keys) = step.strip_prefix("k:") {
        let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
        let sorted: BTreeMap<&String, &Value> = keys.iter().collect();
        let pairs: Vec<String> = sorted
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        return format!("[{}]", pairs.join(","));
    }
    format!("[={}]", step.strip_prefix("v:").unwrap_or(step))
}

/// The step that names a field.
pub(crate) fn field_step(name: &str) -> Step {
    format!("f:{name}")
}

/// The step that names an item of a list, or None when the item has no identity.
pub(crate) fn item_step(kind: &ListKind, items: &Schema, item: &Value) -> Option<Step> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(format!("v:{item}")),
        ListKind::Map(keys) => {
            let object = item.as_object()?;
            let mut identity = BTreeMap::new();
            for key in keys {
                let value = object.get(key).cloned().or_else(|| default_of(items, key));
                if let Some(value) = value {
                    identity.insert(key.clone(), value);
                }
            }
            if identity.is_empty() {
                return None;
            }
            let written: Vec<String> = identity
                .iter()
                .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
                .collect();
            Some(format!("k:{{{}}}", written.join(",")))
        }
    }
}

fn default_of(items: &Schema, key: &str) -> Option<Value> {
    match &items.shape {
        Shape::Object(object) => object.fields.get(key)?.default.clone(),
        _ => None,
    }
}
