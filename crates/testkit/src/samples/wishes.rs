//! The one question every controller is asked about its kind: is anything that a user can write in the spec dropped in
//! silence? Here is all of it but the kind itself and what the controller makes of an object.

use std::fmt::Debug;

use serde_json::{Value, json};

use super::{Heard, leaves, silent};

/// The name of a field that no controller reads.
const UNHEARD: &str = "unheard";

/// A kind, and what its controller makes of an object of it.
pub struct Wishes {
    /// The schema of the kind, as it is published.
    pub schema: Value,
    /// Objects between them showing every alternative, because one that is not chosen has no say.
    pub bases: Vec<Value>,
    /// What the controller makes of an object; nothing for one that cannot be decoded.
    pub hear: fn(&Value) -> Option<Heard>,
}

impl Heard {
    /// What a controller makes of an object: what it desires, or refusals, of which `unimplemented_fields` names the field where
    /// the feature is missing.
    pub fn of<T: Debug, R: Debug>(
        outcome: &Result<T, Vec<R>>,
        unimplemented_fields: impl Fn(&R) -> Option<String>,
    ) -> Self {
        let refused = outcome.as_ref().err().into_iter().flatten();
        Self {
            outcome: format!("{outcome:?}"),
            unimplemented_fields: refused.filter_map(unimplemented_fields).collect(),
        }
    }
}

impl Wishes {
    /// The leaves of the spec that are silent. What else an object has is none of the user's wishes: the status is
    /// written by the operator, and metadata is the API server's. Panics if there are fewer leaves than `least`, for
    /// then the schema was not understood.
    pub fn silent(&self, least: usize) -> Vec<String> {
        let mut wishes = leaves(&self.schema);
        wishes.retain(|leaf| leaf.is_within("spec"));
        assert!(wishes.len() > least, "only {} leaves were found", wishes.len());
        silent(&wishes, &self.bases, self.hear)
    }

    /// What is silent once the spec and the object `within` it have a field that nobody reads: those two, if the
    /// search finds what it is for.
    pub fn silent_with_unheard(mut self, least: usize, within: &str) -> Vec<String> {
        let spec = &mut self.schema["properties"]["spec"]["properties"];
        spec[UNHEARD] = json!({"type": "string"});
        spec[within]["properties"][UNHEARD] = json!({"type": "boolean"});
        self.silent(least)
    }

    /// The bases that are refused: a refusal could hide a field.
    pub fn refused_bases(&self) -> Vec<String> {
        let refused = |base: &&Value| (self.hear)(base).is_none_or(|heard| !heard.outcome.starts_with("Ok"));
        self.bases.iter().filter(refused).map(Value::to_string).collect()
    }
}
