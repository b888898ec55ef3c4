//! Transcripts of two servers, made comparable: what differs from run to run by its nature (UIDs, versions, times,
//! addresses) is replaced by names in order of appearance. What tells of the whole server (the version of a list or a
//! bookmark) says the same for all: others may write at the same time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A request and its answer, or a watch and one of its events.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Method and path.
    pub request: String,
    /// The HTTP status.
    pub code: u16,
    /// The body, or the event.
    pub body: Value,
}

/// In place of the version of a whole server.
const NEWEST: &str = "<newest version>";

#[derive(Default)]
struct Names {
    known: BTreeMap<String, String>,
    /// Versions that lists and bookmarks told.
    of_server: BTreeSet<String>,
    versions: usize,
    others: usize,
}

impl Names {
    fn version(&mut self, text: &str) -> String {
        if text.is_empty() || text == "0" || text == "1" || text == NEWEST {
            return text.to_owned();
        }
        if !self.known.contains_key(text) {
            self.versions += 1;
            self.known
                .insert(text.to_owned(), format!("<version {}>", self.versions));
        }
        self.known[text].clone()
    }

    fn uid(&mut self, text: &str) -> String {
        if text.len() != 36 {
            return text.to_owned();
        }
        if !self.known.contains_key(text) {
            self.others += 1;
            self.known
                .insert(text.to_owned(), format!("<uid {}>", self.others));
        }
        self.known[text].clone()
    }

    /// Takes the version of the whole server out of a list or a bookmark.
    fn newest(&mut self, body: &mut Value) {
        let metadata = if body.get("items").is_some() {
            &mut body["metadata"]
        } else if body["type"] == "BOOKMARK" {
            &mut body["object"]["metadata"]
        } else {
            return;
        };
        if let Some(version) = metadata["resourceVersion"].as_str() {
            self.of_server.insert(version.to_owned());
            metadata["resourceVersion"] = Value::from(NEWEST);
        }
    }

    /// Replaces what is known inside a longer text; versions only where they cannot be anything else.
    fn inside(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (value, name) in self.known.iter().filter(|(value, _)| value.len() == 36) {
            out = out.replace(value, name);
        }
        // Where nobody else writes, the version of a list is also that of an object: one word for both.
        let versions = self.known.keys().filter(|value| value.len() != 36);
        for value in versions.chain(&self.of_server) {
            for (before, after) in [("(", ")"), ("resourceVersion=", "&"), (": ", " ")] {
                out = out.replace(
                    &format!("{before}{value}{after}"),
                    &format!("{before}<version>{after}"),
                );
            }
        }
        out
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let mut out: Map<String, Value> = object
                    .iter()
                    .map(|(key, value)| (key.clone(), self.value(key, value)))
                    .collect();
                if let Some(Value::String(prefix)) = object.get("generateName") {
                    out.insert("name".to_owned(), Value::String(format!("{prefix}<generated>")));
                }
                Value::Object(out)
            }
            Value::Array(list) => {
                let mut list: Vec<Value> = list.iter().map(|item| self.value(key, item)).collect();
                if key == "causes" {
                    // Real servers name some causes more than once and others in any order.
                    list.sort_by_key(ToString::to_string);
                    list.dedup();
                }
                if key == "managedFields" {
                    list.sort_by_key(|entry| {
                        format!(
                            "{} {} {}",
                            entry["manager"], entry["operation"], entry["subresource"]
                        )
                    });
                }
                Value::Array(list)
            }
            Value::String(text) => Value::String(match key {
                "resourceVersion" => self.version(text),
                "uid" => self.uid(text),
                "continue" if !text.is_empty() => "<continue>".to_owned(),
                "clusterIP" | "clusterIPs" if text.starts_with("10.") => "<address>".to_owned(),
                _ if text.parse::<jiff::Timestamp>().is_ok() => "<time>".to_owned(),
                _ => {
                    if text.len() == 36 && text.split('-').count() == 5 {
                        self.uid(text)
                    } else {
                        // Some messages end with the server's own types or a difference of them.
                        let text = text.split("\n@@").next().unwrap_or_default();
                        let text = text.split("Invalid value: {").next().unwrap_or_default();
                        let text = text.split("Invalid value: [").next().unwrap_or_default();
                        let text = text.split(", current: ").next().unwrap_or_default();
                        let text = if key == "message" {
                            text.split(" is invalid: [").next().unwrap_or_default()
                        } else {
                            text
                        };
                        self.inside(text)
                    }
                }
            }),
            other => other.clone(),
        }
    }
}

/// The transcript as lines that two servers can be compared by.
pub fn comparable(exchanges: &[Exchange], namespace: &str) -> Vec<String> {
    let mut names = Names::default();
    let mut out = Vec::new();
    for exchange in exchanges {
        // Sorted first: names are given in order of appearance.
        let mut body = sorted(&exchange.body);
        names.newest(&mut body);
        let body = names.value("", &body);
        let mut request = names.inside(&format!("{}&", exchange.request));
        if let Some((before, token)) = request.split_once("continue=") {
            let after = token.split_once('&').map_or("", |(_, after)| after);
            request = format!("{before}continue=<continue>&{after}");
        }
        let line = format!("{} -> {} {body}", request.trim_end_matches('&'), exchange.code);
        out.push(line.replace(namespace, "<namespace>"));
    }
    out
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let ordered: BTreeMap<&String, &Value> = object.iter().collect();
            Value::Object(
                ordered
                    .into_iter()
                    .map(|(key, value)| (key.clone(), sorted(value)))
                    .collect(),
            )
        }
        Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
