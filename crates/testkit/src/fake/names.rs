//! Which names and labels the API server accepts, and in what words it refuses others.

use serde_json::{Map, Value, json};

use super::kind::Kind;
use super::status_error::Cause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
        && text.starts_with(edge)
        && text.ends_with(edge)
}

/// What is wrong with the metadata of an object.
pub(crate) fn check_metadata(kind: &Kind, object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let label_only = matches!(kind.plural.as_str(), "namespaces" | "services") && !kind.custom;
        let (limit, valid, words) = if label_only {
            (
                63,
                is_label(name),
                if name.contains('.') {
                    "must not contain dots"
                } else {
                    LABEL_1123
                },
            )
        } else {
            (253, is_subdomain(name), SUBDOMAIN)
        };
        if name.len() > limit {
            let detail = format!("must be no more than {limit} characters");
            causes.push(Cause::invalid("metadata.name", &json!(name), &detail));
        }
        if !valid {
            causes.push(Cause::invalid("metadata.name", &json!(name), words));
        }
    }
    check_keys("metadata.labels", metadata["labels"].as_object(), &mut causes);
    for (_, value) in metadata["labels"].as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            causes.push(Cause::invalid(
                "metadata.labels",
                value,
                "must be no more than 63 bytes",
            ));
        }
        if !text.is_empty() && !is_qualified(text) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    check_keys(
        "metadata.annotations",
        metadata["annotations"].as_object(),
        &mut causes,
    );
    check_owners(metadata, &mut causes);
    causes
}

fn check_keys(field: &str, map: Option<&Map<String, Value>>, causes: &mut Vec<Cause>) {
    for (key, _) in map.into_iter().flatten() {
        let lower = if field.ends_with("annotations") {
            key.to_lowercase()
        } else {
            key.clone()
        };
        let name = lower.split_once('/').map_or(lower.as_str(), |(_, name)| name);
        if name.is_empty() {
            causes.push(Cause::invalid(field, &json!(key), "name part must be non-empty"));
        }
        if name.len() > 63 {
            causes.push(Cause::invalid(
                field,
                &json!(key),
                "name part must be no more than 63 bytes",
            ));
        }
        if !is_qualified(name) {
            causes.push(Cause::invalid(field, &json!(key), LABEL_KEY));
        }
    }
}

fn check_owners(metadata: &Value, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                let detail = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                causes.push(Cause::invalid(&path, &json!(""), detail));
            }
        }
        if owner["controller"] == json!(true) {
            controllers += 1;
        }
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            "Only one reference can have Controller set to true",
        ));
    }
}
