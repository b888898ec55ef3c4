//! Every write of the controllers: fenced, bounded in time, and left out when nothing would change.
//!
//! Nothing else in the project sends a write to the API server, the lease and events aside.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
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
        source: kube::Error,
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
            Err(Error::Api {
                source: kube::Error::Api(status),
                ..
            }) if status.code == 404 => Ok(()),
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
        let answer = send_permitted(permit, &self.client, request).await;
        let What { kind, key, verb, .. } = what;
        debug!(%kind, %key, "{verb}");
        match answer {
            Some(Ok(object)) => Ok(object),
            Some(Err(source)) => Err(Error::Api {
                verb,
                kind: kind.clone(),
                key: key.clone(),
                source,
            }),
            None => Err(Error::Timeout {
                verb,
                kind: kind.clone(),
                key: key.clone(),
            }),
        }
    }
}

/// Spends a permit on one call; `None` if there was no answer in time.
pub(crate) async fn send_permitted<T: DeserializeOwned>(
    permit: WritePermit,
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Option<Result<T, kube::Error>> {
    drop(permit);
    timeout(CALL, client.request::<T>(request)).await.ok()
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
        let key = ObjectKey::of(object);
        let url = K::url_path(&(), key.namespace());
        Self {
            kind: K::kind(&()).into_owned(),
            key,
            verb,
            url,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::fake::{Reply, Server};
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus};
    use kube::core::ObjectMeta;

    fn wanted(data: &[(&str, &str)]) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("shop".into()),
                name: Some("a".into()),
                ..ObjectMeta::default()
            },
            data: Some(
                data.iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            ),
            ..ConfigMap::default()
        }
    }

    fn pod(phase: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                namespace: Some("shop".into()),
                name: Some("p".into()),
                uid: Some("u1".into()),
                resource_version: Some("7".into()),
                annotations: Some([("kept".to_owned(), "yes".to_owned())].into()),
                ..ObjectMeta::default()
            },
            status: Some(PodStatus {
                phase: Some(phase.into()),
                ..PodStatus::default()
            }),
            ..Pod::default()
        }
    }

    /// Answers an apply or patch with what was sent, as version 5 of object u1.
    fn echo() -> Server {
        Server::new(|call| {
            let mut object = call.body.clone();
            object["metadata"]["uid"] = json!("u1");
            object["metadata"]["resourceVersion"] = json!("5");
            object["metadata"]["labels"] = json!({"foreign": "x"});
            Reply::ok(object)
        })
    }

    fn applier(server: &Server) -> Applier {
        Applier::new(
            server.client(),
            "etcd-operator/test",
            Leadership::always(TestClock::shared()),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn ensuring_what_is_stored_already_makes_no_call() {
        let server = echo();
        let applier = applier(&server);
        let desired = wanted(&[("k", "v")]);
        let stored = applier.ensure(None, &desired).await.unwrap().changed().unwrap();
        assert_eq!(server.calls().len(), 1);
        assert_eq!(
            applier.ensure(Some(&stored), &desired).await.unwrap(),
            Written::Unchanged
        );
        assert_eq!(server.calls().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_apply_names_its_manager_and_what_it_was_decided_on() {
        let server = echo();
        let applier = applier(&server);
        let stored = applier
            .ensure(None, &wanted(&[("k", "v")]))
            .await
            .unwrap()
            .changed()
            .unwrap();
        applier
            .ensure(Some(&stored), &wanted(&[("k", "w")]))
            .await
            .unwrap();
        let [create, update] = server.calls().try_into().unwrap();
        assert_eq!(create.method, "PATCH");
        assert_eq!(
            create.uri,
            "/api/v1/namespaces/shop/configmaps/a?&force=true&fieldManager=etcd-operator%2Ftest"
        );
        assert_eq!(create.body["metadata"]["resourceVersion"], Value::Null);
        assert_eq!(update.body["metadata"]["resourceVersion"], json!("5"));
        assert_eq!(update.body["metadata"]["uid"], json!("u1"));
        assert_eq!(
            update.body["metadata"].get("labels"),
            None,
            "only what we want is applied"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_no_longer_wanted_leads_to_an_apply_without_it() {
        let server = echo();
        let applier = applier(&server);
        let stored = applier
            .ensure(None, &wanted(&[("k", "v"), ("old", "x")]))
            .await
            .unwrap()
            .changed()
            .unwrap();
        let written = applier
            .ensure(Some(&stored), &wanted(&[("k", "v")]))
            .await
            .unwrap();
        assert!(written.changed().is_some());
        assert_eq!(server.calls()[1].body["data"], json!({"k": "v"}));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_leader_sends_nothing() {
        let server = echo();
        let clock = TestClock::shared();
        let (leadership, tenure) = Leadership::standby(clock.clone());
        let applier = Applier::new(server.client(), "test", leadership);
        tenure.lead_until(clock.elapsed() + Duration::from_secs(7));
        applier.ensure(None, &wanted(&[])).await.unwrap();
        tokio::time::advance(Duration::from_secs(30)).await;
        let error = applier.ensure(None, &wanted(&[])).await.unwrap_err();
        assert_eq!((error.class(), error.reason()), (Class::Transient, "NotLeading"));
        assert!(applier.delete(&pod("Running")).await.is_err());
        assert!(
            applier
                .update_status(&pod("Running"), &pod("Failed"))
                .await
                .is_err()
        );
        assert!(
            applier
                .annotate(&pod("Running"), &[("a", Some("b"))])
                .await
                .is_err()
        );
        assert_eq!(server.calls().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_is_for_the_very_object_that_was_seen() {
        let replies = [
            Reply::ok(json!({"kind": "Status"})),
            Reply::no(404, "gone"),
            Reply::no(409, "uid differs"),
        ];
        let server = Server::scripted(replies);
        let applier = applier(&server);
        applier.delete(&pod("Running")).await.unwrap();
        applier.delete(&pod("Running")).await.unwrap();
        let error = applier.delete(&pod("Running")).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict);
        let call = &server.calls()[0];
        assert_eq!(call.method, "DELETE");
        assert_eq!(
            call.body["preconditions"],
            json!({"uid": "u1", "resourceVersion": "7"})
        );
        assert_eq!(
            applier.delete(&wanted(&[])).await.unwrap_err().class(),
            Class::Fatal,
            "never read"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_only_when_it_differs_and_only_over_what_was_seen() {
        let server = Server::scripted([Reply::ok(json!(pod("Failed"))), Reply::no(409, "changed")]);
        let applier = applier(&server);
        let seen = pod("Running");
        assert_eq!(
            applier.update_status(&seen, &pod("Running")).await.unwrap(),
            Written::Unchanged
        );
        assert!(server.calls().is_empty());
        applier
            .update_status(&seen, &pod("Failed"))
            .await
            .unwrap()
            .changed()
            .unwrap();
        let call = server.calls().remove(0);
        assert_eq!(call.method, "PUT");
        assert!(
            call.uri.starts_with("/api/v1/namespaces/shop/pods/p/status?"),
            "{}",
            call.uri
        );
        assert_eq!(call.body["metadata"]["resourceVersion"], json!("7"));
        let error = applier.update_status(&seen, &pod("Failed")).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict);
    }

    #[tokio::test(start_paused = true)]
    async fn annotations_are_set_and_removed_over_what_was_seen() {
        let server = Server::scripted([Reply::ok(json!(pod("Running")))]);
        let applier = applier(&server);
        let seen = pod("Running");
        let same = [("kept", Some("yes")), ("absent", None)];
        assert_eq!(applier.annotate(&seen, &same).await.unwrap(), Written::Unchanged);
        applier
            .annotate(&seen, &[("permit", Some("p")), ("kept", None)])
            .await
            .unwrap();
        let expected = json!({"metadata": {"annotations": {"permit": "p", "kept": null},
                                           "uid": "u1", "resourceVersion": "7"}});
        assert_eq!(server.calls()[0].body, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn finalizers_are_replaced_only_when_they_differ() {
        let server = echo();
        let applier = applier(&server);
        assert_eq!(
            applier.set_finalizers(&pod("Running"), &[]).await.unwrap(),
            Written::Unchanged
        );
        applier
            .set_finalizers(&pod("Running"), &["example.com/f"])
            .await
            .unwrap();
        assert_eq!(
            server.calls()[0].body["metadata"]["finalizers"],
            json!(["example.com/f"])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_answers_is_given_up_on() {
        let server = Server::scripted([]);
        let started = tokio::time::Instant::now();
        let error = applier(&server).ensure(None, &wanted(&[])).await.unwrap_err();
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Transient, "ApiServerTimeout")
        );
        assert_eq!(started.elapsed(), CALL);
        assert_eq!(error.to_string(), "apply ConfigMap shop/a: no answer within 10s");
    }
}
