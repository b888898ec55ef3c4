//! A spec that is refused: the status says so, and nothing is done. Members that run are observed all the same, as
//! their conditions must stay true.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_cluster_core::build::to_observe_only;
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::plan::plan;
use etcd_operator_cluster_core::status::{self, StatusInputs};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;

use super::step::wake;
use super::{Error, Reconciler, objects};
use crate::metrics::Sample;
use crate::observe::last_served_template;
use crate::observe::observe;

impl Reconciler {
    /// Reports a refused spec. Members that run are observed and left alone.
    pub(super) async fn report_refused(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        refused: &[Refusal],
    ) -> Result<Wake, Error> {
        if let Some(desired) = to_observe_only(cluster)
            && let Some(wake) = Box::pin(self.observe_refused(key, cluster, desired, refused)).await?
        {
            return Ok(wake);
        }
        let deps = &*self.deps;
        let after = status::for_refused_spec(cluster, refused, &deps.installation, deps.clock.now());
        self.publish_status(cluster, after).await?;
        Ok(Wake::OnChange)
    }

    /// Reports the members of a cluster whose spec is refused. `None` if it has no pods to observe, such as while it is
    /// hibernated.
    async fn observe_refused(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        desired: Desired,
        refused: &[Refusal],
    ) -> Result<Option<Wake>, Error> {
        let deps = &*self.deps;
        let observation = observe(cluster, desired, deps, &|set| self.derived.stored(key, set)).await?;
        let observed = &observation.observed;
        // Whoever sleeps does not answer, and has lost nothing.
        if observed.set.as_ref().is_none_or(|set| set.replicas == 0) {
            return Ok(None);
        }
        self.readings.record(key, &Sample::new(cluster, observed));
        let plan = plan(observed).for_refused_spec();
        let before = cluster.status.as_ref();
        let status_inputs = StatusInputs {
            installation: &deps.installation,
            refusals: refused,
            conflicts: objects::conflicts(key, &observed.uid, deps),
            has_checked_names: false,
            refused: None,
            drops_plans: status::is_plan_drop_reported(cluster),
            step: None,
            refused_step: None,
            pending: None,
            // What a refused spec asks for is unknown.
            applied_template: objects::template_left_alone(cluster, &observation, &plan, true),
            last_served_template: last_served_template(before).map(str::to_owned),
            backups: objects::backups(key, deps),
        };
        let after = status::status(cluster, observed, &plan, &status_inputs);
        self.publish_status(cluster, after).await?;
        Ok(Some(wake(observed.has_silent_member(), plan.requeue_after)))
    }
}
