//! The shape of a resource: what fields exist, how lists merge, what is defaulted. Custom kinds get theirs from
//! their definition, built-in kinds from `builtin_schemas.json` (the OpenAPI document a Kubernetes 1.36 API server
//! publishes, reduced to structure). Judging values is `validate`'s business, not this module's.

mod written;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use kube::core::cel::{CompiledSchema, compile_schema};
use serde_json::{Map, Value};

use super::checks::Checks;
use super::locked;
use super::status_error::Cause;
pub(crate) use written::{built_in, custom};

/// Fields at the top of an object that are in the form in which they are kept already.
pub(crate) type Settled<'a> = &'a [&'a str];

/// So many verdicts of rules are kept of one schema.
const VERDICTS: usize = 1000;

/// One node of a resource's structure.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    /// Whether it is an amount of something.
    pub(crate) is_quantity: bool,
    /// What there is further below.
    pub(crate) below: Below,
    /// The schema as written, by which objects of custom kinds are judged.
    pub(crate) written: Map<String, Value>,
    checks: OnceLock<Checks>,
    rules: OnceLock<CompiledSchema>,
    rules_see_status: OnceLock<bool>,
    /// What the rules said, by what they were asked.
    verdicts: Mutex<HashMap<String, Vec<Cause>>>,
    /// The merge key of a strategic merge patch, for lists of built-in kinds.
    pub(crate) patch_merge_key: Option<String>,
    /// Whether a strategic merge patch merges this list instead of replacing it.
    pub(crate) patch_merges: bool,
}

/// What there is somewhere below a node: where there is nothing, nobody needs to look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Below {
    defaults: bool,
    pub(crate) quantities: bool,
}

/// What kind of value a node holds.
#[derive(Debug, Default)]
pub(crate) enum Shape {
    /// Nothing is known: fields are kept, maps are merged, lists are atomic.
    #[default]
    Any,
    Object(ObjectShape),
    Array(ArrayShape),
    Scalar,
}

impl Shape {
    /// What is known of the values in it.
    fn inner(&self) -> impl Iterator<Item = &Arc<Schema>> {
        let (fields, rest) = match self {
            Self::Object(object) => (Some(&object.fields), object.additional.as_ref()),
            Self::Array(array) => (None, Some(&array.items)),
            Self::Any | Self::Scalar => (None, None),
        };
        fields.into_iter().flat_map(BTreeMap::values).chain(rest)
    }
}

/// A struct (named fields), a map (additional), or both.
#[derive(Debug, Default)]
pub(crate) struct ObjectShape {
    pub(crate) fields: BTreeMap<String, Arc<Schema>>,
    pub(crate) additional: Option<Arc<Schema>>,
    pub(crate) preserve: bool,
    pub(crate) atomic: bool,
}

/// A list and how its items are told apart.
#[derive(Debug)]
pub(crate) struct ArrayShape {
    pub(crate) items: Arc<Schema>,
    pub(crate) kind: ListKind,
}

/// How the items of a list are identified when two managers write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

fn holds_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(node) => {
            node.contains_key("x-kubernetes-validations") || node.values().any(holds_rules)
        }
        Value::Array(nodes) => nodes.iter().any(holds_rules),
        _ => false,
    }
}

static ANY: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(Schema::default()));

/// A node about which nothing is known.
pub(crate) fn any() -> Arc<Schema> {
    Arc::clone(&ANY)
}

impl Schema {
    /// The same of this shape.
    fn shaped(self, shape: Shape) -> Self {
        let below = Below {
            defaults: shape
                .inner()
                .any(|inner| inner.default.is_some() || inner.below.defaults),
            quantities: shape
                .inner()
                .any(|inner| inner.is_quantity || inner.below.quantities),
        };
        Self { shape, below, ..self }
    }

    /// What the written schema demands, read when it is first asked for.
    pub(crate) fn checks(&self) -> &Checks {
        self.checks.get_or_init(|| Checks::of(&self.written))
    }

    /// The rules of the written schema, compiled when they are first asked for.
    pub(crate) fn rules(&self) -> &CompiledSchema {
        self.rules
            .get_or_init(|| compile_schema(&Value::Object(self.written.clone())))
    }

