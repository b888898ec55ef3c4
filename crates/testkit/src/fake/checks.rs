//! What a written schema demands of values, read once: objects are judged by it all the time.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

/// What one node of a schema demands.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    /// The values of an enumeration.
    pub(crate) allowed: Option<Vec<Value>>,
    /// The type.
    pub(crate) wanted: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) minimum: Option<Value>,
    pub(crate) maximum: Option<Value>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) items: Option<Box<Checks>>,
    pub(crate) required: Vec<String>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    /// Fields by their names; none in one whose schema is no object.
    properties: BTreeMap<String, Option<Checks>>,
    additional: Option<Box<Checks>>,
}

/// A pattern and what was made of it: nothing of what is none.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    regex: Option<Regex>,
}

impl Pattern {
    fn of(text: &str) -> Self {
        Pattern {
            text: text.to_owned(),
            regex: Regex::new(text).ok(),
        }
    }

    /// Whether a text is as it has it. What is no pattern takes everything.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl Checks {
    /// What a written schema demands.
    pub(crate) fn of(written: &Map<String, Value>) -> Self {
        let flag = |key: &str| written.get(key) == Some(&Value::Bool(true));
        let text = |key: &str| written.get(key).and_then(Value::as_str);
        let number = |key: &str| written.get(key).and_then(Value::as_u64);
        let list = |key: &str| written.get(key).and_then(Value::as_array);
        let below = |key: &str| written.get(key).and_then(Value::as_object);
        let boxed = |key: &str| below(key).map(|written| Box::new(Checks::of(written)));
        let properties = below("properties").into_iter().flatten();
        let required = list("required").into_iter().flatten().filter_map(Value::as_str);
        Checks {
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            allowed: list("enum").cloned(),
            wanted: text("type").map(str::to_owned),
            format: text("format").map(str::to_owned),
            max_length: number("maxLength"),
            min_length: number("minLength"),
            pattern: text("pattern").map(Pattern::of),
            minimum: written.get("minimum").cloned(),
            maximum: written.get("maximum").cloned(),
            max_items: number("maxItems"),
            min_items: number("minItems"),
            items: boxed("items"),
            required: required.map(str::to_owned).collect(),
            max_properties: number("maxProperties"),
            min_properties: number("minProperties"),
            properties: properties
                .map(|(name, written)| (name.clone(), written.as_object().map(Checks::of)))
                .collect(),
            additional: boxed("additionalProperties"),
        }
    }

    /// What is demanded of a field, or of an entry of a map.
    pub(crate) fn below(&self, name: &str) -> Option<&Checks> {
        match self.properties.get(name) {
            Some(checks) => checks.as_ref(),
            None => self.additional.as_deref(),
        }
    }
}
