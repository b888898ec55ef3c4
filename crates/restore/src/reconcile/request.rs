//! Writes and removes the annotation that requests a restore from a cluster. Always reads the cluster from the API server
//! first, because the stores may be outdated.

use etcd_operator_api::contract::{self, RestoreIntent};
use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_api::{EtcdCluster, EtcdRestore};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use kube::ResourceExt as _;
use tracing::info;

use super::Reconciler;
use crate::observe::{can_be_replaced, find_cluster};
use crate::observed_state::ObservedRestore;
use crate::plan::{Plan, RequestChange, is_request_still_valid};

impl Reconciler {
    /// Applies the request change of a plan. Returns false, and writes nothing, if the cluster is gone, another restore
    /// has taken it, or it has changed so that the plan no longer fits. A removal that no longer fits is skipped and
    /// counts as done.
    pub(super) async fn apply_request(
        &self,
        key: &ObjectKey,
        observed: &ObservedRestore,
        plan: &Plan,
    ) -> Result<bool, Error> {
        let text = match &plan.request {
            RequestChange::Keep => return Ok(true),
            RequestChange::Clear => None,
            RequestChange::Set(request) => {
                Some(serde_json::to_string(request).expect("a request serializes to JSON"))
            }
        };
        let cluster = key.beside(&observed.desired.cluster);
        // Read from the API server, because the decision depends on the newest status of the cluster controller.
        let Some(cluster_now) = self.deps.applier.read::<EtcdCluster>(&cluster).await? else {
            return Ok(false);
        };
        let status = cluster_now.status.as_ref();
        let progress = status.and_then(|status| status.restore.as_ref());
        let other = progress.filter(|progress| progress.is_active() && progress.uid != observed.uid);
        // Removing the own request never conflicts with another restore.
        let other = other.filter(|_| text.is_some());
        let is_active = match other {
            Some(other) => {
                let restore = self.find_restore(key, &other.name, &other.uid).await?;
                !can_be_replaced(other, status, restore.as_ref())
            }
            None => false,
        };
        let is_replaceable = |uid: &str| uid == observed.uid || other.is_some_and(|other| other.uid == uid);
        let is_foreign = is_active
            || requested_restore(&cluster_now)
                .is_some_and(|requested| !requested.is_ok_and(|requested| is_replaceable(&requested.uid)));
        let current_cluster = find_cluster(
            &observed.desired.cluster,
            Some(&cluster_now),
            key,
            &self.deps.default_repository,
        );
        if is_foreign || !is_request_still_valid(plan, observed, current_cluster) {
            return Ok(text.is_none());
        }
        self.deps
            .applier
            .annotate(&cluster_now, &[(ANNOTATION_RESTORE, text.as_deref())])
            .await?;
        Ok(true)
    }

    /// Returns whether the cluster is carrying out this restore or has done so. Otherwise withdraws the request of the
    /// restore, because its spec is refused now and the request would block other restores.
    pub(super) async fn withdraw_unless_started(
        &self,
        key: &ObjectKey,
        restore: &EtcdRestore,
    ) -> Result<bool, Error> {
        if restore.status.as_ref().is_some_and(|status| status.succeeded) {
            return Ok(true);
        }
        let uid = restore.uid().unwrap_or_default();
        let cluster = key.beside(&restore.spec.etcd_cluster.name);
        let Some(cluster_now) = self.deps.applier.read::<EtcdCluster>(&cluster).await? else {
            return Ok(false);
        };
        let progress = cluster_now
            .status
            .as_ref()
            .and_then(|status| status.restore.as_ref());
        if progress.is_some_and(|progress| progress.uid == uid && progress.phase != "RolledBack") {
            return Ok(true);
        }
        if requested_restore(&cluster_now)
            .is_some_and(|requested| requested.is_ok_and(|requested| requested.uid == uid))
        {
            self.deps
                .applier
                .annotate(&cluster_now, &[(ANNOTATION_RESTORE, None)])
                .await?;
            info!(%cluster, restore = %key, "withdrew the request of a restore whose spec is refused");
        }
        Ok(false)
    }

    /// The `EtcdRestore` with this name and UID, if it exists and is not being deleted.
    async fn find_restore(
        &self,
        key: &ObjectKey,
        name: &str,
        uid: &str,
    ) -> Result<Option<EtcdRestore>, Error> {
        let found = self.deps.applier.read::<EtcdRestore>(&key.beside(name)).await?;
        Ok(found.filter(|found| {
            found.uid().as_deref() == Some(uid) && found.metadata.deletion_timestamp.is_none()
        }))
    }

    /// Withdraws the requests of a restore that no longer exists. Before its commit point the previous cluster is brought
    /// back; after it the restore continues to its end. `uid` is the UID of the existing restore of this name.
    ///
    /// Returns false if the requested restore still exists although the store does not have it.
    pub(super) async fn withdraw_stale_requests(
        &self,
        key: &ObjectKey,
        uid: Option<&str>,
    ) -> Result<bool, Error> {
        let stale_request = |cluster: &EtcdCluster| {
            let request = requested_restore(cluster).and_then(Result::ok);
            request.filter(|request| request.name == key.name && Some(request.uid.as_str()) != uid)
        };
        let is_stale = |cluster: &EtcdCluster| {
            let is_ours = self.deps.scope.serves(cluster.metadata.annotations.as_ref());
            let by = cluster
                .status
                .as_ref()
                .and_then(|status| status.controlled_by.as_deref());
            let other = self.elsewhere.another(by);
            is_ours.is_ok() && other.is_none() && stale_request(cluster).is_some()
        };
        let mut is_complete = true;
        for cluster in self.deps.clusters.filter(&key.namespace, is_stale) {
            // The store may be outdated for long, so the existence of the restore is checked with the API server.
            let uid = stale_request(&cluster)
                .map(|request| request.uid)
                .unwrap_or_default();
            if self.find_restore(key, &key.name, &uid).await?.is_some() {
                is_complete = false;
                continue;
            }
            self.deps
                .applier
                .annotate(&*cluster, &[(ANNOTATION_RESTORE, None)])
                .await?;
            info!(cluster = %ObjectKey::of(&*cluster), restore = %key, "withdrew the request of a deleted restore");
        }
        Ok(is_complete)
    }
}

/// The restore that the annotation of a cluster requests: `None` without the annotation, `Some(Err)` if it cannot be
/// decoded.
pub(super) fn requested_restore(
    cluster: &EtcdCluster,
) -> Option<Result<RestoreIntent, contract::DocumentError>> {
    let text = cluster.annotations().get(ANNOTATION_RESTORE)?;
    Some(contract::read(text.as_bytes()))
}
