//! What keeps a step from being taken that is decided and safe, for the condition Progressing: a refusal, or definitions that
//! drop what must stand in the status before.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::{PlanStatus, RefusedStep};
use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_api::refusal;

use super::inputs::StatusInputs;
use crate::plan::Reason;

/// The longest text of the API server that is told.
const MAX_CHARS: usize = 1_000;

/// The word for definitions that drop the plan.
pub const CRD_OUTDATED: &str = "DefinitionsOutdated";
/// What is said of them.
pub const CRD_OUTDATED_MESSAGE: &str = "The definition of EtcdCluster that this Kubernetes has is of an older version and drops status.plan, where a step must stand before it is taken: so none is. Apply the definitions of this version: upgrade the Helm release that they belong to, or kubectl apply --server-side --kustomize config/crd.";

/// Whether the API server dropped the plan that was written into this status: the CRD is of an older version.
pub fn is_plan_dropped(stored: &EtcdCluster) -> bool {
    stored.status.as_ref().is_none_or(|status| status.plan.is_none())
}

/// Whether the status lacks a plan and says why.
pub fn is_plan_drop_reported(cluster: &EtcdCluster) -> bool {
    let status = cluster.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let progress = condition::find(conditions.unwrap_or_default(), ConditionType::Progressing);
    is_plan_dropped(cluster) && progress.is_some_and(|one| one.reason.as_deref() == Some(CRD_OUTDATED))
}

/// Whether to report that an outdated CRD keeps the operator from taking steps: always, also with none to take, but not
/// for a cluster that is paused, refused or hibernated.
pub fn is_crd_outdated(reason: Reason, inputs: &StatusInputs<'_>) -> bool {
    inputs.drops_plans && !matches!(reason, Reason::Paused | Reason::Invalid | Reason::Hibernated)
}

/// The API server's refusal of the next step. While that was not tried in this reconcile, the last refusal of a step of
/// the same kind holds. `None` without a step.
pub fn refused_step(inputs: &StatusInputs<'_>, before: Option<&PlanStatus>) -> Option<RefusedStep> {
    let step = inputs.step?;
    if let Some(message) = &inputs.refused_step {
        return Some(RefusedStep {
            step: step.to_owned(),
            message: refusal::bounded(message, MAX_CHARS),
        });
    }
    let last = before?.refused_step.clone()?;
    (last.step == step).then_some(last)
}

/// A refusal in words, and what to do.
pub fn describe(refused: &RefusedStep) -> String {
    let RefusedStep { step, message } = refused;
    format!(
        "The API server refuses the step {step}: {message}. Correct the quota, the PodDisruptionBudget or the admission rule that it names, or grant the operator the missing permission. The operator retries."
    )
}
