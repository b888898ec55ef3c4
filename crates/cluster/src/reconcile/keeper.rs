//! Writing the objects of a cluster. A process that was stopped in the middle of its pass decides by what it saw before,
//! while its copies have come to know since what others did: with those alone it would undo that. So a write waits for a
//! look past every copy that the `EtcdCluster` is still the one that was decided upon, and that of the StatefulSet is
//! made upon what was seen of it.

use std::sync::Arc;

use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::apply::{Applier, Error, Introduced, Wish, Writable};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::store::Store;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Resource;

use super::fresh::Fresh;
use crate::observe::{is_own_set, is_owned};

/// Why objects are not what they should be.
#[derive(Debug)]
pub enum Halt {
    /// What was decided is out of date, so nothing more was written.
    Stale,
    /// The API server.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Writes objects for as long as their cluster is the one that was decided upon.
pub struct Keeper<'a> {
    cluster: &'a EtcdCluster,
    applier: &'a Applier,
    fresh: &'a Fresh,
}

impl<'a> Keeper<'a> {
    /// Keeps the objects of this cluster, as that was written down last.
    pub fn new(cluster: &'a EtcdCluster, applier: &'a Applier, fresh: &'a Fresh) -> Self {
        Self {
            cluster,
            applier,
            fresh,
        }
    }

    /// An object of a needed name, as it should be; what to say of it if it is somebody else's.
    pub async fn one<K: Writable + Send + Sync + 'static>(
        &self,
        store: &Store<K>,
        wanted: &Wish<K>,
    ) -> Result<Option<String>, Halt> {
        let there = match store.get(&ObjectKey::of(&**wanted)) {
            Some(there) => there,
            None => match self.introduce(&**wanted).await? {
                Introduced::Created(_) => return Ok(None),
                Introduced::There(there) => Arc::new(there),
            },
        };
        self.over(&*there, wanted, self.is_ours(&*there)).await
    }

    /// The same of the StatefulSet, which says how many members have a pod, and was seen like this.
    pub async fn set(
        &self,
        store: &Store<StatefulSet>,
        seen: Option<&StatefulSet>,
        wanted: &Wish<StatefulSet>,
    ) -> Result<Option<String>, Halt> {
        let Some(now) = store.get(&ObjectKey::of(&**wanted)) else {
            return match self.introduce(&**wanted).await? {
                Introduced::Created(_) => Ok(None),
                // It may be the one that this process made a moment ago, or one without labels, which is in no copy.
                Introduced::There(there) => {
                    let wanted = no_smaller(wanted, &there).into();
                    self.over(&there, &wanted, self.is_own_set(&there)).await
                }
            };
        };
        let is_as_seen = seen.is_some_and(|seen| is_the_same(seen, &now));
        let is_ours = self.is_own_set(&now);
        if is_ours && !is_as_seen && self.differs(&*now, wanted)? {
            return Err(Halt::Stale);
        }
        self.over(&*now, wanted, is_ours).await
    }

    /// This over an object that is stored, unless it is somebody else's.
    async fn over<K: Writable>(
        &self,
        there: &K,
        wanted: &Wish<K>,
        is_ours: bool,
    ) -> Result<Option<String>, Halt> {
        if !is_ours {
            return Ok(Some(foreign(&K::kind(&()), &ObjectKey::of(&**wanted).name)));
        }
        if !self.applier.agrees(there, wanted) {
            self.ensure(there, &**wanted).await?;
        }
        Ok(None)
    }

    /// Whether one that is stored is not as it should be.
    fn differs<K: Writable>(&self, there: &K, wanted: &Wish<K>) -> Result<bool, Error> {
        Ok(!self.applier.agrees(there, wanted) && self.applier.change(Some(there), &**wanted)?.is_some())
    }

    /// Sees to it that this is stored where that is.
    pub async fn ensure<K: Writable>(&self, there: &K, wanted: &K) -> Result<(), Halt> {
        if let Some(change) = self.applier.change(Some(there), wanted)? {
            self.check().await?;
            self.applier.apply(change).await?;
        }
        Ok(())
    }

    /// Deletes an object as it was seen.
    pub async fn delete<K: Writable>(&self, seen: &K) -> Result<(), Halt> {
        self.check().await?;
        Ok(self.applier.delete(seen).await?)
    }

    async fn introduce<K: Writable>(&self, wanted: &K) -> Result<Introduced<K>, Halt> {
        self.check().await?;
        Ok(self.applier.introduce(wanted).await?)
    }

    /// Whether an object is this cluster's.
    pub fn is_ours(&self, object: &impl Resource) -> bool {
        let uid = self.cluster.metadata.uid.as_deref();
        uid.is_some_and(|uid| is_owned(object, uid))
    }

    fn is_own_set(&self, set: &StatefulSet) -> bool {
        let uid = self.cluster.metadata.uid.as_deref();
        uid.is_some_and(|uid| is_own_set(set, uid))
    }

    /// Goes on only if nobody has written to the cluster since.
    async fn check(&self) -> Result<(), Halt> {
        let known = &self.cluster.metadata;
        let now = self
            .applier
            .read::<EtcdCluster>(&ObjectKey::of(self.cluster))
            .await?;
        let Some(now) = now else {
            return Err(Halt::Stale);
        };
        if now.metadata.uid == known.uid && now.metadata.resource_version == known.resource_version {
            return Ok(());
        }
        self.fresh.wrote(&now);
        Err(Halt::Stale)
    }
}

/// What is said of an object that is somebody else's.
pub fn foreign(kind: &str, name: &str) -> String {
    format!(
        "the {kind} {name} exists and is not this EtcdCluster's: rename the EtcdCluster, or delete that object if nobody needs it"
    )
}

/// Whether all that a plan is made of is as it was: others write the rest all the time.
fn is_the_same(seen: &StatefulSet, now: &StatefulSet) -> bool {
    let is_same = || {
        seen.metadata.uid == now.metadata.uid
            && seen.metadata.annotations == now.metadata.annotations
            && seen.spec == now.spec
    };
    std::ptr::eq(seen, now) || is_same()
}

/// The same for no fewer pods than there are: nobody has looked whose they are.
fn no_smaller(wanted: &StatefulSet, there: &StatefulSet) -> StatefulSet {
    let mut wanted = wanted.clone();
    wanted.spec.replicas = wanted.spec.replicas.max(there.spec.replicas);
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
        let seen = set(1, "c-0");
        let mut now = seen.clone();
        now.metadata.resource_version = Some("7".to_owned());
        now.status.get_or_insert_default().replicas = 3;
        assert!(is_the_same(&seen, &now));
        assert!(!is_the_same(&seen, &set(3, "c-0")), "somebody made it larger");
        assert!(!is_the_same(&seen, &set(1, "c-0,c-1")), "somebody votes");
        now.metadata.uid = Some("v".to_owned());
        assert!(!is_the_same(&seen, &now), "it was made anew");
    }

    #[test]
    fn a_set_that_nobody_looked_at_loses_no_pod() {
        let replicas = |wanted, there| no_smaller(&set(wanted, ""), &set(there, "")).spec.replicas;
        assert_eq!(replicas(1, 3), Some(3));
        assert_eq!(replicas(5, 3), Some(5));
    }
}
