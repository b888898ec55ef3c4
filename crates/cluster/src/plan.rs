//! What to do next about one cluster: from what was seen to at most one step. Pure: the same world gives the same plan.
//!
//! Passes are asked in a fixed order, and the first that has something to say is heard. A pass never sends anything:
//! it says which intent must stand in the status, and which single step may follow once it does. What cannot be seen
//! counts as unsafe.

mod adopt;
mod alarms;
mod await_restore;
mod bootstrap;
mod bootstrap_retry;
mod cluster_view;
mod corrupt;
mod diagnose;
mod evidence;
mod formed;
mod grants;
mod join;
mod layout;
mod own_certificate;
mod remove;
mod replace;
mod replace_request;
mod requeue;
mod restore;
mod rollout;
mod safety;
mod scale;
mod start_over;
#[cfg(test)]
mod tests;
mod unknown_membership;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_api::contract::Permit;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::status::Alarm;
use etcd_operator_etcd::version::{Minor, Version};

use crate::blocker::Blocker;
use crate::desired::Size;
use crate::observed_state::{ObservedCluster, Ordinal};
use crate::pending_operation::{Operation, PendingOperation};
use crate::persisted_state::{PersistedState, Restore};

pub use bootstrap::has_other_spec_hash;
pub use cluster_view::{ClusterView, Unreachable, majority};
pub use evidence::{Evidence, evidence};
pub use layout::{FetchContainer, ObjectLayout, TemplateChange};
pub use restore::member_restore_statuses;
pub use rollout::downgrade::{
    NotLowered, cluster_not_lowered, is_previous_minor, is_template_below, must_stay, not_lowered,
};
pub use rollout::{
    BackupRequest, DEFAULT_QUOTA, Departure, OtherVoters, PendingCause, RECONNECTED_AFTER, RolloutState,
    is_incomplete, is_mixed, is_next_minor, is_template_behind, left_first, member_versions,
    needs_cluster_version, outdated_pods, restarting_member, stuck_pods, unschedulable_member, version_path,
};

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is to be known from now on; the intent of the step is part of it.
    pub persisted: PersistedState,
    /// The shape of the objects; none leaves all objects as they are.
    pub layout: Option<ObjectLayout>,
    /// The one step, to be taken once `persisted` is stored.
    pub step: Option<Step>,
    /// What the operator does or waits for, in words.
    pub explanation: Explanation,
    /// When to look again, if nothing happens before.
    pub requeue_after: Duration,
    /// How far the current spec has come to the members.
    pub rollout: RolloutState,
    /// Whether the pod template changes only if the API server would create its pods.
    pub needs_dry_run: bool,
    /// Places at which this process takes over what another one began, until their pods have been touched.
    pub unfenced: BTreeSet<Ordinal>,
}

/// One step. Each is fenced by what it names.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Touch pods that wait, so that a permit of a former leader that is on its way is refused.
    FencePods(Vec<PodRef>),
    /// Give permits to waiting processes.
    Permit(Vec<(PodRef, Permit)>),
    /// Add a member to etcd's membership.
    Add {
        /// Its place.
        ordinal: Ordinal,
        /// Whether it is to follow only, at first.
        learner: bool,
    },
    /// Make a learner a voter.
    Promote {
        /// Its place.
        ordinal: Ordinal,
        /// Its ID.
        id: MemberId,
    },
    /// Hand leadership on.
    MoveLeader {
        /// Who leads.
        from: Ordinal,
        /// Who shall.
        to: MemberId,
    },
    /// Take a member out of etcd's membership.
    Remove {
        /// Its place, if it is one of the cluster's.
        ordinal: Option<Ordinal>,
        /// Its ID.
        id: MemberId,
    },
    /// Delete a pod.
    DeletePod {
        /// Which one.
        pod: PodRef,
        /// How much time it has.
        grace_period: GracePeriod,
    },
    /// Let a member restart with the current pod template.
    RestartPod {
        /// Its pod.
        pod: PodRef,
        /// The other voters, all of which must serve right before.
        others: OtherVoters,
        /// How the pod goes.
        departure: Departure,
        /// The minor version of the pod template, if that is lower than the one that the member runs.
        lowered_to: Option<Minor>,
    },
    /// Delete a pod in which etcd does not run, exactly as it was seen.
    DeleteStoppedPod {
        /// Which one.
        pod: PodRef,
        /// The version of the object that was seen.
        resource_version: String,
    },
    /// Request the backup that comes before another minor version.
    RequestBackup(BackupRequest),
    /// Make etcd lower the cluster version and the version of each member's files.
    EnableDowngrade {
        /// A version of the minor version below.
        target: Version,
    },
    /// Make etcd forget a downgrade.
    CancelDowngrade {
        /// The ordinal of a member that says that one is enabled.
        ordinal: Ordinal,
    },
    /// Take back an alarm of a member that is no more.
    Disarm(Alarm),
    /// Delete a volume claim and the data on it.
    DeleteClaim {
        /// Its place.
        ordinal: Ordinal,
        /// Its UID.
        uid: String,
    },
}

