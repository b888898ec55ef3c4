//! Values that a schema allows: a few for each scalar, and the least that an object must have.

use serde_json::{Map, Value, json};

use crate::fake::Judge;

/// Texts of which at least two are allowed wherever a rule asks for a certain form.
const TEXTS: &[&str] = &[
    "alpha",
    "beta",
    "1h",
    "2h30m",
    "3.6.1",
    "3.5.21",
    "1000",
    "2000",
    "bucket/key",
    "other/key",
    "http://one.example.dev:2379",
    "https://two.example.dev:2379",
    "0 3 * * *",
    "30 4 * * 1",
    "Europe/Berlin",
    "Etc/UTC",
    "1Gi",
    "2Gi",
    "--log-level=warn",
    "--log-level=info",
];

const NUMBERS: &[i64] = &[
    1, 2, 0, 3, 5, 7, 10, 50, 100, 250, 500, 1000, 2048, 10_000, 100_000,
];

const TIMES: &[&str] = &["2026-03-01T00:00:00Z", "2026-04-01T12:30:00Z"];

/// Several values that the schema allows by itself, rules of parents aside. Empty if none is known.
pub(super) fn samples(schema: &Value) -> Vec<Value> {
    let judge = Judge::new(&json!({"type": "object", "properties": {"value": schema}}));
    let mut found = candidates(schema);
    found.retain(|value| judge.refusals(&json!({"value": value})).is_empty());
    found
}

/// The words of a pattern that is an enumeration, `^(a|b)$`.
fn words(schema: &Value) -> impl Iterator<Item = &str> {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let words = pattern
        .strip_prefix("^(")
        .and_then(|rest| rest.strip_suffix(")$"));
    words.into_iter().flat_map(|words| words.split('|'))
}

fn candidates(schema: &Value) -> Vec<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().filter(|value| !value.is_null()).cloned().collect();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!("1Gi"), json!("2Gi"), json!("50%"), json!(1), json!(2)];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer") => NUMBERS.iter().map(|&number| json!(number)).collect(),
        Some("number") => vec![json!(0.5), json!(1.5)],
        Some("string") if schema["format"] == "date-time" => TIMES.iter().map(|&time| json!(time)).collect(),
        Some("string") => words(schema)
            .chain(TEXTS.iter().copied())
            .map(|text| json!(text))
            .collect(),
        Some("array") => {
            let items = samples(&schema["items"]);
            let single = items.iter().map(|item| json!([item]));
            let double = items.windows(2).map(|pair| json!(pair));
            single.chain(double).collect()
        }
        _ if schema["additionalProperties"].is_object() => {
            let values = samples(&schema["additionalProperties"]);
            let single = values.iter().map(|value| json!({"alpha": value}));
            let double = values
                .windows(2)
                .map(|pair| json!({"alpha": pair[0], "beta": pair[1]}));
            single.chain(double).collect()
        }
        _ => vec![
            json!({"alpha": 1}),
            json!({"beta": {"gamma": "delta"}}),
            json!({}),
        ],
    }
}

/// The least value the schema allows, as far as it can be told without its rules.
pub(super) fn least(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    if schema["properties"].is_object() {
        let required = schema["required"].as_array().into_iter().flatten();
        let fields = required.filter_map(Value::as_str);
        return Value::Object(
            fields
                .map(|name| (name.to_owned(), least(&schema["properties"][name])))
                .collect(),
        );
    }
    match schema["type"].as_str() {
        Some("array") if schema["minItems"].as_u64().unwrap_or(0) > 0 => json!([least(&schema["items"])]),
        Some("array") => json!([]),
        Some("object") => Value::Object(Map::new()),
        _ => samples(schema).into_iter().next().unwrap_or_default(),
    }
}
