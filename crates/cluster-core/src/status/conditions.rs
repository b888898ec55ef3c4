//! What is true of a cluster, as conditions.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::cluster::RefusedStep;
use etcd_operator_api::condition::{self, Condition, ConditionType, Finding, Readiness, Truth};
use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_api::refusal;
use etcd_operator_etcd_types::policy::{self, Verdict};
use etcd_operator_etcd_types::version::Version;
use jiff::SignedDuration;

use super::hibernation_exit::{HibernationExit, WAKING};
use super::inputs::StatusInputs;
use super::text::{blocked_by, sentence};
use super::{backups, events, rollout, step_failure};
use crate::blocker::{self, Blocker};
use crate::desired::Desired;
use crate::observed_state::{ObservedMember, Ordinal};
use crate::persisted_state::Restore;
use crate::plan::{ClusterView, PendingCause, Plan, Reason, RolloutState, majority, restarting_member};

/// The reason while the API server refuses the next step.
const STEP_REFUSED: &str = "StepRefused";
/// What there is to know of a cluster that is well and bears no failure.
const ONE_ALONE: &str =
    " One member has no redundancy: nobody can read or write while it is away, as was asked for.";
const TWO_ALONE: &str =
    " Two members have no redundancy: writes need both, so two bear no more failures than one.";

/// Conditions that follow from a valid spec and from the oldest version that runs; without one, from the version of the
/// spec.
pub fn spec_findings(desired: &Desired, running: Option<&Version>) -> Vec<Finding> {
    let mut accepted = refusal::accepted(&[]);
    if !desired.without_effect.is_empty() {
        accepted.message = format!(
            "The spec is valid. Without effect: {}.",
            desired.without_effect.join(", ")
        );
    }
    let mut findings = vec![accepted];
    let version = running.cloned().unwrap_or_else(|| desired.version(None));
    if let Verdict::Runs(faults) = policy::verdict(&version) {
        findings.push(match faults.first() {
            Some(gravest) => finding(
                ConditionType::VersionSupported,
                false,
                "BetterVersionExists",
                format!("etcd {version}: {gravest}."),
            ),
            None => finding(
                ConditionType::VersionSupported,
                true,
                "NoKnownFault",
                format!("etcd {version} has no fault that the operator knows of."),
            ),
        });
    }
    if desired.storage.is_ephemeral() {
        findings.push(finding(
            ConditionType::StorageEphemeral,
            true,
            "DataLivesWithPods",
            "The data of a member is lost with its pod, and all data with all pods. For data that outlives pods, create the cluster with storage: {size: 8Gi}.".to_owned(),
        ));
    }
    findings
}

/// Messages about members that keep the claim with the backups mounted from which they were restored. Their data live
/// with their pods, so these are not re-created after the restore.
fn mounted_backups(view: &ClusterView<'_>, plan: &Plan) -> Vec<String> {
    let observed = view.observed;
    if plan.persisted.restore.as_ref().is_some_and(Restore::is_active) {
        return Vec::new();
    }
    let describe = |(ordinal, member): (&Ordinal, &ObservedMember)| {
        let claim = member.pod.as_ref()?.fetch.as_ref()?.claim.as_ref()?;
        let id = observed.etcd_member(*ordinal)?.id;
        Some(format!(
            " Since its restore, the pod {} keeps the claim {claim} mounted, so that backups to it can fail. When at least two other members serve, annotate this EtcdCluster with {ANNOTATION_REPLACE} and the ID {id}: the member is then replaced.",
            observed.name(*ordinal),
        ))
    };
    observed.members.iter().filter_map(describe).collect()
}