/// A pod as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its place.
    pub ordinal: Ordinal,
    /// Its UID.
    pub uid: String,
}

/// How much time a pod has that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePeriod {
    /// As much as its own spec gives.
    PodDefault,
    /// A moment: its data are given up, or kept as they are. A leader would otherwise wait for one to take its place, while all
    /// others go as well.
    OneSecond,
    /// None: its node, which is gone, is not waited for.
    Zero,
}

impl GracePeriod {
    /// What is left of the usual one where a node may be gone.
    fn zero_if(is_lost: bool) -> Self {
        if is_lost { Self::Zero } else { Self::PodDefault }
    }

    /// Seconds, if not its own spec decides.
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::PodDefault => None,
            Self::OneSecond => Some(1),
            Self::Zero => Some(0),
        }
    }
}

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
    /// It has no pods, as asked for.
    Hibernated,
    /// It comes into being.
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

/// What a pass has to say.
#[derive(Debug)]
struct FlowDecision {
    operation: Option<Operation>,
    step: Option<Step>,
    explanation: Explanation,
}

impl FlowDecision {
    /// Go by this intent, and take no step yet.
    fn with_operation(operation: Operation, reason: Reason, text: impl Into<String>) -> Self {
        Self {
            operation: Some(operation),
            step: None,
            explanation: Explanation::new(reason, text),
        }
    }

    /// Nothing is under way, and nothing is to be begun.
    fn without_operation(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            operation: None,
            step: None,
            explanation: Explanation::new(reason, text),
        }
    }

    /// With this step.
    fn with_step(mut self, step: Step) -> Self {
        self.step = Some(step);
        self
    }

    /// With these blockers.
    fn with_blockers(mut self, blockers: Vec<Blocker>) -> Self {
        self.explanation.blockers = blockers;
        self
    }
}

impl Explanation {
    fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
            blockers: Vec::new(),
        }
    }
}

impl Plan {
    /// The same for a cluster whose spec is refused: it is looked at, and no more.
    #[must_use]
    pub fn for_refused_spec(mut self) -> Self {
        if self.explanation.reason == Reason::Paused {
            self.explanation.reason = Reason::Invalid;
            "The spec is refused, and nothing is done before it is corrected. See the condition Accepted."
                .clone_into(&mut self.explanation.text);
        }
        self
    }

    /// The same once the member that it adds has this ID.
    #[must_use]
    pub fn with_added_member(mut self, id: MemberId) -> Self {
        if let Some(PendingOperation {
            operation: Operation::Join(join),
            ..
        }) = &mut self.persisted.pending
        {
            join.id = Some(id);
        }
        self
    }
}

