//! Label and field selectors: parsing and matching.

use serde_json::Value;

use super::kind::Kind;
use super::status_error::Failure;

#[derive(Debug, Clone)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// What a list or watch is limited to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

fn split_top(text: &str) -> Vec<String> {
    let (mut depth, mut out, mut current) = (0, Vec::new(), String::new());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(std::mem::take(&mut current));
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    out.push(current);
    out.into_iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    let set = |rest: &str| -> Vec<String> {
        rest.trim()
            .trim_matches(['(', ')'])
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    let owned = |text: &str| text.trim().to_owned();
    if let Some((key, rest)) = text.split_once(" notin ") {
        return Some(Requirement::NotIn(owned(key), set(rest)));
    }
    if let Some((key, rest)) = text.split_once(" in ") {
        return Some(Requirement::In(owned(key), set(rest)));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Requirement::Differs(owned(key), owned(value)));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::Equals(owned(key), owned(value)));
    }
    if let Some(key) = text.strip_prefix('!') {
        return Some(Requirement::Absent(owned(key)));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(plain).then(|| Requirement::Exists(owned(text)))
}

impl Selector {
    /// Reads both selectors of a request.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let mut out = Selector::default();
        for part in split_top(labels) {
            let parsed = requirement(&part).ok_or_else(|| {
                let word = part.split_whitespace().nth(1).unwrap_or(&part);
                Failure::bad_request(format!(
                    "unable to parse requirement: found '{word}', expected: in, notin, =, ==, !=, gt, lt"
                ))
            })?;
            out.labels.push(parsed);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, true)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: '{part}'; can't understand '{part}'"
                )));
            };
            let known = ["metadata.name", "metadata.namespace"].contains(&path)
                || kind.selectable.iter().any(|selectable| selectable == path);
            if !known {
                return Err(Failure::bad_request(format!("field label not supported: {path}")));
            }
            out.fields.push((path.to_owned(), value.to_owned(), equal));
        }
        Ok(out)
    }

    /// A label selector as objects write it: matchLabels and matchExpressions.
    pub(crate) fn from_object(selector: &Value) -> Self {
        let mut out = Selector::default();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            out.labels.push(Requirement::Equals(
                key.clone(),
                value.as_str().unwrap_or_default().to_owned(),
            ));
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            out.labels.push(match expression["operator"].as_str() {
                Some("In") => Requirement::In(key, values),
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("DoesNotExist") => Requirement::Absent(key),
                _ => Requirement::Exists(key),
            });
        }
        out
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let labels = self.labels.iter().all(|requirement| match requirement {
            Requirement::Equals(key, value) => label(key) == Some(value),
            Requirement::Differs(key, value) => label(key) != Some(value),
            Requirement::In(key, values) => label(key).is_some_and(|l| values.iter().any(|v| v == l)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|l| values.iter().all(|v| v != l)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        });
        labels
            && self.fields.iter().all(|(path, value, equal)| {
                let pointer = format!("/{}", path.replace('.', "/"));
                let found = match object.pointer(&pointer) {
                    Some(Value::String(text)) => text.clone(),
                    None | Some(Value::Null) => String::new(),
                    Some(other) => other.to_string(),
                };
                (found == *value) == *equal
            })
    }
}
