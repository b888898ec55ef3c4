//! What to do next about one cluster: from what was seen to at most one step. Pure: the same state gives the same plan.
//!
//! Flows are asked in a fixed order, and the first that has something to say is heard: here before the cluster has formed,
//! after that in `formed`. Nothing else calls a flow. A flow never sends anything: it says which operation must stand in the
//! status, and which single step may follow once it does. What cannot be seen counts as unsafe.

mod adopt;
mod alarms;
mod await_restore;
mod bootstrap;
mod bootstrap_retry;
mod cluster_view;
mod corrected_restore;
mod corrupt;
mod decision;
mod diagnose;
mod discard;
mod evidence;
mod formed;
mod grants;
mod join;
mod kept_volume;
mod layout;
mod own_certificate;
mod quorum;
mod refresh;
mod removal;
mod remove;
mod replace;
mod replace_request;
mod requeue;
mod restore;
mod restore_request;
mod resume;
mod rollout;
mod safety;
mod scale;
mod start_over;
mod step;
#[cfg(test)]
mod tests;
mod unknown_membership;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_etcd_types::id::MemberId;

use crate::desired::Size;
use crate::observed_state::{ObservedCluster, Ordinal};
use crate::pending_operation::{Operation, PendingOperation};
use crate::persisted_state::{PersistedState, Restore};
use decision::FlowDecision;
use refresh::refresh_persisted_state;
use rollout::{gate, progress, state, surge, under_way};
use start_over::StartOver;

pub use cluster_view::{ClusterView, Unreachable};
pub use decision::{Explanation, Reason};
pub use evidence::{Evidence, evidence};
pub use layout::{ObjectLayout, TemplateChange};
pub use quorum::majority;
pub use restore::member_restore_statuses;
pub use rollout::downgrade::{NotLowered, cluster_not_lowered, must_stay, not_lowered};
pub use rollout::image_check::{changes_image, failure as image_failure, is_resting as is_image_resting};
pub use rollout::outdated::outdated_pods;
pub use rollout::pending_cause::PendingCause;
pub use rollout::restarting::restarting_member;
pub use rollout::stalled::unschedulable_member;
pub use rollout::state::{RolloutState, is_incomplete};
pub use rollout::stuck::stuck_pods;
pub use rollout::version_path::version_path;
pub use rollout::versions::{
    is_mixed, is_next_minor, is_previous_minor, is_template_behind, is_template_below, member_versions,
    needs_cluster_version, versions_before_restart,
};
pub use step::{BackupRequest, Departure, GracePeriod, OtherVoters, PodRef, Step};

/// What a reconcile does: what it persists, how the objects are laid out, and at most one step.
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
    /// Whether the pod template changes, or a backup is requested first, only if the API server would create the changed pods.
    pub needs_dry_run: bool,
    /// Whether the pod template changes, a backup is requested or a downgrade enabled first, only if its etcd image can be used.
    pub needs_image_check: bool,
    /// Whether the pod template changes to a newer minor version that no member runs yet.
    pub leaves_minor: bool,
    /// Places at which this process takes over what another one began, until their pods have been touched.
    pub unfenced: BTreeSet<Ordinal>,
}

impl Plan {
    /// The plan for a cluster whose spec is refused, and which is observed as if it were paused: it says so instead of
    /// that.
    #[must_use]
    pub fn for_refused_spec(mut self) -> Self {
        if self.explanation.reason == Reason::Paused {
            self.explanation.reason = Reason::Invalid;
            "The spec is refused, and nothing is done before it is corrected. See the condition Accepted."
                .clone_into(&mut self.explanation.text);
        }
        self
    }

    /// Whether the rollout does something now, so that the cluster keeps its slot and others wait for it.
    pub fn is_rollout_under_way(&self, observed: &ObservedCluster) -> bool {
        let moves_template = self
            .layout
            .as_ref()
            .is_some_and(ObjectLayout::may_update_template);
        let acts = moves_template || self.step.is_some();
        under_way::is_under_way(observed, &self.persisted, &self.rollout, acts)
    }

    /// The plan with the ID that etcd gave to the member that was added. Other plans stay as they are.
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

/// Decides about one cluster: what to persist, what its objects are to be, and at most one step.
pub fn plan(observed: &ObservedCluster) -> Plan {
    let wanted_size = observed.desired.size;
    let frozen = restore::with_restore_size(observed).or_else(|| surge::with_surge_size(observed));
    let observed = frozen.as_ref().unwrap_or(observed);
    let view = ClusterView::new(observed);
    let mut persisted = refresh_persisted_state(&view);
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
    let decision = rollout::restarting::await_restarting_member(&view, &persisted, decision);
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
        progress::record_step(&view, &mut persisted, step.as_ref());
    }
    let unfenced = find_unfenced(observed, &persisted);
    let (step, text) = match fence_step(observed, &unfenced) {
        Some(step) if !is_hands_off => (
            Some(step),
            "This process takes over what another one began.".to_owned(),
        ),
        _ => (step, explanation.text.clone()),
    };
    let rollout = state::state(&view, &persisted);
    let requeue_after =
        requeue::requeue_after(observed, &persisted, explanation.reason, step.is_some(), &rollout);
    let layout = (!is_hands_off).then(|| ObjectLayout::new(&view, &persisted));
    let moves_template = layout.as_ref().is_some_and(ObjectLayout::may_update_template);
    Plan {
        leaves_minor: moves_template && is_next_minor(&view),
        needs_image_check: layout.is_some()
            && persisted.has_formed()
            && gate::needs_image_check(&view, &persisted),
        needs_dry_run: layout.is_some() && persisted.has_formed() && gate::needs_dry_run(&view, &persisted),
        layout,
        rollout,
        persisted,
        step,
        explanation: Explanation { text, ..explanation },
        requeue_after,
        unfenced,
    }
}

/// Ordinals whose pod may still get a permit that a previous leader sends, because this process takes over its
/// operation and has not fenced the pod yet. A pod in which etcd answers needs no fencing.
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

/// The step that fences these pods, which comes before any other one. `None` if there are none.
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

/// Asks the flows in their order. `None` if the cluster is paused.
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
        return Some(form(view, persisted));
    }
    let decision = formed::decide(view, persisted);
    Some(match view.known() {
        Some(known) => rollout::downgrade::before_join(view, known, decision),
        None => decision,
    })
}

/// What to do before the cluster has formed.
fn form(view: &ClusterView<'_>, persisted: &mut PersistedState) -> FlowDecision {
    let operation = persisted
        .pending
        .as_ref()
        .map(|pending| pending.operation.clone());
    if let Some(known) = view.known() {
        return bootstrap::record_formation(view, persisted, known, operation.as_ref());
    }
    match operation {
        Some(Operation::Bootstrap(targets)) => bootstrap::start_members(view, persisted, targets),
        Some(Operation::StartOver) => match start_over::decide(view, persisted) {
            StartOver::Decision(decision) => decision,
            StartOver::Ready(targets) => bootstrap::start_members(view, persisted, targets),
        },
        Some(Operation::Discard(disk)) => {
            discard::discard(view, disk).unwrap_or_else(|| bootstrap::begin(view, persisted))
        }
        _ if view.observed.desired.size.get() == 0 => {
            FlowDecision::without_operation(Reason::Hibernated, "The size is 0 and nothing was ever started.")
        }
        _ => adopt::decide(view, persisted)
            .or_else(|| await_restore::decide(view, persisted))
            .unwrap_or_else(|| bootstrap::begin(view, persisted)),
    }
}
