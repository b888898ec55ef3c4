//! Judges objects against a written schema and its rules as the server does, without a server.

use std::sync::Arc;

use serde_json::Value;

use super::schema::{self, Schema};
use super::validate;

/// A written schema, ready to judge new objects.
#[derive(Debug)]
pub(crate) struct Judge(Arc<Schema>);

impl Judge {
    pub(crate) fn new(written: &Value) -> Self {
        Judge(schema::custom(written))
    }

    /// What stands against creating this object; nothing if it is valid.
    pub(crate) fn refusals(&self, object: &Value) -> Vec<String> {
        let mut object = object.clone();
        self.0.fill_defaults(&mut object, &[]);
        let causes = validate::check_against(&self.0, &object);
        causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect()
    }
}
