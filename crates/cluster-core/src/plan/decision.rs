//! What a flow has to say: which operation must stand in the status, which step may follow, and why.

use etcd_operator_etcd_types::id::MemberId;

use super::step::Step;
use crate::blocker::Blocker;
use crate::observed_state::Ordinal;
use crate::pending_operation::{Cause, Join, Operation};

/// What the operator does or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// In one word, for conditions.
    pub reason: Reason,
    /// In words.
    pub text: String,
    /// What must change before the next step is safe.
    pub blockers: Vec<Blocker>,
}

/// Where a cluster stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// As asked for.
    Converged,
    /// The spec says to leave it alone.
    Paused,
    /// The spec is refused: nothing is done.
    Invalid,
    /// The size is 0: it has no pods.
    Hibernated,
    /// It is created: its first members start.
    Bootstrapping,
    /// Members come or go.
    Scaling,
    /// A member is replaced.
    Recovering,
    /// Members are restarted one by one with a changed pod template.
    RollingOut,
    /// The data of a backup take the place of the cluster's.
    Restoring,
    /// Nothing of it starts before a restore brings its data.
    AwaitingRestore,
    /// It waits for something that comes by itself.
    Waiting,
    /// The next step would not be safe.
    Blocked,
    /// No pod that runs can be reached.
    MembersUnreachable,
    /// etcd requires authentication, and the operator has no user there.
    AuthenticationRequired,
    /// Too few voters answer.
    QuorumLost,
    /// No member has data any more.
    DataLost,
}

impl Reason {
    /// The word in conditions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "Converged",
            Self::Paused => "Paused",
            Self::Invalid => "Invalid",
            Self::Hibernated => "Hibernated",
            Self::Bootstrapping => "Bootstrapping",
            Self::Scaling => "Scaling",
            Self::Recovering => "Recovering",
            Self::RollingOut => "RollingOut",
            Self::Restoring => "Restoring",
            Self::AwaitingRestore => "AwaitingRestore",
            Self::Waiting => "Waiting",
            Self::Blocked => "Blocked",
            Self::MembersUnreachable => "MembersUnreachable",
            Self::AuthenticationRequired => "AuthenticationRequired",
            Self::QuorumLost => "QuorumLost",
            Self::DataLost => "DataLost",
        }
    }
}

/// What a flow decides. The operation is written to the status before the step is taken.
#[derive(Debug)]
pub struct FlowDecision {
    /// The operation that must stand in the status.
    pub operation: Option<Operation>,
    /// The step that may follow once it does.
    pub step: Option<Step>,
    /// What it does or waits for.
    pub explanation: Explanation,
}

/// What a flow answers where another flow may have to go on in its stead. Flows do not call one another: `formed` follows this.
#[derive(Debug)]
pub enum Candidate {
    /// Its own decision.
    Decision(FlowDecision),
    /// A member joins.
    Join(Join),
    /// A member is taken out.
    Remove {
        /// Its ordinal.
        ordinal: Ordinal,
        /// Its ID.
        id: MemberId,
    },
    /// A member is replaced.
    Replace {
        /// Its ordinal.
        ordinal: Ordinal,
        /// Its ID.
        id: MemberId,
        /// Why.
        cause: Cause,
    },
}

impl FlowDecision {
    /// A decision that begins this operation or keeps it in the status, and takes no step yet.
    pub fn with_operation(operation: Operation, reason: Reason, text: impl Into<String>) -> Self {
        Self {
            operation: Some(operation),
            step: None,
            explanation: Explanation::new(reason, text),
        }
    }

    /// A decision without an operation and a step: one that is pending is dropped from the status. To keep it, the
    /// caller sets `operation`.
    pub fn without_operation(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            operation: None,
            step: None,
            explanation: Explanation::new(reason, text),
        }
    }

    /// With this step.
    pub fn with_step(mut self, step: Step) -> Self {
        self.step = Some(step);
        self
    }

    /// With these blockers, in place of any it had.
    pub fn with_blockers(mut self, blockers: Vec<Blocker>) -> Self {
        self.explanation.blockers = blockers;
        self
    }
}

impl Explanation {
    /// With no blockers.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
            blockers: Vec::new(),
        }
    }
}