/// The conditions of a cluster after a plan.
pub fn findings(
    view: &ClusterView<'_>,
    plan: &Plan,
    inputs: &StatusInputs<'_>,
    before_status: &EtcdClusterStatus,
) -> Vec<Finding> {
    let before = before_status.conditions.as_deref().unwrap_or_default();
    let observed = view.observed;
    let reason = plan.explanation.reason;
    // What is in the way is told in full where it belongs, and once.
    let (text, elsewhere) = if plan.explanation.blockers.is_empty() {
        let text = summarize(view, plan, inputs);
        (text.clone(), text)
    } else {
        let blocked_by = blocked_by(plan).join("; ");
        let text = sentence(&format!("{} {blocked_by}", plan.explanation.text), 2_000);
        (
            text,
            format!("{} See the condition Progressing.", plan.explanation.text),
        )
    };
    let is = |wanted: &[Reason]| wanted.contains(&reason);
    let works = is(&[
        Reason::Bootstrapping,
        Reason::Scaling,
        Reason::Recovering,
        Reason::RollingOut,
        Reason::Restoring,
    ]);
    let running = view.oldest_running_version();
    let mut findings = spec_findings(&observed.desired, running);
    if !inputs.refusals.is_empty() {
        findings.retain(|finding| finding.type_ != ConditionType::Accepted);
        findings.push(refusal::accepted(inputs.refusals));
    }
    if let Some(ephemeral) = findings
        .iter_mut()
        .find(|finding| finding.type_ == ConditionType::StorageEphemeral)
    {
        ephemeral.message.extend(mounted_backups(view, plan));
    }
    let mut add =
        |type_, is_true, reason, text: &str| findings.push(finding(type_, is_true, reason, text.to_owned()));

    let known = view.known().filter(|_| plan.persisted.has_formed());
    let voters = known.map_or_else(
        || {
            plan.persisted
                .members
                .values()
                .filter(|member| member.is_voter)
                .count()
        },
        |known| known.voters().count(),
    );
    // Between two steps the next member has no pod yet, and that is no end of it.
    let awaits_members =
        known.is_some() && is(&[Reason::Waiting]) && voters != usize::from(observed.desired.size.get());
    let healthy = known.map_or(0, |known| view.healthy_voters(known).len());
    let count = match known {
        Some(_) => format!("{healthy} of {voters} voters are well."),
        None => format!("Nobody can tell who the members are; {voters} voters were seen last."),
    };
    let is_available = known.is_some() && healthy >= majority(voters);
    let is_closed_to_clients = plan
        .persisted
        .restore
        .as_ref()
        .is_some_and(Restore::blocks_clients);
    // The operator cannot tell then, and the members may serve others, also where it is not known yet whether they have formed.
    let may_have_formed = plan.persisted.has_formed() || plan.persisted.pending.is_some();
    let is_unreachable = may_have_formed && is(&[Reason::MembersUnreachable, Reason::AuthenticationRequired]);
    match (is_available, plan.persisted.has_formed()) {
        _ if is_unreachable => {}
        _ if is_closed_to_clients => add(ConditionType::Available, false, "Restoring", &elsewhere),
        (true, _) => add(ConditionType::Available, true, "QuorumServes", &count),
        (false, true) => add(ConditionType::Available, false, "NoQuorum", &elsewhere),
        (false, false) => add(ConditionType::Available, false, "NotFormed", &elsewhere),
    }
    let is_told = matches!(&plan.rollout, RolloutState::Blocked(blocker) if plan.explanation.blockers.contains(blocker));
    let pending = match rollout::pending_text(view, plan, inputs) {
        Some(pending) if !is_told && !is(&[Reason::Converged, Reason::RollingOut]) => format!(" {pending}"),
        _ => String::new(),
    };
    let refused_step = step_failure::refused_step(inputs, before_status.plan.as_ref());
    let refused = refused_step
        .as_ref()
        .map(|refused| format!(" {}", step_failure::describe(refused)))
        .unwrap_or_default();
    if step_failure::is_crd_outdated(reason, inputs) {
        add(
            ConditionType::Progressing,
            false,
            step_failure::CRD_OUTDATED,
            step_failure::CRD_OUTDATED_MESSAGE,
        );
    } else {
        let text = format!("{text}{pending}{refused}");
        let reason = match plan.rollout {
            RolloutState::Complete => reason.as_str(),
            _ if reason == Reason::Converged => rollout::PENDING,
            _ => reason.as_str(),
        };
        add(ConditionType::Progressing, works, reason, &text);
    }
    add(
        ConditionType::Scaling,
        is(&[Reason::Scaling]) || awaits_members,
        reason.as_str(),
        &elsewhere,
    );
    add(
        ConditionType::Recovering,
        is(&[Reason::Recovering]),
        reason.as_str(),
        &elsewhere,
    );
    if plan.persisted.has_formed() && reason != Reason::Hibernated && !is_unreachable {
        let wanted = usize::from(observed.desired.size.get());
        let is_degraded = healthy < voters || voters < wanted || known.is_none();
        let why = if is_degraded { "MembersMissing" } else { "AllWell" };
        add(
            ConditionType::Degraded,
            is_degraded,
            why,
            &format!("{count} {wanted} are asked for."),
        );
        let at_risk = !is_available || (healthy == majority(voters) && voters.max(wanted) > 2);
        let (why, more) = match voters {
            _ if at_risk => ("NoneToSpare", ""),
            ..=1 => ("NoRedundancy", ONE_ALONE),
            2 => ("NoRedundancy", TWO_ALONE),
            _ => ("SomeToSpare", ""),
        };
        add(
            ConditionType::QuorumAtRisk,
            at_risk,
            why,
            &format!("{count}{more}"),
        );
    }
    // Who looks away or cannot see says nothing new about what was lost.
    // Nor who has stopped the members itself.
    let is_known = !is_closed_to_clients
        && !is_unreachable
        && !is(&[Reason::Paused, Reason::MembersUnreachable, Reason::Restoring]);
    let hibernation_exit = HibernationExit::detect(view, plan, before);
    let is_silent = is_known && is_majority_silent(view, plan, hibernation_exit);
    for (type_, wanted, is_seen) in [
        (ConditionType::QuorumLost, Reason::QuorumLost, is_silent),
        (ConditionType::DataLost, Reason::DataLost, false),
    ] {
        let is_true = is_seen || reason == wanted;
        let is_exiting = type_ == ConditionType::QuorumLost && hibernation_exit.is_some();
        if is_exiting && !is_true {
            // The same words each time: since when they stand tells since when members are started.
            let text = "The members are started after a sleep, and have not had time to answer.";
            add(type_, false, WAKING, text);
        } else if is_true || (is_known && condition::find(before, type_).is_some()) {
            let why = if is_true { wanted } else { reason };
            add(
                type_,
                is_true,
                why.as_str(),
                if is_true { &text } else { &elsewhere },
            );
        }
    }
    if plan.persisted.has_formed() {
        findings.push(backups::finding(&inputs.backups));
    }
    if is_unreachable {
        let blind = [
            ConditionType::Available,
            ConditionType::Degraded,
            ConditionType::QuorumAtRisk,
        ];
        // Before the cluster is known to have formed, only Available was reported.
        let is_reported =
            |type_: &ConditionType| plan.persisted.has_formed() || *type_ == ConditionType::Available;
        findings.extend(blind.into_iter().filter(is_reported).map(|type_| Finding {
            status: Truth::Unknown,
            ..finding(type_, false, reason.as_str(), elsewhere.clone())
        }));
    }
    let mut add =
        |type_, is_true, reason, text: &str| findings.push(finding(type_, is_true, reason, text.to_owned()));
    let told = events::name_conflict(before);
    if !inputs.conflicts.is_empty() {
        add(
            ConditionType::NameConflict,
            true,
            "NameTaken",
            &inputs.conflicts.join("; "),
        );
    } else if let Some(told) = told.filter(|_| !inputs.has_checked_names) {
        add(ConditionType::NameConflict, true, "NameTaken", &told);
    } else if condition::find(before, ConditionType::NameConflict).is_some() {
        let text = "Every name is free or this cluster's.";
        add(ConditionType::NameConflict, false, "NoConflict", text);
    }
    findings.extend(applied_finding(inputs, before));
    let has_template = observed.set.is_some();
    if has_template
        && plan.persisted.has_formed()
        && inputs.refusals.is_empty()
        && reason != Reason::Hibernated
    {
        findings.push(rollout::finding(view, plan, inputs, refused_step.as_ref()));
        findings.extend(rollout::upgrading(view, plan));
    }
    findings.extend(readiness(view, plan, inputs, refused_step.as_ref(), &findings));
    findings
}

