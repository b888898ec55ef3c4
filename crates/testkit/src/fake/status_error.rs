//! Failures in the form of the API server's `Status` objects. Nothing here knows why a request failed.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::kind::Kind;

/// One reason of a failure, tied to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    fn new(reason: &str, field: &str, message: String) -> Self {
        Cause {
            reason: reason.to_owned(),
            message,
            field: field.to_owned(),
        }
    }

    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let tail = if detail.is_empty() {
            String::new()
        } else {
            format!(": {detail}")
        };
        Cause::new("FieldValueRequired", field, format!("Required value{tail}"))
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Cause::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {}: {detail}", shown(value)),
        )
    }

    /// A broken rule; objects and lists are not shown.
    pub(crate) fn broken_rule(field: &str, value: &Value, detail: &str) -> Self {
        if value.is_object() || value.is_array() {
            return Cause::new("FieldValueInvalid", field, format!("Invalid value: {detail}"));
        }
        Cause::invalid(field, value, detail)
    }

    /// Whether rules are not evaluated because of this.
    pub(crate) fn blocks_rules(&self) -> bool {
        !matches!(self.reason.as_str(), "FieldValueInvalid" | "FieldValueDuplicate")
    }

    pub(crate) fn wrong_type(field: &str, shown: &str, detail: &str) -> Self {
        Cause::new(
            "FieldValueTypeInvalid",
            field,
            format!("Invalid value: {shown}: {detail}"),
        )
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Cause::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Cause::new(
            "FieldValueDuplicate",
            field,
            format!("Duplicate value: {}", shown(value)),
        )
    }

    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let list: Vec<String> = supported.iter().map(shown).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown(value),
            list.join(", ")
        );
        Cause::new("FieldValueNotSupported", field, message)
    }

    pub(crate) fn too_long(field: &str, limit: u64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Cause::new(
            "FieldValueTooLong",
            field,
            format!("Too long: may not be more than {limit} {unit}"),
        )
    }

    pub(crate) fn too_many(field: &str, count: usize, limit: u64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Cause::new(
            "FieldValueTooMany",
            field,
            format!("Too many: {count}: must have at most {limit} {unit}"),
        )
    }

    fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// A value as the API server prints it in messages.
fn shown(value: &Value) -> String {
    value.to_string()
}

/// A request that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    causes: Vec<Cause>,
    /// Sent as `Retry-After` and in the details.
    pub(crate) retry_after: Option<u32>,
    continue_token: Option<String>,
    empty_details: bool,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Failure {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            causes: Vec::new(),
            retry_after: None,
            continue_token: None,
            empty_details: false,
        }
    }

    pub(crate) fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.causes = causes;
        self
    }

    /// Names the object the failure is about.
    pub(crate) fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.details.insert(key.to_owned(), json!(value));
            }
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Failure::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", kind.qualified()),
        )
        .about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn no_such_path() -> Self {
        let failure = Failure::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        Failure {
            empty_details: true,
            ..failure
        }
    }

    /// 422 for a request that cannot be carried out, whatever the object.
    pub(crate) fn unreadable(message: &str) -> Self {
        Failure {
            empty_details: true,
            ..Failure::new(422, "Invalid", message)
        }
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, dying: bool) -> Self {
        let prefix = if dying { "object is being deleted: " } else { "" };
        Failure::new(
            409,
            "AlreadyExists",
            format!("{prefix}{} \"{name}\" already exists", kind.qualified()),
        )
        .about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Failure::new(409, "Conflict", message).about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn stale(kind: &Kind, name: &str) -> Self {
        Failure::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        Failure::new(
            403,
            "Forbidden",
            format!("{} \"{name}\" is forbidden: {why}", kind.qualified()),
        )
        .about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Failure::new(400, "BadRequest", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Failure::new(410, "Expired", message)
    }

    /// 422 for an object of `group`/`kind`.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let lines: Vec<String> = causes.iter().map(Cause::line).collect();
        let detail = if let [only] = lines.as_slice() {
            only.clone()
        } else {
            format!("[{}]", lines.join(", "))
        };
        Failure::new(
            422,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {detail}"),
        )
        .about(group, kind, name)
        .with_causes(causes)
    }

    /// The code as HTTP says it.
    pub(crate) fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `Status` object.
    pub(crate) fn body(&self) -> Value {
        let mut details = self.details.clone();
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self
                .causes
                .iter()
                .map(|cause| {
                    let mut out = json!({"reason": cause.reason, "message": cause.message});
                    if !cause.field.is_empty() {
                        out["field"] = json!(cause.field);
                    }
                    out
                })
                .collect();
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }

        if !details.is_empty() || self.empty_details {
            body["details"] = Value::Object(details);
        }
        body
    }
}
