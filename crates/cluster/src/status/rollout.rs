//! How far the current spec has come to the members, in the condition RolledOut and in Events.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::{self, ConditionType, Finding, Truth};
use etcd_operator_api::names::ANNOTATION_RESTART;
use etcd_operator_etcd::version::Version;
use etcd_operator_runtime::events::Severity;

use super::StatusInputs;
use super::events::Transition;
use crate::build::PendingChange;
use crate::plan::{ClusterView, PendingCause, Plan, RolloutState, outdated_pods};

/// The reason while the spec has changes that no member runs, and members are not restarted yet.
pub const PENDING: &str = "Pending";
/// The reason while members are restarted one by one.
const ROLLING_OUT: &str = "RollingOut";
/// The reason while a restarted member makes no progress.
const STALLED: &str = "Stalled";

/// Whether every member runs the current spec.
pub fn finding(view: &ClusterView<'_>, plan: &Plan, inputs: &StatusInputs<'_>) -> Finding {
    let (status, reason, message) = match pending_text(view, plan, inputs) {
        None => (
            Truth::True,
            "UpToDate",
            "Every member runs the current spec.".to_owned(),
        ),
        Some(text) => (Truth::False, reason(&plan.rollout), text),
    };
    Finding {
        type_: ConditionType::RolledOut,
        status,
        reason,
        message,
    }
}

/// That the version is changing, and through which versions; none if it is not.
pub fn upgrading(view: &ClusterView<'_>, plan: &Plan) -> Option<Finding> {
    target_version(view, plan)?;
    Some(Finding {
        type_: ConditionType::Upgrading,
        status: Truth::True,
        reason: reason(&plan.rollout),
        message: format!("etcd {}.", describe_path(view)?),
    })
}

fn reason(rollout: &RolloutState) -> &'static str {
    match rollout {
        RolloutState::Complete | RolloutState::Held | RolloutState::Pending(_) => PENDING,
        RolloutState::Paused => "Paused",
        RolloutState::Blocked(_) => "Blocked",
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

/// Which changes of the spec not every member runs, and what that waits for; none if there are none.
pub fn pending_text(view: &ClusterView<'_>, plan: &Plan, inputs: &StatusInputs<'_>) -> Option<String> {
    let observed = view.observed;
    let changes = describe_changes(view, inputs);
    let outdated: Vec<_> = outdated_pods(view)
        .map(|(ordinal, _)| observed.name(ordinal))
        .collect();
    let pods: Vec<_> = observed
        .members
        .values()
        .filter_map(|member| member.pod.as_ref())
        .collect();
    let going = pods.iter().filter(|pod| pod.deleting.is_some()).count();
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
        RolloutState::Pending(PendingCause::OtherClusters) => {
            format!("{changes}: waiting for the rollouts of other clusters, as only so many run at once.")
        }
        RolloutState::Pending(PendingCause::Backup { name }) => format!(
            "{changes}: waiting for a verified backup of EtcdBackup {name}, which comes before a newer minor version."
        ),
        RolloutState::OnDelete if outdated.is_empty() => {
            format!("{changes}: the pod template changes now.")
        }
        RolloutState::OnDelete => format!(
            "{} have an earlier pod template. Each takes the current one when its pod is deleted: spec.updates.strategy is OnDelete.",
            outdated.join(", ")
        ),
        RolloutState::RollingOut => {
            let path = describe_path(view).map(|path| format!(" etcd {path}."));
            format!(
                "{} of {} members have the current pod template.{}",
                pods.len().saturating_sub(outdated.len() + going),
                pods.len(),
                path.unwrap_or_default(),
            )
        }
        RolloutState::Stalled { member, problem } => format!(
            "{member} {problem}. No other member is restarted. The rollout goes on when it recovers, or when the spec is corrected or set back.{}",
            describe_intermediate(view).unwrap_or_default()
        ),
    })
}

/// How to take another intermediate version, where members are to run one that no user named.
fn describe_intermediate(view: &ClusterView<'_>) -> Option<String> {
    let wanted = &view.observed.wanted;
    (!wanted.later_versions.is_empty()).then(|| {
        format!(
            " etcd {} is an intermediate version on the way to {}: rollouts.intermediateVersions of the Helm chart names another one.",
            wanted.version,
            wanted.target()
        )
    })
}

/// The settings that differ, as far as they were compared.
fn describe_changes(view: &ClusterView<'_>, inputs: &StatusInputs<'_>) -> String {
    let version = describe_path(view)
        .map(|path| format!(" (etcd {path})"))
        .unwrap_or_default();
    match &inputs.pending {
        Some(PendingChange::Spec(settings)) if !settings.is_empty() => {
            format!("Pending changes of {}{version}", settings.join(", "))
        }
        _ => format!("Pending changes of the spec{version}"),
    }
}

/// The version that is rolled out while another one runs.
pub fn target_version<'a>(view: &ClusterView<'a>, plan: &Plan) -> Option<&'a Version> {
    let wanted = &view.observed.wanted;
    let target = wanted.target();
    if plan.rollout == RolloutState::Held || wanted.version_blocker.is_some() {
        return None;
    }
    let is_another = view
        .oldest_running_version()
        .is_some_and(|running| running != target);
    (is_another && plan.rollout != RolloutState::Complete).then_some(target)
}

/// The lowest version that runs, and the one on the way to which it is. What was said stays while nobody answers.
pub fn version_text(view: &ClusterView<'_>, plan: &Plan, before: Option<String>) -> Option<String> {
    let Some(running) = view.oldest_running_version() else {
        return before;
    };
    Some(match target_version(view, plan) {
        Some(target) => format!("{running}→{target}"),
        None => running.to_string(),
    })
}

/// The versions that lead from what runs to what the spec asks for, where there are several.
fn describe_path(view: &ClusterView<'_>) -> Option<String> {
    let wanted = &view.observed.wanted;
    let running = view.oldest_running_version()?;
    let versions = [running, &wanted.version]
        .into_iter()
        .chain(&wanted.later_versions);
    let mut texts: Vec<_> = versions.map(ToString::to_string).collect();
    texts.dedup();
    (texts.len() > 1).then(|| texts.join(" → "))
}

/// The turns that a rollout takes.
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

/// The members of the lower minor version are about to be all gone.
fn point_of_no_return(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let reversible =
        |status: &EtcdClusterStatus| status.rollout.as_ref().and_then(|rollout| rollout.reversible);
    if reversible(before) == Some(false) || reversible(after) != Some(false) {
        return None;
    }
    let text = "The last member of the lower minor version is restarted or gone. From now on setting spec.version back does not return to it: restore a backup that was made before the upgrade into a new EtcdCluster.";
    Some((Severity::Normal, "UpgradeIrreversible", text.to_owned()))
}

/// The member that was restarted and serves again.
fn member_updated(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let (was, is) = (before.rollout.as_ref()?, after.rollout.as_ref()?);
    let restarted = was.current.as_ref()?;
    if is.current.as_ref() == Some(restarted) {
        return None;
    }
    let mut members = after.member_status.iter().flatten();
    members.find(|member| member.name == restarted.name && member.healthy)?;
    let seconds = is
        .progressed_at
        .as_ref()
        .zip(was.progressed_at.as_ref())
        .map(|(is, was)| is.0.duration_since(was.0).as_secs())?;
    let text = format!(
        "{} serves again, {seconds} s after its restart was decided.",
        restarted.name
    );
    Some((Severity::Normal, "MemberUpdated", text))
}