/// `Ready`, `Reconciling` and `Stalled`, from the plan and the other conditions. The gravest one gives reason and message.
fn readiness(
    view: &ClusterView<'_>,
    plan: &Plan,
    inputs: &StatusInputs<'_>,
    refused: Option<&RefusedStep>,
    findings: &[Finding],
) -> [Finding; 3] {
    let find = |type_, status| {
        let has_type = findings.iter().find(|finding| finding.type_ == type_);
        has_type.filter(|finding| finding.status == status)
    };
    let reason = plan.explanation.reason;
    if let Some(invalid) = find(ConditionType::Accepted, Truth::False) {
        return Readiness::Stalled.findings(invalid.reason, &invalid.message);
    }
    if step_failure::is_crd_outdated(reason, inputs) {
        let reason = step_failure::CRD_OUTDATED;
        return Readiness::Stalled.findings(reason, step_failure::CRD_OUTDATED_MESSAGE);
    }
    let readiness = match reason {
        Reason::Invalid | Reason::QuorumLost | Reason::DataLost | Reason::AuthenticationRequired => {
            Readiness::Stalled
        }
        Reason::Blocked if blocker::need_user(&plan.explanation.blockers) => Readiness::Stalled,
        Reason::MembersUnreachable if plan.explanation.blockers.iter().any(Blocker::needs_user) => {
            Readiness::Stalled
        }
        Reason::Hibernated if view.observed.has_pods() => Readiness::Reconciling,
        Reason::Converged | Reason::Hibernated => Readiness::Ready,
        // The operator still observes a cluster that it must not change.
        Reason::Paused if is_as_asked(plan, &view.observed.desired, findings) => Readiness::Ready,
        Reason::Paused => Readiness::NotReady,
        Reason::Blocked
        | Reason::Bootstrapping
        | Reason::Scaling
        | Reason::Recovering
        | Reason::RollingOut
        | Reason::Restoring
        | Reason::AwaitingRestore
        | Reason::Waiting
        | Reason::MembersUnreachable => Readiness::Reconciling,
    };
    if readiness != Readiness::Stalled {
        if let Some(refused) = refused {
            return Readiness::Stalled.findings(STEP_REFUSED, &step_failure::describe(refused));
        }
        let obstacles = [
            find(ConditionType::NameConflict, Truth::True),
            find(ConditionType::Applied, Truth::False),
            find(ConditionType::RolledOut, Truth::False).filter(|_| {
                let is_stalled = matches!(plan.rollout, RolloutState::Stalled { .. });
                is_stalled || (readiness == Readiness::Ready && rollout::needs_user(&plan.rollout))
            }),
        ];
        if let Some(obstacle) = obstacles.into_iter().flatten().next() {
            return Readiness::Stalled.findings(obstacle.reason, &obstacle.message);
        }
        if let Some(blocker) = overdue_blocker(view, plan) {
            return Readiness::Stalled
                .findings(blocker.reason().as_str(), &sentence(&blocker.to_string(), 2_000));
        }
        let is_rolling_out = matches!(plan.rollout, RolloutState::RollingOut | RolloutState::Pending(_));
        if let Some(rolled_out) = find(ConditionType::RolledOut, Truth::False)
            && reason == Reason::Converged
        {
            // With the strategies OnDelete and Paused the members serve as they should, and what they lack is told all the same.
            let readiness = if is_rolling_out {
                Readiness::Reconciling
            } else {
                readiness
            };
            return readiness.findings(rolled_out.reason, &rolled_out.message);
        }
    }
    readiness.findings(reason.as_str(), &plan.explanation.text)
}

