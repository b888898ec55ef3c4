//! Writes the objects of a cluster. A process that was stopped in the middle of a reconcile decides by what it observed
//! before, while its copies already show what another leader did: by those alone it would undo that. So before each
//! write it reads the `EtcdCluster` from the API server, which must be the one that it decided upon. The StatefulSet is
//! written only over what was observed of it.

use std::sync::Arc;

use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::apply::{Applier, Error, Introduced, Wish, Writable};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::latest::Latest;
use etcd_operator_runtime::store::Store;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Resource;

use crate::observe::{is_own_set, is_owned};
use crate::trim::with_template;

/// Why an object was not applied: the decision is stale, or the API server failed or refused it.
#[derive(Debug)]
pub enum ApplyError {
    /// What was decided is out of date, so nothing more was written.
    Stale,
    /// The API server.
    Failed(Error),
}

impl From<Error> for ApplyError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Writes objects for as long as their `EtcdCluster` is unchanged.
pub struct ObjectWriter<'a> {
    cluster: &'a EtcdCluster,
    applier: &'a Applier,
    latest: &'a Latest<EtcdCluster>,
}

impl<'a> ObjectWriter<'a> {
    /// A writer for the objects of this cluster, as its status was last stored.
    pub fn new(cluster: &'a EtcdCluster, applier: &'a Applier, latest: &'a Latest<EtcdCluster>) -> Self {
        Self {
            cluster,
            applier,
            latest,
        }
    }

    /// Creates an object or brings it to what is wanted. One of that name that is not this cluster's is not touched:
    /// returns a message about it.
    pub async fn apply<K: Writable + Send + Sync + 'static>(
        &self,
        store: &Store<K>,
        wanted: &Wish<K>,
    ) -> Result<Option<String>, ApplyError> {
        let stored_object = match store.get(wanted.key()) {
            Some(stored_object) => stored_object,
            None => match self.introduce(&*wanted.object()).await? {
                Introduced::Created(_) => return Ok(None),
                Introduced::There(stored_object) => Arc::new(stored_object),
            },
        };
        self.apply_over(&*stored_object, wanted, self.is_ours(&*stored_object))
            .await
    }

    /// The same for the StatefulSet: stale if it would change and is no longer as it was observed. One that was in no
    /// copy keeps its replicas, as its pods were not observed.
    pub async fn apply_stateful_set(
        &self,
        store: &Store<StatefulSet>,
        observed: Option<&StatefulSet>,
        wanted: &Wish<StatefulSet>,
    ) -> Result<Option<String>, ApplyError> {
        let Some(now) = store.get(wanted.key()) else {
            return match self.introduce(&*wanted.object()).await? {
                Introduced::Created(_) => Ok(None),
                // It may be the one that this process made a moment ago, or one without labels, which is in no copy.
                Introduced::There(stored_object) => {
                    let wanted = Wish::from(&keep_replicas(*wanted.object(), &stored_object));
                    self.apply_over(&stored_object, &wanted, self.is_own_set(&stored_object))
                        .await
                }
            };
        };
        let is_ours = self.is_own_set(&now);
        if !is_ours || self.applier.agrees(&*now, wanted) {
            return self.apply_over(&*now, wanted, is_ours).await;
        }
        let is_as_seen = observed.is_some_and(|observed| is_unchanged(observed, &now));
        let stored_object = with_template(now);
        if !is_as_seen
            && self
                .applier
                .change(Some(&*stored_object), &*wanted.object())?
                .is_some()
        {
            return Err(ApplyError::Stale);
        }
        self.apply_over(&*stored_object, wanted, is_ours).await
    }

    /// Applies this over a stored object. If that is not this cluster's, returns a message about it.
    async fn apply_over<K: Writable>(
        &self,
        stored_object: &K,
        wanted: &Wish<K>,
        is_ours: bool,
    ) -> Result<Option<String>, ApplyError> {
        if !is_ours {
            return Ok(Some(foreign_object_message(&K::kind(&()), &wanted.key().name)));
        }
        if !self.applier.agrees(stored_object, wanted) {
            self.ensure(stored_object, &*wanted.object()).await?;
        }
        Ok(None)
    }

    /// Applies this over a stored object if it would change. Whose the object is is for the caller to check.
    pub async fn ensure<K: Writable>(&self, stored_object: &K, wanted: &K) -> Result<(), ApplyError> {
        if let Some(change) = self.applier.change(Some(stored_object), wanted)? {
            self.check_unchanged().await?;
            self.applier.apply(change).await?;
        }
        Ok(())
    }

    /// Deletes an object as it was observed; a change since is a conflict.
    pub async fn delete<K: Writable>(&self, observed: &K) -> Result<(), ApplyError> {
        self.check_unchanged().await?;
        Ok(self.applier.delete(observed).await?)
    }

    /// Creates an object, or returns the one of that name that exists.
    async fn introduce<K: Writable>(&self, wanted: &K) -> Result<Introduced<K>, ApplyError> {
        self.check_unchanged().await?;
        Ok(self.applier.introduce(wanted).await?)
    }

    /// Whether this cluster controls an object.
    pub fn is_ours(&self, object: &impl Resource) -> bool {
        let uid = self.cluster.metadata.uid.as_deref();
        uid.is_some_and(|uid| is_owned(object, uid))
    }

    fn is_own_set(&self, set: &StatefulSet) -> bool {
        let uid = self.cluster.metadata.uid.as_deref();
        uid.is_some_and(|uid| is_own_set(set, uid))
    }

    /// Reads the `EtcdCluster` from the API server. Stale unless it has the resource version that was decided upon.
    async fn check_unchanged(&self) -> Result<(), ApplyError> {
        let known = &self.cluster.metadata;
        let now = self
            .applier
            .read::<EtcdCluster>(&ObjectKey::of(self.cluster))
            .await?;
        let Some(now) = now else {
            return Err(ApplyError::Stale);
        };
        if now.metadata.uid == known.uid && now.metadata.resource_version == known.resource_version {
            return Ok(());
        }
        self.latest.wrote(&now);
        Err(ApplyError::Stale)
    }
}

