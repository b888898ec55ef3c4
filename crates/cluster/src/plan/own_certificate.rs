//! The certificate that members show to one another, where the others do not accept it: the cluster serves and cannot heal.

use super::decision::{FlowDecision, Reason};
use crate::blocker::Blocker;
use crate::observed_state::ObservedCluster;

/// Whatever else is to be done, a cluster to which no member can be added says so before one is missing.
pub fn add_certificate_blocker(observed: &ObservedCluster, mut decision: FlowDecision) -> FlowDecision {
    let Some(fault) = &observed.server_certificate else {
        return decision;
    };
    let explanation = &mut decision.explanation;
    match explanation.reason {
        Reason::Hibernated | Reason::AwaitingRestore | Reason::Paused | Reason::Invalid => return decision,
        Reason::Converged => {
            explanation.reason = Reason::Blocked;
            "All members are healthy.".clone_into(&mut explanation.text);
        }
        _ => {}
    }
    explanation
        .blockers
        .push(Blocker::ServerCertificateRejected(fault.clone()));
    decision
}