/// What keeps a member from starting that only the user can mend, once its pod has not been ready for
/// `updates.progressDeadlineSeconds`: a Secret may come later than the pod that needs it.
fn overdue_blocker<'a>(view: &ClusterView<'_>, plan: &'a Plan) -> Option<&'a Blocker> {
    let observed = view.observed;
    let waits = [
        Reason::Bootstrapping,
        Reason::Scaling,
        Reason::Recovering,
        Reason::Restoring,
        Reason::Waiting,
    ];
    if !waits.contains(&plan.explanation.reason) {
        return None;
    }
    let deadline = observed.desired.updates.progress_deadline;
    let deadline = SignedDuration::try_from(deadline).unwrap_or(SignedDuration::MAX);
    let is_overdue = |blocker: &&Blocker| {
        let mut members = observed.members.iter();
        let of_name = |(ordinal, _): &(&Ordinal, &ObservedMember)| {
            blocker.member_name() == Some(observed.name(**ordinal).as_str())
        };
        let pod = members.find(of_name).and_then(|(_, member)| member.pod.as_ref());
        let unready = pod.filter(|pod| !pod.ready);
        let since = unready.and_then(|pod| pod.unready_since.max(pod.created));
        since.is_some_and(|since| observed.now.duration_since(since) >= deadline)
    };
    let blockers = plan.explanation.blockers.iter();
    let mut lasting = blockers.filter(|blocker| blocker.needs_user() && blocker.is_root_cause());
    lasting.find(is_overdue)
}