    /// What the rules say to a question: what they said before, or what asking them says.
    pub(crate) fn verdict(&self, question: String, ask: impl FnOnce() -> Vec<Cause>) -> Vec<Cause> {
        if let Some(known) = locked(&self.verdicts).get(&question) {
            return known.clone();
        }
        let causes = ask();
        let mut verdicts = locked(&self.verdicts);
        if verdicts.len() == VERDICTS {
            verdicts.clear();
        }
        verdicts.insert(question, causes.clone());
        causes
    }

    /// Whether any rule of an object is about its status: one that stands within it, or one about the whole object that
    /// names it.
    pub(crate) fn rules_see_status(&self) -> bool {
        *self.rules_see_status.get_or_init(|| {
            let properties = self.written.get("properties");
            let own = self.written.get("x-kubernetes-validations");
            properties.is_some_and(|all| holds_rules(&all["status"]))
                || own.is_some_and(|rules| rules.to_string().contains("status"))
        })
    }

    /// The schema of the field `name`, and whether it is a named field (and not an entry of a map).
    pub(crate) fn field(&self, name: &str) -> (&Arc<Schema>, bool) {
        match &self.shape {
            Shape::Object(object) => match object.fields.get(name) {
                Some(schema) => (schema, true),
                None => (object.additional.as_ref().unwrap_or(&*ANY), false),
            },
            _ => (&*ANY, false),
        }
    }

    /// Whether writers own this value as a whole.
    pub(crate) fn atomic(&self, value: &Value) -> bool {
        match (&self.shape, value) {
            (Shape::Object(object), _) => object.atomic,
            (Shape::Array(array), _) => array.kind == ListKind::Atomic,
            (Shape::Any, Value::Array(_)) => true,
            _ => false,
        }
    }

    /// The schema and identity of the items of a list.
    pub(crate) fn items(&self) -> (&Arc<Schema>, &ListKind) {
        match &self.shape {
            Shape::Array(array) => (&array.items, &array.kind),
            _ => (&*ANY, &ListKind::Atomic),
        }
    }

    /// Removes every field the structure does not name. Into these fields at the top it does not look.
    pub(crate) fn prune(&self, value: &mut Value, settled: Settled<'_>) {
        match (&self.shape, value) {
            (Shape::Object(shape), Value::Object(object)) => {
                object.retain(|key, child| {
                    if settled.contains(&key.as_str()) {
                        true
                    } else if let Some(schema) = shape.fields.get(key) {
                        schema.prune(child, &[]);
                        true
                    } else if let Some(schema) = &shape.additional {
                        schema.prune(child, &[]);
                        true
                    } else {
                        shape.preserve
                    }
                });
            }
            (Shape::Array(shape), Value::Array(items)) => {
                for item in items {
                    shape.items.prune(item, &[]);
                }
            }
            _ => {}
        }
    }

    /// Fills in defaults; a null where null is not allowed but a default exists counts as absent. Into these fields at the
    /// top it does not look.
    pub(crate) fn fill_defaults(&self, value: &mut Value, settled: Settled<'_>) {
        if !self.below.defaults {
            return;
        }
        match (&self.shape, value) {
            (Shape::Object(shape), Value::Object(object)) => {
                for (name, schema) in &shape.fields {
                    let Some(default) = &schema.default else { continue };
                    let absent = match object.get(name) {
                        None => true,
                        Some(Value::Null) => !schema.nullable,
                        Some(_) => false,
                    };
                    if absent {
                        object.insert(name.clone(), default.clone());
                    }
                }
                for (key, child) in object.iter_mut() {
                    if settled.contains(&key.as_str()) {
                        continue;
                    }
                    if let Some(schema) = shape.fields.get(key).or(shape.additional.as_ref()) {
                        schema.fill_defaults(child, &[]);
                    }
                }
            }
            (Shape::Array(shape), Value::Array(items)) => {
                for item in items {
                    shape.items.fill_defaults(item, &[]);
                }
            }
            _ => {}
        }
    }
}
