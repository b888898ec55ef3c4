//! The object that a call is about, with its URL, for building requests and errors. Sends nothing.

use std::time::Duration;

use kube::core::Request;
use serde::Serialize;
use serde_json::Value;

use super::{Error, Writable};
use crate::drift::APPLIED;
use crate::key::ObjectKey;

/// The object that a call is about.
pub(super) struct Target {
    pub(super) kind: String,
    pub(super) key: ObjectKey,
    /// The operation, as error messages name it.
    pub(super) verb: &'static str,
    url: String,
}

impl Target {
    pub(super) fn for_object<K: Writable>(object: &K, verb: &'static str) -> Self {
        Self::for_key::<K>(&ObjectKey::of(object), verb)
    }

    pub(super) fn for_key<K: Writable>(key: &ObjectKey, verb: &'static str) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            key: key.clone(),
            verb,
            url: K::url_path(&(), key.namespace()),
        }
    }

    pub(super) fn api_error(&self, source: kube::Error) -> Error {
        Error::Api {
            verb: self.verb,
            kind: self.kind.clone(),
            key: self.key.clone(),
            source: Box::new(source),
        }
    }

    pub(super) fn timeout_error(&self, limit: Duration) -> Error {
        Error::Timeout {
            verb: self.verb,
            kind: self.kind.clone(),
            key: self.key.clone(),
            limit,
        }
    }

    pub(super) fn request(&self) -> Request {
        Request::new(self.url.as_str())
    }

    pub(super) fn build<E: std::fmt::Display>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
    ) -> Result<http::Request<Vec<u8>>, Error> {
        request.map_err(|error| self.unwritable_error(error.to_string()))
    }

    pub(super) fn json<K: Serialize>(&self, object: &K) -> Result<Value, Error> {
        serde_json::to_value(object).map_err(|error| self.unwritable_error(error.to_string()))
    }

    /// UID and resourceVersion of `observed`. Without both, a write could hit another object of the same name.
    pub(super) fn preconditions<K: Writable>(&self, observed: &K) -> Result<(String, String), Error> {
        let meta = observed.meta();
        match (&meta.uid, &meta.resource_version) {
            (Some(uid), Some(version)) => Ok((uid.clone(), version.clone())),
            _ => Err(self.unwritable_error("it was never read from the API server".to_owned())),
        }
    }

    /// Removes what an apply must not contain: the status, and the metadata that only the API server writes.
    pub(super) fn trim_for_apply(&self, wanted: &mut Value) -> Result<(), Error> {
        if self.key.name.is_empty() {
            return Err(self.unwritable_error("it has no name".to_owned()));
        }
        let Some(fields) = wanted.as_object_mut() else {
            return Err(self.unwritable_error("it is not an object".to_owned()));
        };
        fields.remove("status");
        if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for server_side in [
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "managedFields",
            ] {
                meta.remove(server_side);
            }
            if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(APPLIED);
            }
        }
        Ok(())
    }

    /// The error of a write that is not sent, because the caller's object cannot be written: it has no name, was never
    /// read, or cannot be serialized. This is a bug of the caller, never the API server's answer.
    pub(super) fn unwritable_error(&self, why: String) -> Error {
        Error::Unwritable {
            kind: self.kind.clone(),
            key: self.key.clone(),
            why,
        }
    }
}

/// Sets a field of an object's metadata, if there is a value.
pub(super) fn set_metadata(object: &mut Value, field: &str, to: Option<&str>) {
    if let Some(to) = to {
        object["metadata"][field] = Value::String(to.to_owned());
    }
}
