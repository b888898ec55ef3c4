//! Every write of the controllers: fenced by leadership, bounded in time, and skipped when nothing would change.
//!
//! No other module writes to the API server, except for the lease and Events.

mod comparison;
mod desired_object;
mod merge_patch;
mod outcome;
mod raw_object;
mod target;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DeleteParams, EvictParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams,
    Preconditions,
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

use comparison::{ComparisonCache, apply_body, required_apply};
pub use desired_object::Wish;
pub use outcome::{Error, Introduced, Written};
pub(crate) use raw_object::RawObject;
use target::{Target, set_metadata};

/// Timeout of every call but dry runs.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a dry run. The API server waits for a webhook for up to 30 seconds, and then goes by its failurePolicy: only it
/// knows whether a webhook that does not answer matters.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(35);

/// A kind that can be written.
pub trait Writable: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K> Writable for K where K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

/// A pending apply that makes the stored object match the desired one.
#[must_use]
pub struct PendingApply<K> {
    target: Target,
    body: Value,
    kind: PhantomData<fn() -> K>,
}

/// Writes objects under the field manager of one controller.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: &'static str,
    leadership: Leadership,
    echoes: Echoes,
    comparisons: ComparisonCache,
}

impl Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Applier({})", self.manager)
    }
}

impl Applier {
    /// Creates a writer with the given field manager.
    pub fn new(client: Client, manager: &'static str, leadership: Leadership) -> Self {
        Self {
            client,
            manager,
            leadership,
            echoes: Echoes::default(),
            comparisons: ComparisonCache::default(),
        }
    }

    /// A permit for one write outside the API server, such as a change of an etcd membership.
    pub fn permit(&self) -> Result<WritePermit, NotLeading> {
        self.leadership.permit()
    }

    /// Records status writes in `echoes`, so that they do not wake the controller when the watch returns them.
    ///
    /// A reconcile that must run again after such a write has to request that itself.
    #[must_use]
    pub fn noting(mut self, echoes: Echoes) -> Self {
        self.echoes = echoes;
        self
    }

    /// Applies `desired` by server-side apply if `current` (from a store) differs from it.
    ///
    /// Owned fields that others changed are reset, foreign fields are left alone, and fields no longer in `desired` are
    /// removed. With a `current`, the API server refuses the apply as a conflict if the object has changed since.
    pub async fn ensure<K: Writable>(&self, current: Option<&K>, desired: &K) -> Result<Written<K>, Error> {
        match self.change(current, desired)? {
            Some(change) => self.apply(change).await.map(Written::Changed),
            None => Ok(Written::Unchanged),
        }
    }

    /// The apply that [`Self::ensure`] would send, for callers that must check something before sending it. `None` if
    /// nothing would change.
    pub fn change<K: Writable>(
        &self,
        current: Option<&K>,
        desired: &K,
    ) -> Result<Option<PendingApply<K>>, Error> {
        let target = Target::for_object(desired, "apply");
        let body = required_apply(&self.comparisons, &target, current, desired)?;
        let kind = PhantomData;
        Ok(body.map(|body| PendingApply { target, body, kind }))
    }

    /// Sends a pending apply.
    pub async fn apply<K: Writable>(&self, change: PendingApply<K>) -> Result<K, Error> {
        let PendingApply { target, body, .. } = change;
        let params = PatchParams::apply(self.manager).force();
        let request = target.build(target.request().patch(
            &target.key.name,
            &params,
            &Patch::Apply(&body),
        ))?;
        self.send(&target, request).await
    }

    /// Deletes exactly the version `observed`. Another object of the same name, or a newer version, is a conflict and is not
    /// deleted. An object that no longer exists is no error.
    pub async fn delete<K: Writable>(&self, observed: &K) -> Result<(), Error> {
        let target = Target::for_object(observed, "delete");
        let (uid, version) = target.preconditions(observed)?;
        self.delete_version::<K>(&target.key, &uid, &version).await
    }

