//! The certificate that members show to one another, where the others do not accept it: the cluster serves and cannot heal.

use super::decision::{FlowDecision, Reason};
use crate::blocker::Blocker;
use crate::observed_state::ObservedCluster;

/// Adds a blocker if members reject the certificate of another one, as then no member can be added; `Converged` becomes
/// `Blocked`. A cluster that is hibernated, paused or refused, or awaits a restore, is left as it is.
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
