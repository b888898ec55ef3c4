//! Every write of the controllers: fenced, bounded in time, and left out when nothing would change.
//!
//! Nothing else in the project sends a write to the API server, the lease and events aside.

mod agreed;
mod change;
mod error;
mod merge_patch;
mod raw;
#[cfg(test)]
mod tests;
mod what;
mod wish;
mod written;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use kube::api::{
    DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::debug;

use crate::echo::Echoes;
use crate::fence::{Leadership, NotLeading, WritePermit};
use crate::key::ObjectKey;
use crate::store::Malformed;

use agreed::Agreed;
use change::{change, wanted};
pub use error::Error;
pub(crate) use raw::Raw;
use what::What;
pub use wish::Wish;
pub use written::{Introduced, Written};

/// Bound on every call.
const CALL: Duration = Duration::from_secs(10);

/// A kind that can be written.
pub trait Writable: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K> Writable for K where K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

/// What is to be sent so that an object is stored as it should be, made upon the one that was seen.
#[must_use]
pub struct Change<K> {
    what: What,
    wanted: Value,
    kind: PhantomData<fn() -> K>,
}

/// Writes in the name of one controller.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: &'static str,
    leadership: Leadership,
    echoes: Echoes,
    agreed: Agreed,
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
            echoes: Echoes::default(),
            agreed: Agreed::default(),
        }
    }

    /// The same, with its status writes noted here, so that they wake nobody when the watch brings them back. What is
    /// to follow such a write must be asked for by the reconcile that sent it.
    #[must_use]
    pub fn noting(mut self, echoes: Echoes) -> Self {
        self.echoes = echoes;
        self
    }

    /// Sees to it that `desired` is stored, by a server-side apply if `current` (from a store) differs from it.
    ///
    /// Fields of ours that others changed are put back, fields of others are left alone, and fields we no longer ask
    /// for are removed. With a `current`, the apply is refused as a conflict if the object has changed since.
    pub async fn ensure<K: Writable>(&self, current: Option<&K>, desired: &K) -> Result<Written<K>, Error> {
        match self.change(current, desired)? {
            Some(change) => self.apply(change).await.map(Written::Changed),
            None => Ok(Written::Unchanged),
        }
    }

    /// What [`Self::ensure`] would send, for whoever must make sure of something before it.
    pub fn change<K: Writable>(&self, current: Option<&K>, desired: &K) -> Result<Option<Change<K>>, Error> {
        let what = What::of(desired, "apply");
        let wanted = change(&self.agreed, &what, current, desired)?;
        let kind = PhantomData;
        Ok(wanted.map(|wanted| Change { what, wanted, kind }))
    }

    /// Sends it.
    pub async fn apply<K: Writable>(&self, change: Change<K>) -> Result<K, Error> {
        let Change { what, wanted, .. } = change;
        let params = PatchParams::apply(self.manager).force();
        let request = what.build(
            what.request()
                .patch(&what.key.name, &params, &Patch::Apply(&wanted)),
        )?;
        self.send(&what, request).await
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
        self.deleted(&what, request).await
    }

    /// Reads an object as it is stored now, past every copy; `None` if it is gone.
    pub async fn read<K: Writable>(&self, key: &ObjectKey) -> Result<Option<K>, Error> {
        let what = What::named::<K>(key, "read");
        let request = what.build(what.request().get(&key.name, &GetParams::default()))?;
        self.answer(&what, request).await
    }

    /// Reads all objects of a namespace as they are stored now, past every copy, but for those that cannot be decoded.
    pub async fn list<K: Writable>(&self, namespace: &str) -> Result<Vec<K>, Error> {
        let what = What::named::<K>(&ObjectKey::new(namespace, ""), "list");
        let request = what.build(what.request().list(&ListParams::default()))?;
        let found: Option<ObjectList<Value>> = self.answer(&what, request).await?;
        let items = found.into_iter().flatten();
        Ok(items
            .filter_map(|item| serde_json::from_value(item).ok())
            .collect())
    }

    /// Creates an object that is in no copy. One of its name that is stored all the same is left as it is and handed
    /// back, for it may be somebody else's.
    pub async fn introduce<K: Writable>(&self, desired: &K) -> Result<Introduced<K>, Error> {
        let what = What::of(desired, "create");
        if let Some(there) = self.read(&what.key).await? {
            return Ok(Introduced::There(there));
        }
        let wanted = wanted(&what, desired)?;
        // Not forced: what somebody else creates in this very moment is a conflict and not overwritten.
        let params = PatchParams::apply(self.manager);
        let request = what.build(
            what.request()
                .patch(&what.key.name, &params, &Patch::Apply(&wanted)),
        )?;
        self.send(&what, request).await.map(Introduced::Created)
    }

    /// Creates an object that this controller does not keep afterwards; none where there is one of its name already,
    /// which is left as it is.
    pub async fn create<K: Writable>(&self, desired: &K) -> Result<Option<K>, Error> {
        let what = What::of(desired, "create");
        let body = serde_json::to_vec(desired).map_err(|error| what.unwritable(error.to_string()))?;
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        };
        let request = what.build(what.request().create(&params, body))?;
        match self.send(&what, request).await {
            Ok(created) => Ok(Some(created)),
            Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 409) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the object with this UID, in whatever version it is by now; another one of the same name is a conflict.
    /// One that is gone already is no error. `grace` is how many seconds it has to end, if not its own spec decides; with 0 its
    /// node is not waited for.
    pub async fn delete_uid<K: Writable>(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let what = What::named::<K>(key, "delete");
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let request = what.build(what.request().delete(&key.name, &params))?;
        self.deleted(&what, request).await
    }

    /// Stores a status unless it is the one that `seen` has already; refused as a conflict if the object has changed
    /// since `seen`. Fields of the status that neither has, of a newer version of the operator, stay.
    pub async fn update_status<K: Writable, S: Serialize>(
        &self,
        seen: &K,
        after: &S,
    ) -> Result<Written<K>, Error> {
        let what = What::of(seen, "update status of");
        let (uid, version) = what.fences(seen)?;
        let after = what.json(after)?;
        let mut expected = what.json(seen)?;
        let before = expected["status"].take();
        let Some(change) = merge_patch::between(&before, &after) else {
            return Ok(Written::Unchanged);
        };
        let change = json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": change});
        expected["status"] = after;
        self.echoes.expect(&what.key, expected);
        let written = self.merge_status(&what, &change).await;
        if written.is_err() {
            self.echoes.forget(&what.key);
        }
        written.map(Written::Changed)
    }

    /// Reads an object as it is stored, for one that cannot be decoded; `None` if it is gone.
    pub(crate) async fn read_raw<K: Writable>(&self, key: &ObjectKey) -> Result<Option<Raw>, Error> {
        let what = What::named::<K>(key, "read");
        let request = what.build(what.request().get(&key.name, &GetParams::default()))?;
        self.answer(&what, request).await
    }

    /// Merges into the status of an object that cannot be decoded; refused as a conflict if it has changed since it
    /// was read.
    pub(crate) async fn merge_raw_status<K: Writable>(
        &self,
        bad: &Malformed,
        seen: &Raw,
        status: Value,
    ) -> Result<(), Error> {
        let what = What::named::<K>(&bad.key, "update status of");
        let change = json!({"metadata": seen.metadata, "status": status});
        self.echoes.expect_malformed(bad);
        let written = self.merge_status::<IgnoredAny>(&what, &change).await;
        if written.is_err() {
            self.echoes.forget(&bad.key);
        }
        written.map(drop)
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
        let patch = Patch::Merge(&change);
        let request = what.build(what.request().patch(&what.key.name, &self.merging(), &patch))?;
        self.send(&what, request).await
    }

    async fn merge_status<T: DeserializeOwned>(&self, what: &What, change: &Value) -> Result<T, Error> {
        let (request, patch) = (what.request(), Patch::Merge(change));
        let request =
            what.build(request.patch_subresource("status", &what.key.name, &self.merging(), &patch))?;
        self.send(what, request).await
    }

    /// What a read finds.
    async fn answer<T: DeserializeOwned>(
        &self,
        what: &What,
        request: http::Request<Vec<u8>>,
    ) -> Result<Option<T>, Error> {
        match timeout(CALL, self.client.request::<T>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(source)) => Err(what.refused(source)),
            Err(_) => Err(what.unanswered()),
        }
    }

    /// Deletes, and takes what is gone already for deleted.
    async fn deleted(&self, what: &What, request: http::Request<Vec<u8>>) -> Result<(), Error> {
        match self.send::<IgnoredAny>(what, request).await {
            Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    fn merging(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
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

fn set(object: &mut Value, field: &str, to: Option<&str>) {
    if let Some(to) = to {
        object["metadata"][field] = Value::String(to.to_owned());
    }
}