    /// Reads an object from the API server, bypassing the informers; `None` if it does not exist.
    pub async fn read<K: Writable>(&self, key: &ObjectKey) -> Result<Option<K>, Error> {
        let target = Target::for_key::<K>(key, "read");
        let request = target.build(target.request().get(&key.name, &GetParams::default()))?;
        self.send_read(&target, request).await
    }

    /// Lists the objects of a namespace from the API server, bypassing the informers. Objects that cannot be decoded are
    /// left out.
    pub async fn list<K: Writable>(&self, namespace: &str) -> Result<Vec<K>, Error> {
        self.list_with(namespace, &ListParams::default()).await
    }

    /// The same for the objects that a label selector matches, from the API server's cache: they may be some seconds old.
    pub async fn list_labelled<K: Writable>(&self, namespace: &str, selector: &str) -> Result<Vec<K>, Error> {
        self.list_with(namespace, &ListParams::default().labels(selector).match_any())
            .await
    }

    async fn list_with<K: Writable>(&self, namespace: &str, params: &ListParams) -> Result<Vec<K>, Error> {
        let target = Target::for_key::<K>(&ObjectKey::new(namespace, ""), "list");
        let request = target.build(target.request().list(params))?;
        let found: Option<ObjectList<Value>> = self.send_read(&target, request).await?;
        let items = found.into_iter().flatten();
        Ok(items
            .filter_map(|item| serde_json::from_value(item).ok())
            .collect())
    }

    /// Creates an object that is in no informer's store. An object of this name that exists nevertheless is returned
    /// untouched, because it may belong to someone else.
    pub async fn introduce<K: Writable>(&self, desired: &K) -> Result<Introduced<K>, Error> {
        let target = Target::for_object(desired, "create");
        if let Some(existing) = self.read(&target.key).await? {
            return Ok(Introduced::There(existing));
        }
        let body = apply_body(&target, desired)?;
        // Not forced: an object that another client creates at the same moment is a conflict, not overwritten.
        let params = PatchParams::apply(self.manager);
        let request = target.build(target.request().patch(
            &target.key.name,
            &params,
            &Patch::Apply(&body),
        ))?;
        self.send(&target, request).await.map(Introduced::Created)
    }

