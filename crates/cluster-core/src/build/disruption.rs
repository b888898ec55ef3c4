//! What bounds evictions: a drain never takes the quorum.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    inputs::{BuildInputs, owned_metadata},
    labels::selector,
};
use crate::desired::Desired;

/// How many voters the PodDisruptionBudget counts. While the cluster shrinks, the members that are still there need
/// their own quorum. During a rollout only present voters count: missing ones must not forbid the restart that may let
/// them come.
pub fn budget_voters(live: usize, wanted: usize, is_rolling_out: bool) -> usize {
    if is_rolling_out && live > 0 {
        live
    } else {
        live.max(wanted)
    }
}

/// The PodDisruptionBudget that keeps a quorum of voters. `None` for 0 or 1 voter, where it would only block drains. With two
/// voters, quorum needs both, so it blocks every drain.
pub(super) fn budget(desired: &Desired, inputs: &BuildInputs) -> Option<PodDisruptionBudget> {
    let voters = inputs.budget_voters;
    if voters < 2 {
        return None;
    }
    let quorum = i32::try_from(voters / 2 + 1).unwrap_or(i32::MAX);
    let name = &desired.name;
    Some(PodDisruptionBudget {
        metadata: owned_metadata(name, inputs, name.to_string()),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(quorum)),
            selector: Some(selector(name)),
            // A member that is not ready may still be the one that others need to hold quorum.
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}
