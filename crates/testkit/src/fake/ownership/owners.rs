//! The owners of the fields of an object as it names them, read and written. Who gets and who loses which fields is
//! decided in the parent module.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes: the identity of an entry of `managedFields`.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) operation: Operation,
    pub(crate) subresource: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) now: &'a str,
    /// Top-level fields this kind of request cannot write.
    pub(crate) ignored: &'a [&'a str],
    /// Whether objects name their owners.
    pub(crate) is_named: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) subresource: String,
    pub(super) api_version: String,
    pub(super) time: String,
    pub(super) fields: Arc<FieldSet>,
}

impl Entry {
    pub(super) fn is(&self, writer: &Writer<'_>) -> bool {
        self.manager == writer.manager
            && self.operation == writer.operation
            && self.subresource == writer.subresource
            && (self.operation == Operation::Apply || self.api_version == writer.api_version)
    }

    /// By what entries are ordered.
    fn place(&self) -> [&str; 5] {
        [
            self.operation.as_str(),
            &self.time,
            &self.manager,
            &self.api_version,
            &self.subresource,
        ]
    }

    /// Whether it is of the same writer.
    fn is_like(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && self.api_version == other.api_version
    }

    /// Whether nothing but the time of it is another one.
    fn differs_in_time(&self, other: &Self) -> bool {
        self.is_like(other) && !self.time.is_empty() && !other.time.is_empty()
    }

    fn written(&self) -> Value {
        let mut out = Map::new();
        out.insert("manager".to_owned(), json!(self.manager));
        out.insert("operation".to_owned(), json!(self.operation.as_str()));
        out.insert("apiVersion".to_owned(), json!(self.api_version));
        if !self.time.is_empty() {
            out.insert("time".to_owned(), json!(self.time));
        }
        out.insert("fieldsType".to_owned(), json!("FieldsV1"));
        out.insert("fieldsV1".to_owned(), self.fields.write());
        if !self.subresource.is_empty() {
            out.insert("subresource".to_owned(), json!(self.subresource));
        }
        Value::Object(out)
    }

    pub(super) fn printed(&self) -> String {
        let mut out = format!("\"{}\"", self.manager);
        if !self.subresource.is_empty() {
            out = format!("{out} with subresource \"{}\"", self.subresource);
        }
        match self.operation {
            Operation::Update => format!("{out} using {}", self.api_version),
            Operation::Apply => out,
        }
    }
}

/// The owners of the fields of an object, in the order in which it names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners {
    pub(super) entries: Vec<Arc<Entry>>,
    /// Whether the object names them in the very form in which they are written here.
    is_written: bool,
}

impl Owners {
    /// Reads the owners that an object names.
    pub(crate) fn read(object: &Value) -> Self {
        let list = object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        let entries = list.map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            Arc::new(Entry {
                manager: text("manager"),
                operation: if entry["operation"] == "Apply" {
                    Operation::Apply
                } else {
                    Operation::Update
                },
                subresource: text("subresource"),
                api_version: text("apiVersion"),
                time: text("time"),
                fields: Arc::new(FieldSet::parse(&entry["fieldsV1"])),
            })
        });
        Owners {
            entries: entries.collect(),
            is_written: false,
        }
    }

    pub(super) fn find(&mut self, writer: &Writer<'_>) -> Option<&mut Arc<Entry>> {
        self.entries.iter_mut().find(|entry| entry.is(writer))
    }

    /// Takes these fields from an entry.
    pub(super) fn take(entry: &mut Arc<Entry>, fields: &FieldSet) {
        if entry.fields.overlaps(fields) {
            let left = entry.fields.difference(fields);
            Arc::make_mut(entry).fields = Arc::new(left);
        }
    }

    /// Whether these own the same, whenever they came to it.
    pub(crate) fn own_the_same_as(&self, others: &Owners) -> bool {
        let are_same = |(one, other): (&Arc<Entry>, &Arc<Entry>)| {
            Arc::ptr_eq(one, other) || one.is_like(other) && one.fields == other.fields
        };
        self.entries.len() == others.entries.len() && self.entries.iter().zip(&others.entries).all(are_same)
    }

    /// In their order, without those who own nothing.
    pub(super) fn sorted(mut self) -> Owners {
        self.entries.retain(|entry| !entry.fields.is_empty());
        self.entries.sort_by(|a, b| a.place().cmp(&b.place()));
        self
    }

    /// Names the owners in an object that comes from one with the owners `before`, named in the list `named`.
    pub(super) fn write(self, object: &mut Value, before: &Owners, named: &Value) -> Owners {
        let mut this = self.sorted();
        this.is_written = true;
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return this;
        };
        if this.entries.is_empty() {
            metadata.remove("managedFields");
            return this;
        }
        let slot = metadata.entry("managedFields").or_insert(Value::Null);
        // What is there already need not be written again.
        let mut there = match slot.take() {
            found @ Value::Array(_) if before.is_written && found == *named => found,
            _ => Value::Null,
        };
        let list = this.entries.iter().map(|entry| {
            let same_fields = |other: &Arc<Entry>| Arc::ptr_eq(&other.fields, &entry.fields);
            let index = before.entries.iter().position(same_fields);
            let mut known = index.and_then(|index| there.get_mut(index)).map(Value::take);
            let before = index.and_then(|index| before.entries.get(index));
            match (known.as_mut().and_then(Value::as_object_mut), before) {
                (Some(_), Some(before)) if before == entry => {}
                (Some(written), Some(before)) if before.differs_in_time(entry) => {
                    written.insert("time".to_owned(), json!(entry.time));
                }
                _ => return entry.written(),
            }
            known.unwrap_or_default()
        });
        *slot = Value::Array(list.collect());
        this
    }
}

pub(super) fn new_entry(writer: &Writer<'_>, fields: FieldSet) -> Entry {
    Entry {
        manager: writer.manager.to_owned(),
        operation: writer.operation,
        subresource: writer.subresource.to_owned(),
        api_version: writer.api_version.to_owned(),
        time: writer.now.to_owned(),
        fields: Arc::new(fields),
    }
}
