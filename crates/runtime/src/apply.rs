//! Every write of the controllers: fenced, bounded in time, and left out when nothing would change.
//!
//! Nothing else in the project sends a write to the API server, the lease and events aside.

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;

use crate::drift::{self, APPLIED};
use crate::error::{Class, Classified};
use crate::fence::{Leadership, NotLeading, WritePermit};
use crate::key::ObjectKey;

/// Bound on every call.
const CALL: Duration = Duration::from_secs(10);

/// A kind that can be written.
pub trait Writable: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K> Writable for K where K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process does not lead.
    #[error("not written: {0}")]
    NotLeading(#[from] NotLeading),
    /// No answer in time: it may have happened.
    #[error("{verb} {kind} {key}: no answer within {CALL:?}")]
    Timeout {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        key: ObjectKey,
    },
    /// The API server refused or could not be reached.
    #[error("{verb} {kind} {key}: {source}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        key: ObjectKey,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// The object cannot be written as it is; a bug of the caller.
    #[error("{kind} {key} cannot be written: {why}")]
    Unwritable {
        /// Which kind.
        kind: String,
        /// Which object.
        key: ObjectKey,
        /// What is wrong.
        why: String,
    },
}

impl Classified for Error {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(error) => error.class(),
            Self::Timeout { .. } => Class::Transient,
            Self::Api { source, .. } => source.class(),
            Self::Unwritable { .. } => Class::Fatal,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(error) => error.reason(),
            Self::Timeout { .. } => "ApiServerTimeout",
            Self::Api { source, .. } => source.reason(),
            Self::Unwritable { .. } => self.class().reason(),
        }
    }
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<K> {
    /// Nothing was sent: the stored object is as wanted.
    Unchanged,
    /// Sent; this is the object now.
    Changed(K),
}

impl<K> Written<K> {
    /// The new state of the object, if it changed.
    pub fn changed(self) -> Option<K> {
        match self {
            Self::Unchanged => None,
            Self::Changed(object) => Some(object),
        }
    }
}

/// Writes in the name of one controller.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: &'static str,
    leadership: Leadership,
}

impl Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Applier({})", self.manager)
    }
}

impl Applier {
    /// A writer with its own field manager.
    pub fn new(client: Client, manager: &'static str, leadership: Leadership) -> Self {
        Self {
            client,
            manager,
            leadership,
        }
    }

    /// Sees to it that `desired` is stored, by a server-side apply if `current` (from a store) differs from it.
    ///
    /// Fields of ours that others changed are put back, fields of others are left alone, and fields we no longer ask
    /// for are removed. With a `current`, the apply is refused as a conflict if the object has changed since.
    pub async fn ensure<K: Writable>(&self, current: Option<&K>, desired: &K) -> Result<Written<K>, Error> {
        let what = What::of(desired, "apply");
        let mut wanted = what.json(desired)?;
        what.trim_for_apply(&mut wanted)?;
        let hash = drift::hash(&wanted);
        wanted["metadata"]["annotations"][APPLIED] = Value::String(hash);
        if let Some(current) = current {
            if !drift::needs_apply(&what.json(current)?, &wanted) {
                return Ok(Written::Unchanged);
            }
            let meta = current.meta();
            set(&mut wanted, "uid", meta.uid.as_deref());
            set(&mut wanted, "resourceVersion", meta.resource_version.as_deref());
        }
        let params = PatchParams::apply(self.manager).force();
        let request = what.build(
            what.request()
                .patch(&what.key.name, &params, &Patch::Apply(&wanted)),
        )?;
        self.send(&what, request).await.map(Written::Changed)
    }