/// The message about an object of a needed name that is not this cluster's.
pub fn foreign_object_message(kind: &str, name: &str) -> String {
    format!(
        "the {kind} {name} exists and is not this EtcdCluster's: rename the EtcdCluster, or delete that object if nobody needs it"
    )
}

/// Whether all of the StatefulSet that a plan is made of is as it was observed. Its status changes all the time.
fn is_unchanged(observed: &StatefulSet, now: &StatefulSet) -> bool {
    let is_same = || {
        observed.metadata.uid == now.metadata.uid
            && observed.metadata.annotations == now.metadata.annotations
            && observed.spec == now.spec
    };
    std::ptr::eq(observed, now) || is_same()
}

/// The wanted StatefulSet with no fewer replicas than the stored one, so that no pod is deleted that was not observed.
fn keep_replicas(mut wanted: StatefulSet, stored_object: &StatefulSet) -> StatefulSet {
    wanted.spec.replicas = wanted.spec.replicas.max(stored_object.spec.replicas);
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i32, voters: &str) -> StatefulSet {
        let mut set = StatefulSet::default();
        set.metadata.uid = Some("u".to_owned());
        set.metadata.annotations = Some([("voters".to_owned(), voters.to_owned())].into());
        set.spec.replicas = Some(replicas);
        set
    }

    #[test]
    fn a_set_is_the_same_whatever_becomes_of_its_pods() {
        let observed = set(1, "c-0");
        let mut now = observed.clone();
        now.metadata.resource_version = Some("7".to_owned());
        now.status.get_or_insert_default().replicas = 3;
        assert!(is_unchanged(&observed, &now));
        assert!(
            !is_unchanged(&observed, &set(3, "c-0")),
            "somebody made it larger"
        );
        assert!(!is_unchanged(&observed, &set(1, "c-0,c-1")), "somebody votes");
        now.metadata.uid = Some("v".to_owned());
        assert!(!is_unchanged(&observed, &now), "it was made anew");
    }

    #[test]
    fn a_set_that_nobody_looked_at_loses_no_pod() {
        let replicas = |wanted, stored_object| {
            keep_replicas(set(wanted, ""), &set(stored_object, ""))
                .spec
                .replicas
        };
        assert_eq!(replicas(1, 3), Some(3));
        assert_eq!(replicas(5, 3), Some(5));
    }
}