/// What to do next.
pub fn plan(observed: &ObservedCluster) -> Plan {
    let wanted_size = observed.desired.size;
    let frozen = restore::with_restore_size(observed).or_else(|| rollout::with_surge_size(observed));
    let observed = frozen.as_ref().unwrap_or(observed);
    let view = ClusterView::new(observed);
    let mut persisted = view.refresh_persisted_state();
    let decision = match decide(&view, &mut persisted, wanted_size) {
        Some(decision) => decision,
        None => FlowDecision {
            operation: persisted.pending.clone().map(|pending| pending.operation),
            ..FlowDecision::without_operation(
                Reason::Paused,
                "The cluster is paused: nothing is done about it.",
            )
        },
    };
    // A restore has an eye on alarms of its own.
    let is_restored = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let decision = if is_restored {
        decision
    } else {
        alarms::add_alarm_blockers(observed, decision)
    };
    let decision = own_certificate::add_certificate_blocker(observed, decision);
    let decision = rollout::await_restarting_member(&view, &persisted, decision);
    let is_hands_off = decision.explanation.reason == Reason::Paused || persisted.unknown_step.is_some();
    let FlowDecision {
        operation,
        step,
        explanation,
    } = decision;
    let owner = |operation| PendingOperation {
        instance: observed.instance.clone(),
        incarnation: persisted.incarnation,
        operation,
    };
    if is_hands_off {
        persisted.pending.clone_from(&observed.persisted.pending);
    } else {
        persisted.pending = operation.map(owner);
        rollout::record_step(&view, &mut persisted, step.as_ref());
    }
    let unfenced = find_unfenced(observed, &persisted);
    let (step, text) = match fence_step(observed, &unfenced) {
        Some(step) if !is_hands_off => (
            Some(step),
            "This process takes over what another one began.".to_owned(),
        ),
        _ => (step, explanation.text.clone()),
    };
    let rollout = rollout::state(&view, &persisted);
    let requeue_after =
        requeue::requeue_after(observed, &persisted, explanation.reason, step.is_some(), &rollout);
    let layout = (!is_hands_off).then(|| ObjectLayout::new(&view, &persisted));
    let moves_template = layout.as_ref().is_some_and(ObjectLayout::may_update_template);
    Plan {
        needs_dry_run: moves_template && persisted.has_formed() && rollout::needs_dry_run(&view, &persisted),
        layout,
        rollout,
        persisted,
        step,
        explanation: Explanation { text, ..explanation },
        requeue_after,
        unfenced,
    }
}

/// Where this process takes over what another one began, and has not done so yet. Whoever is not seen to run there may
/// be about to get a permit.
fn find_unfenced(observed: &ObservedCluster, persisted: &PersistedState) -> BTreeSet<Ordinal> {
    let mut ordinals = observed.unfenced.clone();
    if let (Some(before), Some(now)) = (&observed.persisted.pending, &persisted.pending)
        && before.instance != now.instance
    {
        ordinals.extend(before.operation.ordinals());
    }
    ordinals.retain(|ordinal| {
        let observed_member = observed.member(*ordinal);
        observed_member.pod.is_some() && observed_member.status().is_none()
    });
    ordinals
}

/// Before anything else every such pod is touched.
fn fence_step(observed: &ObservedCluster, unfenced: &BTreeSet<Ordinal>) -> Option<Step> {
    let pods = unfenced.iter().filter_map(|ordinal| {
        let uid = observed.member(*ordinal).pod.as_ref()?.uid.clone();
        Some(PodRef {
            ordinal: *ordinal,
            uid,
        })
    });
    let pods: Vec<_> = pods.collect();
    (!pods.is_empty()).then_some(Step::FencePods(pods))
}

/// The passes in their order; none when the cluster is to be left alone.
fn decide(view: &ClusterView<'_>, persisted: &mut PersistedState, wanted_size: Size) -> Option<FlowDecision> {
    let observed = view.observed;
    if let Some(kind) = &persisted.unknown_step {
        let text = format!(
            "The status holds a step '{kind}' that this version of the operator does not know: it waits for one that does."
        );
        return Some(FlowDecision::without_operation(Reason::Blocked, text));
    }
    if observed.desired.paused {
        return None;
    }
    if let Some(decision) = restore::decide(view, persisted, wanted_size) {
        return Some(decision);
    }
    if !persisted.has_formed() {
        return Some(bootstrap::decide(view, persisted));
    }
    let decision = formed::decide(view, persisted);
    Some(match view.known() {
        Some(known) => rollout::downgrade::before_join(view, known, decision),
        None => decision,
    })
}
