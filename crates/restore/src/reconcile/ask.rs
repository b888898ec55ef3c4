//! What a cluster is asked for by its annotation: written, and taken back, only after a look past every copy.

use etcd_operator_api::contract::{self, RestoreIntent};
use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_api::{EtcdCluster, EtcdRestore};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use kube::ResourceExt as _;
use tracing::info;

use super::Reconciler;
use crate::observe::{can_be_replaced, found_cluster};
use crate::plan::{Ask, Plan, still_asks};
use crate::world::World;

impl Reconciler {
    /// Writes what the cluster is asked for; false if it has changed since it was looked at.
    pub(super) async fn ask(&self, key: &ObjectKey, world: &World, plan: &Plan) -> Result<bool, Error> {
        let text = match &plan.ask {
            Ask::AsBefore => return Ok(true),
            Ask::Nothing => None,
            Ask::For(intent) => Some(serde_json::to_string(intent).expect("an intent is JSON")),
        };
        let cluster = key.beside(&world.desired.cluster);
        // Past every copy: what is asked for stands on what the cluster's controller has written by now.
        let Some(now) = self.deps.applier.read::<EtcdCluster>(&cluster).await? else {
            return Ok(false);
        };
        let status = now.status.as_ref();
        let progress = status.and_then(|status| status.restore.as_ref());
        let other = progress.filter(|progress| progress.is_active() && progress.uid != world.uid);
        // Whoever takes back only what it asked for itself is in nobody's way.
        let other = other.filter(|_| text.is_some());
        let is_carried_out = match other {
            Some(other) => {
                let restore = self.found(key, &other.name, &other.uid).await?;
                !can_be_replaced(other, status, restore.as_ref())
            }
            None => false,
        };
        let may_be_asked = |uid: &str| uid == world.uid || other.is_some_and(|other| other.uid == uid);
        let is_anothers = is_carried_out
            || asked(&now).is_some_and(|asked| !asked.is_ok_and(|asked| may_be_asked(&asked.uid)));
        let fresh = found_cluster(&world.desired.cluster, Some(&now), key);
        if is_anothers || !still_asks(plan, world, fresh) {
            return Ok(text.is_none());
        }
        self.deps
            .applier
            .annotate(&now, &[(ANNOTATION_RESTORE, text.as_deref())])
            .await?;
        Ok(true)
    }

    /// Takes back what the cluster was asked for and has not begun: whoever asks is refused by now, and would stand in the way of
    /// others. Returns whether it carries this restore out, or has done so. Looked at past every copy.
    pub(super) async fn begun_or_withdrawn(
        &self,
        key: &ObjectKey,
        restore: &EtcdRestore,
    ) -> Result<bool, Error> {
        if restore.status.as_ref().is_some_and(|status| status.succeeded) {
            return Ok(true);
        }
        let uid = restore.uid().unwrap_or_default();
        let cluster = key.beside(&restore.spec.etcd_cluster.name);
        let Some(now) = self.deps.applier.read::<EtcdCluster>(&cluster).await? else {
            return Ok(false);
        };
        let progress = now.status.as_ref().and_then(|status| status.restore.as_ref());
        if progress.is_some_and(|progress| progress.uid == uid && progress.phase != "RolledBack") {
            return Ok(true);
        }
        if asked(&now).is_some_and(|asked| asked.is_ok_and(|asked| asked.uid == uid)) {
            self.deps
                .applier
                .annotate(&now, &[(ANNOTATION_RESTORE, None)])
                .await?;
            info!(%cluster, restore = %key, "the restore is refused by now and no longer asked for");
        }
        Ok(false)
    }

    /// The `EtcdRestore` of this name and UID, if there is one that is to stay.
    async fn found(&self, key: &ObjectKey, name: &str, uid: &str) -> Result<Option<EtcdRestore>, Error> {
        let found = self.deps.applier.read::<EtcdRestore>(&key.beside(name)).await?;
        Ok(found.filter(|found| {
            found.uid().as_deref() == Some(uid) && found.metadata.deletion_timestamp.is_none()
        }))
    }

    /// A restore that does not exist any more is no longer asked for: before the commit the cluster comes back, after it
    /// the restore goes on to its end. False if there is one that a copy does not know, and that stays.
    pub(super) async fn withdraw_stale(&self, key: &ObjectKey, uid: Option<&str>) -> Result<bool, Error> {
        let meant = |cluster: &EtcdCluster| {
            let intent = asked(cluster).and_then(Result::ok);
            intent.filter(|intent| intent.name == key.name && Some(intent.uid.as_str()) != uid)
        };
        let is_stale = |cluster: &EtcdCluster| {
            let is_ours = self.deps.scope.serves(cluster.metadata.annotations.as_ref());
            let by = cluster
                .status
                .as_ref()
                .and_then(|status| status.controlled_by.as_deref());
            let other = self.elsewhere.another(by);
            is_ours.is_ok() && other.is_none() && meant(cluster).is_some()
        };
        let mut is_all = true;
        for cluster in self.deps.clusters.filter(&key.namespace, is_stale) {
            // A copy may be behind, also by more than a moment: a restore that is there is not taken back for that.
            let uid = meant(&cluster).map(|intent| intent.uid).unwrap_or_default();
            if self.found(key, &key.name, &uid).await?.is_some() {
                is_all = false;
                continue;
            }
            self.deps
                .applier
                .annotate(&*cluster, &[(ANNOTATION_RESTORE, None)])
                .await?;
            info!(cluster = %ObjectKey::of(&*cluster), restore = %key, "the restore is gone and no longer asked for");
        }
        Ok(is_all)
    }
}

/// The restore that a cluster is asked for.
pub(super) fn asked(cluster: &EtcdCluster) -> Option<Result<RestoreIntent, contract::DocumentError>> {
    let text = cluster.annotations().get(ANNOTATION_RESTORE)?;
    Some(contract::read(text.as_bytes()))
}
