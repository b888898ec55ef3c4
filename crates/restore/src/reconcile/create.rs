//! Making the cluster that is restored, where its template says so and there is none.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::EtcdRestore;
use etcd_operator_api::reference::References;
use etcd_operator_api::refusal::bounded;
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::events::Severity;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;
use tracing::info;

use super::{REFUSED, Reconciler, SOON, refusal};
use crate::build;
use crate::plan::Plan;
use crate::status;
use crate::world::World;

impl Reconciler {
    /// Makes it. One of its name that came in the meantime is not touched, and looked at like any other.
    pub(super) async fn create(
        &self,
        key: &ObjectKey,
        world: &World,
        plan: &Plan,
        restore: &Arc<EtcdRestore>,
        references: &References,
    ) -> Result<Wake, Error> {
        let Some(template) = &world.desired.template else {
            return Ok(Wake::After(plan.wake));
        };
        let deps = &*self.deps;
        let wanted = build::cluster(
            template,
            &key.beside(&world.desired.cluster),
            &world.uid,
            world.scope.as_deref(),
        );
        match deps.applier.create(&wanted).await {
            Ok(Some(_)) => {
                let name = &world.desired.cluster;
                let note = format!(
                    "The EtcdCluster {name} was created from spec.clusterTemplate, and waits for its data."
                );
                info!(restore = %key, cluster = %name, "the cluster was created");
                deps.reporter
                    .tell(&**restore, Severity::Normal, "ClusterCreated", "Restore", note);
                Ok(Wake::After(SOON))
            }
            Ok(None) => Ok(Wake::After(SOON)),
            Err(error) => {
                let Some(refusal) = refusal(&error) else {
                    return Err(error);
                };
                let refused = Plan {
                    text: format!(
                        "The EtcdCluster {} of spec.clusterTemplate is not taken: {}",
                        world.desired.cluster,
                        bounded(&refusal.message, 400)
                    ),
                    ..plan.clone()
                };
                let after = status::status(restore, &refused, references, world.now);
                self.report(restore, after).await?;
                Ok(Wake::After(Duration::max(REFUSED, plan.wake)))
            }
        }
    }
}
