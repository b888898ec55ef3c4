//! A spec that cannot be: that is said, and nothing is done. Members that run are looked at all the same, as whoever is told
//! that all is well must be able to believe it.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;

use super::{Error, Reconciler, objects};
use crate::desired::{Desired, looked_at};
use crate::figures::Look;
use crate::observe::observe;
use crate::plan::plan;
use crate::status::{self, Surroundings};

impl Reconciler {
    /// What the spec asks for cannot be: that is said, and members that run are left alone.
    pub(super) async fn refuse(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        refused: &[Refusal],
    ) -> Result<Wake, Error> {
        if let Some(desired) = looked_at(cluster)
            && let Some(wake) = self.look_on(key, cluster, desired, refused).await?
        {
            return Ok(wake);
        }
        let deps = &*self.deps;
        let after = status::refused(cluster, refused, &deps.installation, deps.clock.now());
        self.report(cluster, after).await?;
        Ok(Wake::OnChange)
    }

    /// Says how the members are of a cluster whose spec is refused; none if there is nobody to look at.
    async fn look_on(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        desired: Desired,
        refused: &[Refusal],
    ) -> Result<Option<Wake>, Error> {
        let deps = &*self.deps;
        let observed = observe(cluster, desired, deps, &|set| self.asked.stored(key, set)).await?;
        let world = &observed.world;
        // Whoever sleeps does not answer, and has lost nothing.
        if world.set.as_ref().is_none_or(|set| set.replicas == 0) {
            return Ok(None);
        }
        self.readings.note(key, &Look::of(cluster, world));
        let plan = plan(world).refused();
        let before = cluster.status.as_ref();
        let around = Surroundings {
            installation: &deps.installation,
            refusals: refused,
            conflicts: objects::conflicts(key, &world.uid, deps),
            has_looked: false,
            refused: None,
            forgets_plans: status::told_to_forget(cluster),
            step: None,
            refused_step: None,
            pending: None,
            applied_template: before.and_then(|status| status.applied_template.clone()),
            backups: objects::backups(key, deps),
        };
        let after = status::status(cluster, world, &plan, &around);
        self.report(cluster, after).await?;
        Ok(Some(Wake::After(plan.wake)))
    }
}
