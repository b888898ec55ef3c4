//! Taking the step of a plan that is written down, and telling what came of it.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::events::Severity;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::queue::Wake;
use tracing::{debug, info};

use super::{Reconciler, WAIT};
use crate::act::{self, Error, Outcome};
use crate::intent::What;
use crate::observe::Observed;
use crate::plan::{Plan, Step};
use crate::status::Surroundings;

/// The same with what made it necessary to replace a member, where one is replaced.
fn because(text: String, plan: &Plan) -> String {
    match plan.memory.intent.as_ref().map(|intent| &intent.what) {
        Some(What::Replace(replace)) => {
            format!("{}: {}.", text.trim_end_matches('.'), replace.cause)
        }
        _ => text,
    }
}

impl Reconciler {
    /// Takes the step of a plan, if it has one; `stored` is the cluster as the plan was written down.
    pub(super) async fn take(
        &self,
        key: &ObjectKey,
        stored: &EtcdCluster,
        observed: &Observed,
        plan: &Plan,
        around: &Surroundings<'_>,
    ) -> Result<Wake, Error> {
        let Some(step) = &plan.step else {
            return Ok(Wake::After(plan.wake));
        };
        let world = &observed.world;
        let taken = act::act(step, plan, observed, key, &self.deps).await;
        if let Err(Error::Api(error)) = &taken
            && error.is_refusal()
        {
            let around = Surroundings {
                refused_step: Some(error.to_string()),
                ..around.clone()
            };
            self.write_down(stored, world, plan, &around).await?;
        }
        match taken? {
            Outcome::Done(text) => {
                let text = because(text, plan);
                if matches!(step, Step::TakeOver(_)) {
                    self.owes(key, BTreeSet::new());
                }
                self.tell(stored, step, text);
                Ok(Wake::After(Duration::ZERO))
            }
            Outcome::Added(id, text) => {
                self.tell(stored, step, text);
                // Where it votes at once, nobody may be able to tell its ID before it has started.
                self.write_down(stored, world, &plan.clone().with_added(id), around)
                    .await?;
                Ok(Wake::After(Duration::ZERO))
            }
            Outcome::Stale(why) => {
                debug!(cluster = %key, %why, "looked at anew");
                Ok(Wake::After(Duration::ZERO))
            }
            Outcome::Waits(why) => {
                debug!(cluster = %key, %why, "etcd lets the step wait");
                Ok(Wake::After(plan.wake.max(WAIT)))
            }
        }
    }

    fn tell(&self, cluster: &EtcdCluster, step: &Step, text: String) {
        info!(cluster = %ObjectKey::of(cluster), step = act::name(step), "{text}");
        let (reason, severity) = (act::name(step), Severity::Normal);
        self.deps
            .reporter
            .tell(cluster, severity, reason, "Reconcile", text);
    }
}
