//! Bringing the old cluster back: its incarnation returns into the template, and every pod of the other one is deleted.
//! Its data was never touched, so its members start by themselves.

use super::old_pods::{delete_stale_pod, is_template_new, stale_pods};
use crate::blocker::{Blocker, MemberProblem};
use crate::pending_operation::Operation;
use crate::persisted_state::{PersistedState, Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::decision::{FlowDecision, Reason};
use crate::plan::restore_request::returns_to_waiting;

/// Why a restore is rolled back.
#[derive(Debug)]
pub enum RollbackCause {
    /// The EtcdRestore was deleted or names another backup.
    Withdrawn,
    /// Members have restored different clusters.
    ClustersDiffer,
    /// Members cannot fetch or restore the backup.
    Failures(Vec<Blocker>),
    /// No member makes progress.
    Stalled {
        /// For how long.
        minutes: u64,
        /// What the members wait for.
        blockers: Vec<Blocker>,
    },
}

impl RollbackCause {
    /// The cause in words, for the status of the restore.
    fn describe(&self, restore: &Restore) -> String {
        let join = |blockers: &[Blocker]| {
            let texts: Vec<_> = blockers.iter().map(ToString::to_string).collect();
            texts.join("; ")
        };
        match self {
            Self::Withdrawn => format!(
                "the EtcdRestore {} was deleted, or asks for something else by now",
                restore.name
            ),
            Self::ClustersDiffer => Blocker::RestoredClustersDiffer.to_string(),
            Self::Failures(blockers) => join(blockers),
            Self::Stalled { minutes, blockers } => {
                let stalled = Blocker::RestoreStalled { minutes: *minutes };
                format!("{stalled}: {}", join(blockers))
            }
        }
    }

    /// The cause as a blocker, where the restore is past its commit and cannot be rolled back. Failures of members are
    /// blockers already.
    pub fn into_blocker(self) -> Option<Blocker> {
        match self {
            Self::ClustersDiffer => Some(Blocker::RestoredClustersDiffer),
            Self::Stalled { minutes, .. } => Some(Blocker::RestoreStalled { minutes }),
            Self::Withdrawn | Self::Failures(_) => None,
        }
    }
}

/// Begins to roll a restore back: the old incarnation and cluster ID become the present ones, or a new incarnation if
/// no cluster had formed. Only before the commit: after it the old data may be gone.
pub fn begin(
    view: &ClusterView<'_>,
    persisted: &mut PersistedState,
    mut restore: Restore,
    cause: &RollbackCause,
) -> FlowDecision {
    let why = cause.describe(&restore);
    let what_follows = if returns_to_waiting(view.observed, &restore) {
        "the cluster waits for a restore again"
    } else {
        "the cluster comes back as it was"
    };
    let text = format!(
        "The EtcdRestore {} is rolled back, and {what_follows}: {why}",
        restore.name
    );
    restore.enter(Phase::RollingBack, view.observed.now);
    restore.message = Some(why);
    if restore.previous_incarnation > 0 {
        persisted.incarnation = restore.previous_incarnation;
        persisted.cluster = restore.previous_cluster;
    } else {
        // It never worked before: what was begun then is not gone on with, it begins anew.
        persisted.incarnation = persisted.last_incarnation + 1;
        persisted.last_incarnation = persisted.incarnation;
    }
    persisted.restore = Some(restore);
    FlowDecision::without_operation(Reason::Restoring, text)
}

/// Deletes the pods of the restore once the pod template has the old incarnation, and ends as `RolledBack` when none is
/// left except on lost nodes. A cluster that had not formed starts over, or waits for a restore again.
pub fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, mut restore: Restore) -> FlowDecision {
    let observed = view.observed;
    let why = restore.message.clone().unwrap_or_default();
    let text = format!("The EtcdRestore {} is rolled back: {why}", restore.name);
    if !is_template_new(observed, persisted.incarnation) {
        return FlowDecision::without_operation(Reason::Restoring, text);
    }
    if let Some(step) = delete_stale_pod(observed, persisted.incarnation) {
        return FlowDecision::without_operation(Reason::Restoring, text).with_step(step);
    }
    // Whoever waits for a permit that is never given again cannot start, wherever its node is.
    let going: Vec<_> = stale_pods(observed, persisted.incarnation)
        .filter(|(_, pod)| pod.node_lost_since.is_none())
        .map(|(ordinal, _)| Blocker::member(observed.name(ordinal), MemberProblem::PodTerminating))
        .collect();
    if !going.is_empty() {
        return FlowDecision::without_operation(Reason::Restoring, text).with_blockers(going);
    }
    // Nothing was ever started of what waits again, so there is nothing to start over.
    let is_new = restore.previous_incarnation == 0 && !returns_to_waiting(observed, &restore);
    restore.enter(Phase::RolledBack, observed.now);
    persisted.restore = Some(restore);
    if is_new {
        return FlowDecision::with_operation(Operation::StartOver, Reason::Bootstrapping, text);
    }
    FlowDecision::without_operation(Reason::Restoring, text)
}