    /// Creates an object whose fields this controller does not own afterwards. Returns `None`, and changes nothing, if an
    /// object of this name exists.
    pub async fn create<K: Writable>(&self, desired: &K) -> Result<Option<K>, Error> {
        let target = Target::for_object(desired, "create");
        let body = serde_json::to_vec(desired).map_err(|error| target.unwritable_error(error.to_string()))?;
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        };
        let request = target.build(target.request().create(&params, body))?;
        match self.send(&target, request).await {
            Ok(created) => Ok(Some(created)),
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the API server in a dry run whether it would create this object; nothing is stored. It judges the content of an
    /// object before it looks whether one of this name exists, so one that exists does not matter.
    pub async fn dry_run_create<K: Writable>(&self, desired: &K) -> Result<(), Error> {
        let target = Target::for_object(desired, "dry-run the creation of");
        let body = serde_json::to_vec(desired).map_err(|error| target.unwritable_error(error.to_string()))?;
        let params = PostParams {
            dry_run: true,
            field_manager: Some(self.manager.to_owned()),
        };
        let request = target.build(target.request().create(&params, body))?;
        match self
            .send_within::<IgnoredAny>(&target, request, DRY_RUN_TIMEOUT)
            .await
        {
            Err(error) if error.is_already_exists() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Deletes the object with this UID, whatever its version; another object of the same name is a conflict. An object
    /// that no longer exists is no error.
    ///
    /// `grace` overrides the grace period of the object, in seconds; 0 does not wait for the node.
    pub async fn delete_uid<K: Writable>(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let target = Target::for_key::<K>(key, "delete");
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(preconditions(uid, None)),
            ..DeleteParams::background()
        };
        let request = target.build(target.request().delete(&key.name, &params))?;
        self.send_delete(&target, request).await
    }

    /// Evicts the pod with this UID. A budget that does not allow it is [`Error::is_eviction_refused`]; another pod of the same
    /// name is a conflict. A pod that no longer exists is no error.
    pub async fn evict(&self, key: &ObjectKey, uid: &str) -> Result<(), Error> {
        let target = Target::for_key::<Pod>(key, "evict");
        let params = EvictParams {
            delete_options: Some(DeleteParams {
                preconditions: Some(preconditions(uid, None)),
                ..DeleteParams::default()
            }),
            ..EvictParams::default()
        };
        let request = target.build(target.request().evict(&key.name, &params))?;
        self.send_delete(&target, request).await
    }

    /// Deletes exactly this version of the object with this UID; a newer one is a conflict. An object that no longer exists is
    /// no error.
    pub async fn delete_version<K: Writable>(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), Error> {
        let target = Target::for_key::<K>(key, "delete");
        let params = DeleteParams {
            preconditions: Some(preconditions(uid, Some(resource_version))),
            ..DeleteParams::background()
        };
        let request = target.build(target.request().delete(&key.name, &params))?;
        self.send_delete(&target, request).await
    }

    /// Writes a status if it differs. A change of the object since `observed` is a conflict. Status fields that only a newer
    /// version of the operator knows stay.
    pub async fn update_status<K: Writable, S: Serialize>(
        &self,
        observed: &K,
        after: &S,
    ) -> Result<Written<K>, Error> {
        let target = Target::for_object(observed, "update status of");
        let (uid, version) = target.preconditions(observed)?;
        let after = target.json(after)?;
        let mut expected = target.json(observed)?;
        let before = expected["status"].take();
        let Some(change) = merge_patch::diff(&before, &after) else {
            return Ok(Written::Unchanged);
        };
        let change = json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": change});
        expected["status"] = after;
        self.echoes.expect(&target.key, expected);
        let written = self.merge_status(&target, &change).await;
        if written.is_err() {
            self.echoes.forget(&target.key);
        }
        written.map(Written::Changed)
    }

    /// Reads an object that cannot be decoded from the API server; `None` if it does not exist.
    pub(crate) async fn read_raw<K: Writable>(&self, key: &ObjectKey) -> Result<Option<RawObject>, Error> {
        let target = Target::for_key::<K>(key, "read");
        let request = target.build(target.request().get(&key.name, &GetParams::default()))?;
        self.send_read(&target, request).await
    }

    /// Merges into the status of an object that cannot be decoded. A change of the object since `observed` is a conflict.
    pub(crate) async fn merge_raw_status<K: Writable>(
        &self,
        bad: &Malformed,
        observed: &RawObject,
        status: Value,
    ) -> Result<(), Error> {
        let target = Target::for_key::<K>(&bad.key, "update status of");
        let change = json!({"metadata": observed.metadata, "status": status});
        self.echoes.expect_malformed(bad);
        let written = self.merge_status::<IgnoredAny>(&target, &change).await;
        if written.is_err() {
            self.echoes.forget(&bad.key);
        }
        written.map(drop)
    }

    /// Sets annotations, or removes those with the value `None`. A change of the object since `observed` is a conflict.
    pub async fn annotate<K: Writable>(
        &self,
        observed: &K,
        annotations: &[(&str, Option<&str>)],
    ) -> Result<Written<K>, Error> {
        let stored = observed.meta().annotations.as_ref();
        let is_set = |(name, value): &(&str, Option<&str>)| {
            stored.and_then(|stored| stored.get(*name)).map(String::as_str) == *value
        };
        if annotations.iter().all(is_set) {
            return Ok(Written::Unchanged);
        }
        let wanted: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        self.merge(observed, "annotate", json!({"metadata": {"annotations": wanted}}))
            .await
            .map(Written::Changed)
    }

    /// Replaces the finalizers if they differ. A change of the object since `observed` is a conflict.
    pub async fn set_finalizers<K: Writable>(
        &self,
        observed: &K,
        finalizers: &[&str],
    ) -> Result<Written<K>, Error> {
        let stored = observed.meta().finalizers.as_deref().unwrap_or_default();
        if stored.iter().map(String::as_str).eq(finalizers.iter().copied()) {
            return Ok(Written::Unchanged);
        }
        let change = json!({"metadata": {"finalizers": finalizers}});
        self.merge(observed, "set finalizers of", change)
            .await
            .map(Written::Changed)
    }

    /// Sends a merge patch with the UID and resourceVersion of `observed`. Unlike a PUT it cannot drop fields that are newer
    /// than this operator's types.
    async fn merge<K: Writable>(
        &self,
        observed: &K,
        verb: &'static str,
        mut change: Value,
    ) -> Result<K, Error> {
        let target = Target::for_object(observed, verb);
        let (uid, version) = target.preconditions(observed)?;
        set_metadata(&mut change, "uid", Some(&uid));
        set_metadata(&mut change, "resourceVersion", Some(&version));
        let patch = Patch::Merge(&change);
        let request = target.build(
            target
                .request()
                .patch(&target.key.name, &self.merge_params(), &patch),
        )?;
        self.send(&target, request).await
    }

    async fn merge_status<T: DeserializeOwned>(&self, target: &Target, change: &Value) -> Result<T, Error> {
        let (request, patch) = (target.request(), Patch::Merge(change));
        let request = target.build(request.patch_subresource(
            "status",
            &target.key.name,
            &self.merge_params(),
            &patch,
        ))?;
        self.send(target, request).await
    }

    /// Sends a read; `None` if the object does not exist.
    async fn send_read<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: http::Request<Vec<u8>>,
    ) -> Result<Option<T>, Error> {
        match timeout(CALL_TIMEOUT, self.client.request::<T>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(source)) => Err(target.api_error(source)),
            Err(_) => Err(target.timeout_error(CALL_TIMEOUT)),
        }
    }

