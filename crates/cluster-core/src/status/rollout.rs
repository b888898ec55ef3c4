//! How far the current spec has come to the members, in the condition RolledOut and in Events.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::cluster::{MemberStatus, RefusedStep, RolloutMember};
use etcd_operator_api::condition::{self, ConditionType, Finding, Truth};
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::severity::Severity;
use etcd_operator_etcd_types::policy::LOWEST_DOWNGRADE;
use etcd_operator_etcd_types::version::{Minor, Version};

use super::inputs::StatusInputs;
use super::step_failure;
use super::text::{MAX_CHARS, Transition, sentence};
use crate::blocker::{Blocker, BlockerReason, root_cause};
use crate::build::PendingChange;
use crate::observed_state::Pod;
use crate::persisted_state::VersionPath;
use crate::plan::{
    ClusterView, PendingCause, Plan, Reason, RolloutState, Step, outdated_pods, unschedulable_member,
    version_path,
};

/// The reason while the spec has changes that no member runs, and members are not restarted yet.
pub const PENDING: &str = "Pending";
/// The reason while members are restarted one by one.
const ROLLING_OUT: &str = "RollingOut";
/// The reason while a restarted member makes no progress.
const STALLED: &str = "Stalled";
/// The reason while the user must act, or the API server refuses the next step.
const BLOCKED: &str = "Blocked";

/// At most this much of what others report is shown.
const MAX_QUOTE_CHARS: usize = 300;

/// Whether every member runs the current spec. `refused` is the API server's refusal of the next step.
pub fn finding(
    view: &ClusterView<'_>,
    plan: &Plan,
    inputs: &StatusInputs<'_>,
    refused: Option<&RefusedStep>,
) -> Finding {
    let is_rollout_step = matches!(
        plan.step,
        Some(Step::RestartPod { .. } | Step::DeleteStoppedPod { .. })
    );
    let (status, reason, message) = match (pending_text(view, plan, inputs), refused) {
        (None, _) => (
            Truth::True,
            "UpToDate",
            "Every member runs the current spec.".to_owned(),
        ),
        (Some(text), Some(refused)) if is_rollout_step => (
            Truth::False,
            BLOCKED,
            format!("{text} {}", step_failure::describe(refused)),
        ),
        (Some(text), _) => (Truth::False, reason(&plan.rollout), text),
    };
    Finding {
        type_: ConditionType::RolledOut,
        status,
        reason,
        message,
    }
}

/// The condition Upgrading, while the version changes; `None` if it does not.
pub fn upgrading(view: &ClusterView<'_>, plan: &Plan) -> Option<Finding> {
    target_version(view, plan)?;
    Some(Finding {
        type_: ConditionType::Upgrading,
        status: Truth::True,
        reason: reason(&plan.rollout),
        message: format!("etcd {}.", describe_path(view, plan)?),
    })
}

/// The reason of the condition Upgrading; of RolledOut, too, while changes are pending and the API server does not
/// refuse the step. It is never used for a complete rollout.
fn reason(rollout: &RolloutState) -> &'static str {
    match rollout {
        RolloutState::Complete | RolloutState::Held | RolloutState::Pending(_) => PENDING,
        RolloutState::Paused => "Paused",
        RolloutState::Blocked(_) => BLOCKED,
        RolloutState::OnDelete => "OnDelete",
        RolloutState::RollingOut => ROLLING_OUT,
        RolloutState::Stalled { .. } => STALLED,
    }
}

/// Whether the rollout goes on only if the user acts.
pub fn needs_user(rollout: &RolloutState) -> bool {
    match rollout {
        RolloutState::Held | RolloutState::Blocked(_) | RolloutState::Stalled { .. } => true,
        RolloutState::Complete
        | RolloutState::Paused
        | RolloutState::Pending(_)
        | RolloutState::OnDelete
        | RolloutState::RollingOut => false,
    }
}

