//! Failures in the form of the API server's `Status` objects. Nothing here knows why a request failed.

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

    /// A broken rule about an object or a list, which are not shown.
    pub(crate) fn broken_rule(field: &str, detail: &str) -> Self {
        Cause::new("FieldValueInvalid", field, format!("Invalid value: {detail}"))
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

/// A request that failed. Boxed: failures are rare and answers are not.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Parts>);

#[derive(Debug, Clone, Default)]
struct Parts {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// Whether details are sent even when there are none.
    empty_details: bool,
    causes: Vec<Cause>,
    retry_after: Option<u32>,
    continue_token: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Failure(Box::new(Parts {
            code,
            reason,
            message: message.into(),
            ..Parts::default()
        }))
    }

    /// The HTTP status.
    pub(crate) fn code(&self) -> u16 {
        self.0.code
    }

    /// After how many seconds the client is to try again.
    pub(crate) fn retries_after(&self) -> Option<u32> {
        self.0.retry_after
    }

    pub(crate) fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.0.causes = causes;
        self
    }

    fn with_details(mut self) -> Self {
        self.0.empty_details = true;
        self
    }

    /// Names the object the failure is about.
    pub(crate) fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.0.details.insert(key.to_owned(), json!(value));
            }
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
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
        failure.with_details()
    }

    /// 422 for a request that cannot be carried out, whatever the object.
    pub(crate) fn unreadable(message: &str) -> Self {
        Failure::new(422, "Invalid", message).with_details()
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

    /// The `Status` object.
    pub(crate) fn body(&self) -> Value {
        let mut details = self.0.details.clone();
        if !self.0.causes.is_empty() {
            let causes: Vec<Value> = self
                .0
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
        if let Some(seconds) = self.0.retry_after {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut metadata = json!({});
        if let Some(token) = &self.0.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.0.message,
            "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            body["reason"] = json!(self.0.reason);
        }

        if !details.is_empty() || self.0.empty_details {
            body["details"] = Value::Object(details);
        }
        body
    }
}