/// Whether a paused cluster is what its spec asks for: as many voters, all healthy, with the current template, and nothing to be
/// mended.
fn is_as_asked(plan: &Plan, desired: &Desired, findings: &[Finding]) -> bool {
    let has = |type_, status| {
        let mut all = findings.iter();
        all.any(|finding| finding.type_ == type_ && finding.status == status)
    };
    let voters = plan.persisted.members.values().filter(|member| member.is_voter);
    voters.count() == usize::from(desired.size.get())
        && plan.explanation.blockers.is_empty()
        && has(ConditionType::Degraded, Truth::False)
        && has(ConditionType::RolledOut, Truth::True)
}

/// What is done or waited for, without the blockers.
pub fn summarize(view: &ClusterView<'_>, plan: &Plan, inputs: &StatusInputs<'_>) -> String {
    let reason = plan.explanation.reason;
    if step_failure::is_crd_outdated(reason, inputs) {
        return step_failure::CRD_OUTDATED_MESSAGE.to_owned();
    }
    match rollout::pending_text(view, plan, inputs) {
        Some(pending) if reason == Reason::Converged => match plan.rollout {
            RolloutState::Pending(PendingCause::Members) => pending,
            _ => format!("All members are healthy. {pending}"),
        },
        _ => plan.explanation.text.clone(),
    }
}

/// The condition Applied: whether the API server accepts changes of existing objects. `None` until it first refuses
/// one. While it was not asked in this reconcile, its last answer holds.
fn applied_finding(inputs: &StatusInputs<'_>, before: &[Condition]) -> Option<Finding> {
    let refused = match &inputs.refused {
        Some(refused) => (!refused.is_empty()).then(|| refusal::bounded(&refused.join("; "), 2_000)),
        None => events::refused_changes(before),
    };
    match (refused, condition::find(before, ConditionType::Applied)) {
        (Some(message), _) => Some(finding(ConditionType::Applied, false, "Refused", message)),
        (None, Some(_)) => {
            let message = "The API server takes all that is asked for.".to_owned();
            Some(finding(ConditionType::Applied, true, "AllTaken", message))
        }
        (None, None) => None,
    }
}

/// Whether fewer recorded voters than a majority answer, while no voter returns the membership. Excused ones count as
/// if they answered: those that start after hibernation, and one of at most two that a rollout restarts, as the other
/// could not do without it.
fn is_majority_silent(
    view: &ClusterView<'_>,
    plan: &Plan,
    hibernation_exit: Option<HibernationExit>,
) -> bool {
    let is_membership_known = view.known().is_some();
    if is_membership_known || !plan.persisted.has_formed() || plan.explanation.reason == Reason::Hibernated {
        return false;
    }
    let members = plan
        .persisted
        .members
        .iter()
        .filter(|(_, member)| member.is_voter);
    let voters: Vec<_> = members.map(|(ordinal, _)| *ordinal).collect();
    let restarting = restarting_member(view, &plan.persisted);
    let answering = voters.iter().filter(|ordinal| {
        let is_excused =
            hibernation_exit.is_some_and(|hibernation_exit| hibernation_exit.excuses(view, **ordinal));
        let is_planned = voters.len() <= 2 && restarting == Some(**ordinal);
        is_excused || is_planned || view.observed.member(**ordinal).status().is_some()
    });
    !voters.is_empty() && answering.count() < majority(voters.len())
}

fn finding(type_: ConditionType, is_true: bool, reason: &'static str, message: String) -> Finding {
    Finding {
        type_,
        status: if is_true { Truth::True } else { Truth::False },
        reason,
        message,
    }
}