    /// Deletes exactly this object as it was seen: another one of the same name, or a newer version of this one, is
    /// not touched but a conflict. One that is gone already is no error.
    pub async fn delete<K: Writable>(&self, seen: &K) -> Result<(), Error> {
        let what = What::of(seen, "delete");
        let (uid, version) = what.fences(seen)?;
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: Some(version),
            }),
            ..DeleteParams::background()
        };
        let request = what.build(what.request().delete(&what.key.name, &params))?;
        match self.send::<Value>(&what, request).await {
            Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Stores the status of `new` unless `seen` has the same already; refused as a conflict if the object has changed
    /// since `seen`.
    pub async fn update_status<K: Writable>(&self, seen: &K, new: &K) -> Result<Written<K>, Error> {
        let what = What::of(seen, "update status of");
        let (uid, version) = what.fences(seen)?;
        let mut body = what.json(new)?;
        if what.json(seen)?["status"] == body["status"] {
            return Ok(Written::Unchanged);
        }
        set(&mut body, "uid", Some(&uid));
        set(&mut body, "resourceVersion", Some(&version));
        let bytes = what.bytes(&body)?;
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        };
        let request =
            what.build(
                what.request()
                    .replace_subresource("status", &what.key.name, &params, bytes),
            )?;
        self.send(&what, request).await.map(Written::Changed)
    }

    /// Reads an object as it is stored, for one that cannot be decoded; `None` if it is gone.
    pub(crate) async fn read_raw<K: Writable>(&self, key: &ObjectKey) -> Result<Option<Value>, Error> {
        let what = What::named::<K>(key, "read");
        let request = what.build(what.request().get(&key.name, &GetParams::default()))?;
        match timeout(CALL, self.client.request::<Value>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(source)) => Err(what.refused(source)),
            Err(_) => Err(what.unanswered()),
        }
    }

    /// Merges into the status of an object that cannot be decoded; refused as a conflict if it has changed since it
    /// was read.
    pub(crate) async fn merge_raw_status<K: Writable>(
        &self,
        key: &ObjectKey,
        seen: &Value,
        status: Value,
    ) -> Result<(), Error> {
        let what = What::named::<K>(key, "update status of");
        let meta = &seen["metadata"];
        let change = json!({
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": status,
        });
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let request = what.build(what.request().patch_subresource(
            "status",
            &key.name,
            &params,
            &Patch::Merge(&change),
        ))?;
        self.send::<Value>(&what, request).await.map(drop)
    }

    /// Sets or (with `None`) removes annotations, unless they are so already; refused as a conflict if the object has
    /// changed since `seen`.
    pub async fn annotate<K: Writable>(
        &self,
        seen: &K,
        annotations: &[(&str, Option<&str>)],
    ) -> Result<Written<K>, Error> {
        let stored = seen.meta().annotations.as_ref();
        let is_so = |(name, value): &(&str, Option<&str>)| {
            stored.and_then(|stored| stored.get(*name)).map(String::as_str) == *value
        };
        if annotations.iter().all(is_so) {
            return Ok(Written::Unchanged);
        }
        let wanted: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        self.merge(seen, "annotate", json!({"metadata": {"annotations": wanted}}))
            .await
            .map(Written::Changed)
    }

    /// Replaces the finalizers, unless they are so already; refused as a conflict if the object has changed since
    /// `seen`.
    pub async fn set_finalizers<K: Writable>(
        &self,
        seen: &K,
        finalizers: &[&str],
    ) -> Result<Written<K>, Error> {
        let stored = seen.meta().finalizers.as_deref().unwrap_or_default();
        if stored.iter().map(String::as_str).eq(finalizers.iter().copied()) {
            return Ok(Written::Unchanged);
        }
        let change = json!({"metadata": {"finalizers": finalizers}});
        self.merge(seen, "set finalizers of", change)
            .await
            .map(Written::Changed)
    }

    /// A merge patch that names the version it replaces. Unlike a replacement it cannot drop fields that are newer
    /// than the types this was built with.
    async fn merge<K: Writable>(&self, seen: &K, verb: &'static str, mut change: Value) -> Result<K, Error> {
        let what = What::of(seen, verb);
        let (uid, version) = what.fences(seen)?;
        set(&mut change, "uid", Some(&uid));
        set(&mut change, "resourceVersion", Some(&version));
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let request = what.build(
            what.request()
                .patch(&what.key.name, &params, &Patch::Merge(&change)),
        )?;
        self.send(&what, request).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        what: &What,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, Error> {
        // The last thing before the call: nothing that takes time may come between.
        let permit = self.leadership.permit()?;
        let answer = send_permitted(permit, &self.client, request).await?;
        let What { kind, key, verb, .. } = what;
        debug!(%kind, %key, "{verb}");
        match answer {
            Some(Ok(object)) => Ok(object),
            Some(Err(source)) => Err(what.refused(source)),
            None => Err(what.unanswered()),
        }
    }
}

/// Spends a permit on one call; `None` if there was no answer in time. A write that waits for a connection beyond the
/// end of leadership is not sent any more.
pub(crate) async fn send_permitted<T: DeserializeOwned>(
    permit: WritePermit,
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<Option<Result<T, kube::Error>>, NotLeading> {
    let call = timeout(CALL, client.request::<T>(request));
    Ok(permit.spend(call).await?.ok())
}

/// What is written, for requests and for errors.
struct What {
    kind: String,
    key: ObjectKey,
    verb: &'static str,
    url: String,
}

impl What {
    fn of<K: Writable>(object: &K, verb: &'static str) -> Self {
        Self::named::<K>(&ObjectKey::of(object), verb)
    }

    fn named<K: Writable>(key: &ObjectKey, verb: &'static str) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            key: key.clone(),
            verb,
            url: K::url_path(&(), key.namespace()),
        }
    }

    fn refused(&self, source: kube::Error) -> Error {
        Error::Api {
            verb: self.verb,
            kind: self.kind.clone(),
            key: self.key.clone(),
            source: Box::new(source),
        }
    }

    fn unanswered(&self) -> Error {
        Error::Timeout {
            verb: self.verb,
            kind: self.kind.clone(),
            key: self.key.clone(),
        }
    }

    fn request(&self) -> Request {
        Request::new(self.url.as_str())
    }

    fn build<E: std::fmt::Display>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
    ) -> Result<http::Request<Vec<u8>>, Error> {
        request.map_err(|error| self.unwritable(error.to_string()))
    }

    fn json<K: Serialize>(&self, object: &K) -> Result<Value, Error> {
        serde_json::to_value(object).map_err(|error| self.unwritable(error.to_string()))
    }

    fn bytes(&self, body: &Value) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(body).map_err(|error| self.unwritable(error.to_string()))
    }

    /// UID and resourceVersion: without both, a write could hit another object than the one seen.
    fn fences<K: Writable>(&self, seen: &K) -> Result<(String, String), Error> {
        let meta = seen.meta();
        match (&meta.uid, &meta.resource_version) {
            (Some(uid), Some(version)) => Ok((uid.clone(), version.clone())),
            _ => Err(self.unwritable("it was never read from the API server".to_owned())),
        }
    }

    /// Leaves out what an apply must not say: the status, and what only the server writes.
    fn trim_for_apply(&self, wanted: &mut Value) -> Result<(), Error> {
        if self.key.name.is_empty() {
            return Err(self.unwritable("it has no name".to_owned()));
        }
        let Some(fields) = wanted.as_object_mut() else {
            return Err(self.unwritable("it is not an object".to_owned()));
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

    fn unwritable(&self, why: String) -> Error {
        Error::Unwritable {
            kind: self.kind.clone(),
            key: self.key.clone(),
            why,
        }
    }
}

fn set(object: &mut Value, field: &str, to: Option<&str>) {
    if let Some(to) = to {
        object["metadata"][field] = Value::String(to.to_owned());
    }
}
