//! The member that a rollout restarts. What is blocked only because it does not answer yet is reported as waiting, as
//! that is part of every rollout.

use jiff::SignedDuration;

use crate::blocker::{Blocker, MemberProblem};
use crate::observed_state::Ordinal;
use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;
use crate::plan::decision::{FlowDecision, Reason};

/// How long a member that a rollout restarts has to answer again.
const RESTART_PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// When a client has given up a connection that nothing answers: gRPC gives an attempt 20 seconds.
pub const RECONNECTED_AFTER: SignedDuration = SignedDuration::from_secs(21);

/// The member that a rollout restarts; `None` once the rollout has made no progress for `RESTART_PATIENCE`, even if the
/// member does not answer yet. No step depends on it, only whether its silence is reported as a wait or as a problem.
pub fn restarting_member(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<Ordinal> {
    let rollout = persisted.rollout.as_ref()?;
    let current = rollout.current.as_ref()?;
    let is_recent = rollout.has_progressed_within(RESTART_PATIENCE, view.observed.now);
    is_recent.then_some(current.ordinal)
}

/// Turns `Blocked` into `Waiting` if the restart of a member is all that blocks: it ends when the member answers again.
/// Step and blockers stay.
pub fn await_restarting_member(
    view: &ClusterView<'_>,
    persisted: &PersistedState,
    mut decision: FlowDecision,
) -> FlowDecision {
    let explanation = &mut decision.explanation;
    let Some(name) = restarting_member(view, persisted).map(|ordinal| view.observed.name(ordinal)) else {
        return decision;
    };
    let is_its_restart = |blocker: &Blocker| match blocker {
        Blocker::Member {
            name: member,
            problem: MemberProblem::Unhealthy { cause: None } | MemberProblem::MustRecoverFirst,
        } => *member == name,
        _ => false,
    };
    // What follows for the quorum does not stand alone.
    let is_consequence = |blocker: &Blocker| matches!(blocker, Blocker::RemovalBreaksQuorum { .. });
    let blockers = &explanation.blockers;
    if explanation.reason == Reason::Blocked
        && blockers.iter().any(is_its_restart)
        && blockers
            .iter()
            .all(|blocker| is_its_restart(blocker) || is_consequence(blocker))
    {
        explanation.reason = Reason::Waiting;
    }
    decision
}