    /// Sends a delete. An object that does not exist counts as deleted.
    async fn send_delete(&self, target: &Target, request: http::Request<Vec<u8>>) -> Result<(), Error> {
        match self.send::<IgnoredAny>(target, request).await {
            Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.code == 404) => {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    fn merge_params(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: http::Request<Vec<u8>>,
    ) -> Result<T, Error> {
        self.send_within(target, request, CALL_TIMEOUT).await
    }

    async fn send_within<T: DeserializeOwned>(
        &self,
        target: &Target,
        request: http::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<T, Error> {
        // Must stay directly before the call, so that the permit is not outdated when the call is sent.
        let permit = self.leadership.permit()?;
        let answer = send_within(permit, &self.client, request, limit).await?;
        let Target { kind, key, verb, .. } = target;
        debug!(%kind, %key, "{verb}");
        match answer {
            Some(Ok(object)) => Ok(object),
            Some(Err(source)) => Err(target.api_error(source)),
            None => Err(target.timeout_error(limit)),
        }
    }
}

/// Deletes only the object with this UID, and in this version if one is given.
fn preconditions(uid: &str, resource_version: Option<&str>) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: resource_version.map(str::to_owned),
    }
}

/// Spends a permit on one call; `None` if the API server did not answer in time. A call that is still waiting for a
/// connection when leadership ends is not sent.
pub(crate) async fn send_permitted<T: DeserializeOwned>(
    permit: WritePermit,
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<Option<Result<T, kube::Error>>, NotLeading> {
    send_within(permit, client, request, CALL_TIMEOUT).await
}

async fn send_within<T: DeserializeOwned>(
    permit: WritePermit,
    client: &Client,
    request: http::Request<Vec<u8>>,
    limit: Duration,
) -> Result<Option<Result<T, kube::Error>>, NotLeading> {
    let call = timeout(limit, client.request::<T>(request));
    Ok(permit.spend(call).await?.ok())
}