/// Which changes of the spec not every member runs, and what that waits for; `None` if every member runs the spec.
pub fn pending_text(view: &ClusterView<'_>, plan: &Plan, inputs: &StatusInputs<'_>) -> Option<String> {
    let observed = view.observed;
    let changes = describe_changes(view, plan, inputs);
    let outdated: Vec<_> = outdated_pods(view)
        .map(|(ordinal, _)| observed.name(ordinal))
        .collect();
    Some(match &plan.rollout {
        RolloutState::Complete => return None,
        RolloutState::Held => format!(
            "{changes}: the change was pending when an operator took over that rolls changes out, so it waits for your word. Edit the spec, or annotate this EtcdCluster with {ANNOTATION_RESTART} and any value."
        ),
        RolloutState::Paused if observed.desired.paused => {
            format!("{changes}: the cluster is paused.")
        }
        RolloutState::Paused => {
            format!(
                "{changes}: spec.updates.strategy is Paused. Pods that are re-created meanwhile take the template that the StatefulSet has."
            )
        }
        RolloutState::Blocked(blocker @ Blocker::ImageNotUsable { .. }) => {
            let hint = intermediate_hint(view).unwrap_or_default();
            format!(
                "{changes}: {blocker}. It is tried again at once after an edit, else after at most five minutes, if the members are healthy and fewer clusters roll out than rollouts.maxConcurrent of the Helm chart allows.{hint}"
            )
        }
        RolloutState::Blocked(blocker) => format!("{changes}: {blocker}."),
        RolloutState::Pending(PendingCause::Hibernated) => {
            format!("{changes}: the members take it after the cluster has resumed.")
        }
        RolloutState::Pending(PendingCause::Members) => {
            format!("{changes}: waiting for every member to be healthy and for other operations to end.")
        }
        RolloutState::Pending(PendingCause::Authentication) => {
            format!("{changes}: waiting for a member to tell whether authentication is enabled.")
        }
        RolloutState::Pending(PendingCause::ClusterVersion) => {
            format!(
                "{changes}: waiting for etcd to raise the version of the cluster to that of its members, which it does within seconds."
            )
        }
        RolloutState::Pending(PendingCause::StorageVersion) => {
            format!(
                "{changes}: waiting for every member to store its data in the format of the version that it runs."
            )
        }
        RolloutState::Pending(PendingCause::LogSnapshot(snapshot)) => format!(
            "{changes}: waiting until every member has taken a snapshot of its raft log: etcd {} cannot read all entries that older versions wrote to it. {} entries are left to be written.",
            observed.wanted.version, snapshot.missing
        ),
        RolloutState::Pending(PendingCause::DowngradeEnabled) => format!(
            "{changes}: waiting for the end of a downgrade that is enabled in etcd and that the spec does not ask for."
        ),
        RolloutState::Pending(PendingCause::LowerClusterVersion) => format!(
            "{changes}: waiting for etcd to lower the version of the cluster, which it does within seconds once a downgrade is enabled and every member answers."
        ),
        RolloutState::Pending(PendingCause::LowerStorageVersion { member }) => format!(
            "{changes}: waiting for {member} to lower the version of its files, which it does within seconds."
        ),
        RolloutState::Pending(PendingCause::OtherClusters) => {
            format!("{changes}: waiting for the rollouts of other clusters, as only so many run at once.")
        }
        RolloutState::Pending(PendingCause::Backup { name, message }) => {
            let says = message.as_ref().map_or_else(String::new, |message| {
                let message = bounded(message.trim_end_matches('.'), MAX_QUOTE_CHARS);
                format!(" It reports: {message}.")
            });
            format!(
                "{changes}: waiting for a verified backup of EtcdBackup {name}, which comes before another minor version.{says}"
            )
        }
        RolloutState::Pending(PendingCause::ImageCheck { image, waits }) => {
            let waits = waits
                .as_ref()
                .map_or_else(String::new, |waits| format!(" It waits: {waits}."));
            format!(
                "{changes}: a Job tries the image {image} with `etcd --version` before the first member is restarted.{waits}"
            )
        }
        RolloutState::Pending(PendingCause::DryRun { message }) => format!(
            "{changes}: waiting for the API server to say whether it accepts the changed pods, which it could not: {}.",
            bounded(message.trim_end_matches('.'), MAX_QUOTE_CHARS)
        ),
        RolloutState::OnDelete if outdated.is_empty() => {
            let rollout = plan.persisted.rollout.as_ref();
            match rollout.and_then(|rollout| rollout.current.as_ref()) {
                Some(current) => {
                    let member = observed.name(current.ordinal);
                    format!("{member} restarts with the current pod template. Every other member has it.")
                }
                None => format!("{changes}: the pod template changes now."),
            }
        }
        RolloutState::OnDelete => format!(
            "{} have an earlier pod template. Each takes the current one when its pod is deleted: spec.updates.strategy is OnDelete.",
            outdated.join(", ")
        ),
        RolloutState::RollingOut => {
            let path = describe_path(view, plan).map(|path| format!(" etcd {path}."));
            let (updated, all) = count_updated(view);
            let unschedulable = unschedulable_member(view, &plan.persisted);
            let unschedulable = unschedulable.map(|(member, problem)| format!("{member} {problem}"));
            // What the next restart waits for.
            let explanation = &plan.explanation;
            let waits = || {
                let is_waiting = explanation.reason == Reason::RollingOut && plan.step.is_none();
                // A pod may find no node for a moment.
                let cause = root_cause(&explanation.blockers)
                    .filter(|cause| cause.reason() != BlockerReason::PodUnschedulable);
                let cause = cause.map(ToString::to_string);
                is_waiting.then(|| cause.unwrap_or_else(|| explanation.text.clone()))
            };
            let words = unschedulable.or_else(waits);
            let words = words.map(|words| format!(" {}", sentence(&words, MAX_CHARS)));
            format!(
                "{updated} of {all} members have the current pod template.{}{}",
                path.unwrap_or_default(),
                words.unwrap_or_default(),
            )
        }
        RolloutState::Stalled { member, problem } => format!(
            "{member} {problem}. No other member is restarted. The rollout goes on when it recovers, or when the spec is corrected or set back.{}",
            intermediate_hint(view).unwrap_or_default()
        ),
    })
}

