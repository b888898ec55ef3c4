//! Why a cluster is in its phase, in a sentence or two, as `kubectl get` shows it: of all that stands in the way what a person
//! has to know first.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::Condition;

use super::inputs::StatusInputs;
use super::text::sentence;
use super::{conditions, events, step_failure};
use crate::blocker::root_cause;
use crate::plan::{ClusterView, Plan, Reason};

/// The longest text about what is in the way.
const LONGEST: usize = 512;

/// Why a cluster is in its phase: the first thing that the user needs to know.
pub fn reason(
    view: &ClusterView<'_>,
    plan: &Plan,
    inputs: &StatusInputs<'_>,
    before_status: &EtcdClusterStatus,
) -> String {
    let before = before_status.conditions.as_deref().unwrap_or_default();
    if let Some(first) = inputs.refusals.iter().min() {
        return first.to_string();
    }
    let text = conditions::summarize(view, plan, inputs);
    let reason = plan.explanation.reason;
    if step_failure::is_crd_outdated(reason, inputs) {
        return text;
    }
    if let Some(refused) = step_failure::refused_step(inputs, before_status.plan.as_ref()) {
        return step_failure::describe(&refused);
    }
    let cause = root_cause(&plan.explanation.blockers).map(ToString::to_string);
    match (reason, cause) {
        // What is blocked comes before whom it waits for.
        (Reason::Blocked | Reason::MembersUnreachable, Some(cause)) => {
            format!("{text} {}", sentence(&cause, LONGEST))
        }
        (
            Reason::Bootstrapping
            | Reason::Scaling
            | Reason::Recovering
            | Reason::Restoring
            | Reason::Waiting,
            Some(cause),
        ) => sentence(&cause, LONGEST),
        // Who has not come yet cannot come then.
        (Reason::Bootstrapping | Reason::Waiting, None) if !plan.persisted.has_formed() => {
            refused_objects(inputs, before).unwrap_or(text)
        }
        _ => text,
    }
}

/// The text about objects that the API server refuses; `None` if it refuses none.
fn refused_objects(inputs: &StatusInputs<'_>, before: &[Condition]) -> Option<String> {
    let refused = match &inputs.refused {
        Some(refused) => (!refused.is_empty()).then(|| refused.join("; ")),
        None => events::refused_changes(before),
    };
    refused.map(|refused| {
        let words = format!("The API server refuses what is needed: {refused}");
        sentence(&words, LONGEST)
    })
}
