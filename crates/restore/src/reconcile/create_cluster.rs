//! Creates the cluster to restore from `spec.clusterTemplate`.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::EtcdRestore;
use etcd_operator_api::reference::References;
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::severity::Severity;
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;
use tracing::info;

use super::{CHANGED_REQUEUE, REJECTED_REQUEUE, Reconciler, api_rejection};
use crate::build;
use crate::observed_state::ObservedRestore;
use crate::plan::{Plan, Reason, cluster_rejected};
use crate::status;

impl Reconciler {
    /// Creates the cluster. A cluster of this name that was created meanwhile is not changed; the next reconcile observes it.
    pub(super) async fn create_cluster(
        &self,
        key: &ObjectKey,
        observed: &ObservedRestore,
        plan: &Plan,
        restore: &Arc<EtcdRestore>,
        references: &References,
    ) -> Result<Wake, Error> {
        let Some(template) = &observed.desired.template else {
            return Ok(Wake::After(plan.requeue_after));
        };
        let deps = &*self.deps;
        let desired_cluster = build::cluster(
            template,
            &key.beside(&observed.desired.cluster),
            &observed.uid,
            observed.scope.as_deref(),
        );
        match deps.applier.create(&desired_cluster).await {
            Ok(Some(_)) => {
                let name = &observed.desired.cluster;
                let note = format!(
                    "Created the EtcdCluster {name} from spec.clusterTemplate; it waits for its data."
                );
                info!(restore = %key, cluster = %name, "created the cluster");
                deps.reporter
                    .tell(&**restore, Severity::Normal, "ClusterCreated", "Restore", note);
                Ok(Wake::After(CHANGED_REQUEUE))
            }
            Ok(None) => Ok(Wake::After(CHANGED_REQUEUE)),
            Err(error) => {
                let Some(rejection) = api_rejection(&error) else {
                    return Err(error);
                };
                let why = bounded(&rejection.message, 400);
                let message = cluster_rejected(&observed.desired.cluster, &why);
                let rejected = plan.clone().with_obstacle(Reason::FailedCreate, message);
                let after = status::status(restore, &rejected, references, observed.now);
                self.write_status(restore, after).await?;
                Ok(Wake::After(Duration::max(REJECTED_REQUEUE, plan.requeue_after)))
            }
        }
    }
}