/// Which chart value names another intermediate version; none if the next version is the last one.
fn intermediate_hint(view: &ClusterView<'_>) -> Option<String> {
    let wanted = &view.observed.wanted;
    (!wanted.later_versions.is_empty()).then(|| {
        format!(
            " etcd {} is an intermediate version on the way to {}: rollouts.intermediateVersions of the Helm chart names another one.",
            wanted.version,
            wanted.target()
        )
    })
}

/// How many pods have the wanted spec hash and are not being deleted, of how many.
pub fn count_updated(view: &ClusterView<'_>) -> (usize, usize) {
    let observed = view.observed;
    let wanted = observed.wanted.spec_hash.as_str();
    let pods = observed.members.values().filter_map(|member| member.pod.as_ref());
    let is_updated = |pod: &Pod| pod.deleting.is_none() && pod.spec_hash.as_deref() == Some(wanted);
    pods.fold((0, 0), |(updated, all), pod| {
        (updated + usize::from(is_updated(pod)), all + 1)
    })
}

/// The changed settings, as far as they were compared, and the versions on the way.
fn describe_changes(view: &ClusterView<'_>, plan: &Plan, inputs: &StatusInputs<'_>) -> String {
    let version = describe_path(view, plan)
        .map(|path| format!(" (etcd {path})"))
        .unwrap_or_default();
    match &inputs.pending {
        Some(PendingChange::Spec(settings)) if !settings.is_empty() => {
            format!("Pending changes of {}{version}", settings.join(", "))
        }
        _ => format!("Pending changes of the spec{version}"),
    }
}

/// The version that the spec asks for, while members change to it. `None` if they run it, or if the change is held,
/// blocked or waits for the end of hibernation.
pub fn target_version<'a>(view: &ClusterView<'a>, plan: &Plan) -> Option<&'a Version> {
    let wanted = &view.observed.wanted;
    let target = wanted.target();
    if plan.rollout == RolloutState::Held || wanted.version_blocker.is_some() {
        return None;
    }
    let is_idle = matches!(
        plan.rollout,
        RolloutState::Complete | RolloutState::Pending(PendingCause::Hibernated)
    );
    let is_changing = !is_idle && path(view, plan).is_some();
    is_changing.then_some(target)
}

/// The same as text for the status, which keeps its text while no member answers; empty if there is none.
pub fn target_text(view: &ClusterView<'_>, plan: &Plan, before: String) -> String {
    match target_version(view, plan) {
        Some(_) if view.oldest_running_version().is_none() => before,
        target => target.map_or_else(String::new, ToString::to_string),
    }
}

/// The oldest version that runs; while the version changes, the one that members leave and the one that the spec asks
/// for. The text before is kept while no member answers.
pub fn version_text(view: &ClusterView<'_>, plan: &Plan, before: Option<String>) -> Option<String> {
    let Some(oldest) = view.oldest_running_version() else {
        return before;
    };
    let left = path(view, plan).and_then(|path| path.left().cloned());
    Some(match target_version(view, plan).zip(left) {
        Some((target, left)) => format!("{left}→{target}"),
        None => oldest.to_string(),
    })
}

