//! From schemas as they are written, in definitions of custom kinds or in `builtin_schemas.json`, to structure.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::{ArrayShape, ListKind, ObjectShape, Schema, Shape, any};

/// Turns written schemas into [`Schema`] trees, resolving named definitions once.
#[derive(Default)]
struct Parser {
    definitions: Map<String, Value>,
    parsed: HashMap<String, Arc<Schema>>,
}

impl Parser {
    fn parse(&mut self, written: &Value) -> Arc<Schema> {
        let Some(object) = written.as_object() else {
            return any();
        };
        if let Some(name) = object.get("$ref").and_then(Value::as_str) {
            let target = self.named(name);
            if object.len() == 1 {
                return target;
            }
            let mut merged = self
                .definitions
                .get(name)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            merged.extend(
                object
                    .iter()
                    .filter(|(key, _)| *key != "$ref")
                    .map(|(k, v)| (k.clone(), v.clone())),
            );
            return self.parse(&Value::Object(merged));
        }
        let flag = |key: &str| object.get(key).and_then(Value::as_bool).unwrap_or(false);
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let shape = match text("type") {
            _ if flag("x-kubernetes-int-or-string") => Shape::Scalar,
            Some("object") => self.object(object),
            Some("array") => {
                let keys = object.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let kind = match text("x-kubernetes-list-type") {
                    Some("set") => ListKind::Set,
                    Some("map") => ListKind::Map(
                        keys.into_iter()
                            .flatten()
                            .filter_map(Value::as_str)
                            .map(ToOwned::to_owned)
                            .collect(),
                    ),
                    _ => ListKind::Atomic,
                };
                let items = object.get("items").map_or_else(any, |items| self.parse(items));
                Shape::Array(ArrayShape { items, kind })
            }
            Some(_) => Shape::Scalar,
            None => Shape::Any,
        };
        let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
        Arc::new(
            Schema {
                default: object.get("default").cloned(),
                nullable: flag("nullable"),
                is_quantity: text("format") == Some("quantity"),
                written: object.clone(),
                patch_merge_key: text("x-kubernetes-patch-merge-key").map(ToOwned::to_owned),
                patch_merges: strategy.split(',').any(|word| word == "merge"),
                ..Schema::default()
            }
            .shaped(shape),
        )
    }

    fn object(&mut self, object: &Map<String, Value>) -> Shape {
        let preserve = object
            .get("x-kubernetes-preserve-unknown-fields")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let atomic = object.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let mut fields: BTreeMap<String, Arc<Schema>> = BTreeMap::new();
        if let Some(properties) = object.get("properties").and_then(Value::as_object) {
            for (name, written) in properties {
                fields.insert(name.clone(), self.parse(written));
            }
        }
        let additional = match object.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(any()),
            Some(written @ Value::Object(_)) => Some(self.parse(written)),
            _ => None,
        };
        if object
            .get("x-kubernetes-embedded-resource")
            .and_then(Value::as_bool)
            == Some(true)
        {
            fields.entry("metadata".to_owned()).or_insert_with(any);
            fields.entry("apiVersion".to_owned()).or_insert_with(scalar);
            fields.entry("kind".to_owned()).or_insert_with(scalar);
        }
        Shape::Object(ObjectShape {
            fields,
            additional,
            preserve,
            atomic,
        })
    }

    fn named(&mut self, name: &str) -> Arc<Schema> {
        if let Some(schema) = self.parsed.get(name) {
            return Arc::clone(schema);
        }
        let written = self.definitions.get(name).cloned().unwrap_or(Value::Null);
        let schema = self.parse(&written);
        self.parsed.insert(name.to_owned(), Arc::clone(&schema));
        schema
    }
}

fn scalar() -> Arc<Schema> {
    Arc::new(Schema {
        shape: Shape::Scalar,
        ..Schema::default()
    })
}

static BUILT_IN: LazyLock<HashMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let definitions: Map<String, Value> = serde_json::from_str(include_str!("../builtin_schemas.json"))
        .expect("the committed schemas are JSON");
    let names: Vec<String> = definitions.keys().cloned().collect();
    let mut parser = Parser {
        definitions,
        parsed: HashMap::new(),
    };
    for name in &names {
        parser.named(name);
    }
    parser.parsed
});

/// The structure of a built-in kind, by the name it has in `builtin_schemas.json`.
pub(crate) fn built_in(name: &str) -> Arc<Schema> {
    BUILT_IN.get(name).cloned().unwrap_or_else(any)
}

/// The structure of a custom kind: its written schema, with the object's own metadata put in.
pub(crate) fn custom(written: &Value) -> Arc<Schema> {
    let mut root = written.clone();
    if !root.is_object() {
        root = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let parsed = Parser::default().parse(&root);
    let Some(schema) = Arc::into_inner(parsed) else {
        return any();
    };
    let Shape::Object(mut object) = schema.shape else {
        return any();
    };
    object
        .fields
        .insert("metadata".to_owned(), built_in("ObjectMeta"));
    object.fields.insert("apiVersion".to_owned(), scalar());
    object.fields.insert("kind".to_owned(), scalar());
    let schema = Schema {
        shape: Shape::Any,
        ..schema
    };
    Arc::new(schema.shaped(Shape::Object(object)))
}
