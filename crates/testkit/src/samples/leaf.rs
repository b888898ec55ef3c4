//! The leaves of a schema: every field that holds a value and not further fields.

use serde_json::{Map, Value};

use super::value::{least, samples};

/// A field that holds a value: a scalar, a list or map of scalars, or a free-form object.
#[derive(Clone, Debug)]
pub struct Leaf {
    path: String,
    parents: Vec<Step>,
    name: String,
    samples: Vec<Value>,
}

/// One step from the root towards a leaf, and what is put there if nothing is.
#[derive(Clone, Debug)]
enum Step {
    Field(String, Value),
    Item(Value),
    Entry(Value),
}

/// Every leaf of an object's schema, in the order of their paths.
pub fn leaves(schema: &Value) -> Vec<Leaf> {
    let mut found = Vec::new();
    fields(schema, "", &[], &mut found);
    found.sort_by(|one: &Leaf, other| one.path.cmp(&other.path));
    found
}

fn fields(schema: &Value, path: &str, parents: &[Step], found: &mut Vec<Leaf>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}.{name}"),
        };
        let mut steps = parents.to_vec();
        if has_fields(below) {
            steps.push(Step::Field(name.clone(), least(below)));
            fields(below, &path, &steps, found);
        } else if has_fields(&below["items"]) {
            steps.push(Step::Field(name.clone(), Value::Array(Vec::new())));
            steps.push(Step::Item(least(&below["items"])));
            fields(&below["items"], &format!("{path}[]"), &steps, found);
        } else if has_fields(&below["additionalProperties"]) {
            steps.push(Step::Field(name.clone(), Value::Object(Map::new())));
            steps.push(Step::Entry(least(&below["additionalProperties"])));
            fields(
                &below["additionalProperties"],
                &format!("{path}{{}}"),
                &steps,
                found,
            );
        } else {
            found.push(Leaf {
                path,
                parents: steps,
                name: name.clone(),
                samples: samples(below),
            });
        }
    }
}

fn has_fields(schema: &Value) -> bool {
    schema["properties"]
        .as_object()
        .is_some_and(|fields| !fields.is_empty())
}

impl Leaf {
    /// Where it is, such as `spec.pod.tolerations[].key`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Values to try.
    pub fn samples(&self) -> &[Value] {
        &self.samples
    }

    /// Whether it is this field or below it.
    pub fn is_within(&self, field: &str) -> bool {
        self.path
            .strip_prefix(field)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
    }

    /// The object with this value here. What lies on the way is made with the least it must have; in lists, item
    /// number `item` is meant, or a new one at the end.
    #[must_use]
    pub fn with(&self, object: &Value, value: &Value, item: usize) -> Value {
        let mut object = object.clone();
        self.parent(&mut object, item)
            .insert(self.name.clone(), value.clone());
        object
    }

    /// The object with nothing here, but everything on the way.
    #[must_use]
    pub fn without(&self, object: &Value) -> Value {
        let mut object = object.clone();
        self.parent(&mut object, 0).remove(&self.name);
        object
    }

    fn parent<'a>(&self, object: &'a mut Value, item: usize) -> &'a mut Map<String, Value> {
        let end = self.parents.iter().fold(object, |here, step| match step {
            Step::Field(name, least) => filled(&mut here[name], least),
            Step::Entry(least) => filled(&mut here["alpha"], least),
            Step::Item(least) => {
                let items = here.as_array_mut().expect("the step before put a list here");
                let item = item.min(items.len());
                if item == items.len() {
                    items.push(least.clone());
                }
                &mut items[item]
            }
        });
        end.as_object_mut().expect("a leaf is a field of an object")
    }
}

fn filled<'a>(place: &'a mut Value, least: &Value) -> &'a mut Value {
    if place.is_null() {
        *place = least.clone();
    }
    place
}