/// The versions from the one before the change to the one that the spec asks for. `None` while the version does not
/// change.
fn path(view: &ClusterView<'_>, plan: &Plan) -> Option<VersionPath> {
    match &plan.persisted.rollout {
        Some(rollout) => rollout.path.clone(),
        None => version_path(view, None),
    }
}

fn describe_path(view: &ClusterView<'_>, plan: &Plan) -> Option<String> {
    path(view, plan).map(|path| path.to_string())
}

/// What is done or waited for, with the versions on the way where that does not name them.
pub fn with_path(view: &ClusterView<'_>, plan: &Plan, text: String) -> String {
    match describe_path(view, plan).filter(|_| target_version(view, plan).is_some()) {
        Some(path) if plan.explanation.reason != Reason::Converged => format!("{text} etcd {path}."),
        _ => text,
    }
}

/// Events about a rollout that has started, stalled or completed, a member that serves again, and an upgrade that can
/// no longer be reversed.
pub fn transitions(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Transition> {
    let rolled_out = |status: &EtcdClusterStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        condition::find(conditions, ConditionType::RolledOut).cloned()
    };
    let mut turns: Vec<_> = member_updated(before, after).into_iter().collect();
    turns.extend(point_of_no_return(before, after));
    let (Some(was), Some(is)) = (rolled_out(before), rolled_out(after)) else {
        return turns;
    };
    let reason = |condition: &condition::Condition| condition.reason.clone().unwrap_or_default();
    if reason(&was) == reason(&is) {
        return turns;
    }
    let message = is.message.clone().unwrap_or_default();
    match reason(&is).as_str() {
        ROLLING_OUT => turns.push((Severity::Normal, "RolloutStarted", message)),
        STALLED => turns.push((Severity::Warning, "RolloutStalled", message)),
        _ if is.status == Truth::True.as_str() => {
            turns.push((Severity::Normal, "RolloutCompleted", message));
        }
        _ => {}
    }
    turns
}

/// The Event about the last member of the lower minor version, which is about to be restarted or gone.
fn point_of_no_return(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let reversible =
        |status: &EtcdClusterStatus| status.rollout.as_ref().and_then(|rollout| rollout.reversible);
    if reversible(before) == Some(false) || reversible(after) != Some(false) {
        return None;
    }
    let left = before.current_version.parse().ok();
    let conditions = after.conditions.as_deref().unwrap_or_default();
    let is_ephemeral = condition::find(conditions, ConditionType::StorageEphemeral)
        .is_some_and(|ephemeral| ephemeral.status == Truth::True.as_str());
    let can_downgrade =
        !is_ephemeral && left.is_some_and(|left: Version| Minor::of(&left) >= Some(LOWEST_DOWNGRADE));
    let way_back = if can_downgrade {
        "once all members run the newer one, set spec.updates.allowDowngrade to true with it, and etcd is downgraded"
    } else {
        "restore a backup that was made before the upgrade into a new EtcdCluster"
    };
    let text = format!(
        "The last member of the lower minor version is about to be restarted, or is gone. Without it setting spec.version back alone does not return to that version: {way_back}."
    );
    Some((Severity::Normal, "UpgradeIrreversible", text))
}

/// The Event about the restarted member that serves again in another pod.
fn member_updated(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let (was, is) = (before.rollout.as_ref()?, after.rollout.as_ref()?);
    let restarted = was.current.as_ref()?;
    let is_same = |current: &RolloutMember| current.pod_uid == restarted.pod_uid;
    if is.current.as_ref().is_some_and(is_same) {
        return None;
    }
    // Where the change was set back before its pod went, it was not restarted.
    let is_restarted = |member: &&MemberStatus| {
        let pod = member.pod_uid.as_ref();
        member.healthy && pod.is_some_and(|pod| *pod != restarted.pod_uid)
    };
    let mut members = after.member_status.iter().flatten();
    let member = members.find(|member| member.name == restarted.name);
    let member = member.filter(is_restarted)?;
    let times = is.progressed_at.as_ref().zip(restarted.left_at.as_ref());
    let text = match times {
        Some((end, left)) => format!(
            "{} serves again, {} s after its pod was deleted.",
            member.name,
            end.0.duration_since(left.0).as_secs()
        ),
        // No operator saw it go.
        None => format!("{} serves again.", member.name),
    };
    Some((Severity::Normal, "MemberUpdated", text))
}
