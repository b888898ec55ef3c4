//! What is true of a cluster, as conditions.

use etcd_operator_api::condition::{self, Condition, ConditionType, Finding, Truth};
use etcd_operator_api::refusal;
use etcd_operator_etcd::policy::{self, Verdict};
use etcd_operator_etcd::version::Version;

use super::waking::Waking;
use super::{Surroundings, backups, hindered, news};
use crate::build::Pending;
use crate::desired::Desired;
use crate::memory::Restore;
use crate::plan::{Plan, Reason, Situation, majority};

/// What is said of what is asked for and not done.
const PENDING: &str = "Changes of the spec that restart members are pending";
/// Why it is not done.
const NOT_ROLLED: &str = "this version of the operator does not roll them out";
/// What there is to know of a cluster that is well and bears no failure.
const ONE_ALONE: &str =
    " One member has no redundancy: nobody can read or write while it is away, as was asked for.";
const TWO_ALONE: &str =
    " Two members have no redundancy: writes need both, so two bear no more failures than one.";

/// The word for members that are started after a sleep.
pub const WAKING: &str = "Waking";

/// What the spec alone tells, and the oldest version that runs.
pub fn of_spec(desired: &Desired, running: Option<&Version>) -> Vec<Finding> {
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
            Some(gravest) => found(
                ConditionType::VersionSupported,
                false,
                "BetterVersionExists",
                format!("etcd {version}: {gravest}."),
            ),
            None => found(
                ConditionType::VersionSupported,
                true,
                "NoKnownFault",
                format!("etcd {version} has no fault that the operator knows of."),
            ),
        });
    }
    if desired.storage.is_ephemeral() {
        findings.push(found(
            ConditionType::StorageEphemeral,
            true,
            "DataLivesWithPods",
            "The data of a member is lost with its pod, and all data with all pods. For data that outlives pods, create the cluster with storage: {size: 8Gi}.".to_owned(),
        ));
    }
    findings
}

/// What is true of a cluster.
pub fn findings(
    situation: &Situation<'_>,
    plan: &Plan,
    around: &Surroundings<'_>,
    before: &[Condition],
) -> Vec<Finding> {
    let world = situation.world;
    let reason = plan.why.reason;
    // What is in the way is told in full where it belongs, and once.
    let (text, elsewhere) = if plan.why.blocked_by.is_empty() {
        let text = in_short(situation, plan, around);
        (text.clone(), text)
    } else {
        let blocked_by = super::listed(&plan.why.blocked_by).join("; ");
        let text = refusal::bounded(&format!("{} {blocked_by}", plan.why.text), 2_000);
        (text, format!("{} See the condition Progressing.", plan.why.text))
    };
    let is = |wanted: &[Reason]| wanted.contains(&reason);
    let works = is(&[
        Reason::Bootstrapping,
        Reason::Scaling,
        Reason::Recovering,
        Reason::Restoring,
    ]);
    let running = situation.oldest_running();
    let mut findings = of_spec(&world.desired, running);
    if !around.refusals.is_empty() {
        findings.retain(|finding| finding.type_ != ConditionType::Accepted);
        findings.push(refusal::accepted(around.refusals));
    }
    let mut add =
        |type_, is_so, reason, text: &str| findings.push(found(type_, is_so, reason, text.to_owned()));

    let known = situation.known().filter(|_| plan.memory.has_formed());
    let voters = known.map_or_else(
        || plan.memory.members.values().filter(|member| member.votes).count(),
        |known| known.voters().count(),
    );
    // Between two steps the next member has no pod yet, and that is no end of it.
    let awaits_members =
        known.is_some() && is(&[Reason::Waiting]) && voters != usize::from(world.desired.size.get());
    let well = known.map_or(0, |known| situation.well(known).len());
    let count = match known {
        Some(_) => format!("{well} of {voters} voters are well."),
        None => format!("Nobody can tell who the members are; {voters} voters were seen last."),
    };
    let is_available = known.is_some() && well >= majority(voters);
    let is_shut = plan
        .memory
        .restore
        .as_ref()
        .is_some_and(Restore::keeps_clients_out);
    // Whoever reaches nobody cannot tell, and the members may well serve others.
    let is_blind = plan.memory.has_formed() && is(&[Reason::MembersUnreachable]);
    match (is_available, plan.memory.has_formed()) {
        _ if is_blind => {}
        _ if is_shut => add(ConditionType::Available, false, "Restoring", &elsewhere),
        (true, _) => add(ConditionType::Available, true, "QuorumServes", &count),
        (false, true) => add(ConditionType::Available, false, "NoQuorum", &elsewhere),
        (false, false) => add(ConditionType::Available, false, "NotFormed", &elsewhere),
    }
    let pending = match around.pending {
        Some(Pending::Change) if reason != Reason::Converged => {
            format!(" {}", pending(&world.desired, running))
        }
        _ => String::new(),
    };
    let refused = hindered::refused(around, before);
    let refused = refused.map(|refused| format!(" {refused}")).unwrap_or_default();
    if hindered::by_definitions(reason, around) {
        add(
            ConditionType::Progressing,
            false,
            hindered::OUTDATED,
            hindered::FORGETFUL,
        );
    } else {
        let text = format!("{text}{pending}{refused}");
        add(ConditionType::Progressing, works, reason.as_str(), &text);
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
    if plan.memory.has_formed() && reason != Reason::Hibernated && !is_blind {
        let wanted = usize::from(world.desired.size.get());
        let is_degraded = well < voters || voters < wanted || known.is_none();
        let why = if is_degraded { "MembersMissing" } else { "AllWell" };
        add(
            ConditionType::Degraded,
            is_degraded,
            why,
            &format!("{count} {wanted} are asked for."),
        );
        let at_risk = !is_available || (well == majority(voters) && voters.max(wanted) > 2);
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
    let is_known = !is_shut && !is(&[Reason::Paused, Reason::MembersUnreachable, Reason::Restoring]);
    let waking = Waking::of(situation, plan, before);
    let is_silent = is_known && is_majority_silent(situation, plan, waking);
    for (type_, wanted, is_seen) in [
        (ConditionType::QuorumLost, Reason::QuorumLost, is_silent),
        (ConditionType::DataLost, Reason::DataLost, false),
    ] {
        let is_so = is_seen || reason == wanted;
        let is_waking = type_ == ConditionType::QuorumLost && waking.is_some();
        if is_waking && !is_so {
            // The same words each time: since when they stand tells since when members are started.
            let text = "The members are started after a sleep, and have not had time to answer.";
            add(type_, false, WAKING, text);
        } else if is_so || (is_known && condition::find(before, type_).is_some()) {
            let why = if is_so { wanted } else { reason };
            add(type_, is_so, why.as_str(), if is_so { &text } else { &elsewhere });
        }
    }
    if plan.memory.has_formed() {
        findings.push(backups::finding(&around.backups));
    }
    if is_blind {
        let blind = [
            ConditionType::Available,
            ConditionType::Degraded,
            ConditionType::QuorumAtRisk,
        ];
        findings.extend(blind.map(|type_| Finding {
            status: Truth::Unknown,
            ..found(type_, false, reason.as_str(), elsewhere.clone())
        }));
    }
    let mut add =
        |type_, is_so, reason, text: &str| findings.push(found(type_, is_so, reason, text.to_owned()));
    let told = news::conflict(before);
    if !around.conflicts.is_empty() {
        add(
            ConditionType::NameConflict,
            true,
            "NameTaken",
            &around.conflicts.join("; "),
        );
    } else if let Some(told) = told.filter(|_| !around.has_looked) {
        add(ConditionType::NameConflict, true, "NameTaken", &told);
    } else if condition::find(before, ConditionType::NameConflict).is_some() {
        let text = "Every name is free or this cluster's.";
        add(ConditionType::NameConflict, false, "NoConflict", text);
    }
    findings.extend(applied(around, before));
    findings
}

/// What is asked for and not done, and why.
fn pending(desired: &Desired, running: Option<&Version>) -> String {
    let wanted = desired.image.version();
    let version = wanted.zip(running).filter(|(wanted, running)| wanted != running);
    let version =
        version.map(|(wanted, running)| format!(" (etcd {running} runs and {wanted} is asked for)"));
    format!("{PENDING}{}: {NOT_ROLLED}.", version.unwrap_or_default())
}

/// The version that is asked for while another one runs.
pub fn target(situation: &Situation<'_>, around: &Surroundings<'_>) -> Option<Version> {
    let wanted = situation.world.desired.image.version()?;
    let is_another = situation
        .oldest_running()
        .is_some_and(|running| running != wanted);
    (around.pending == Some(Pending::Change) && is_another).then(|| wanted.clone())
}

/// What is done or waited for, without what is in its way.
pub fn in_short(situation: &Situation<'_>, plan: &Plan, around: &Surroundings<'_>) -> String {
    match (plan.why.reason, around.pending) {
        (reason, _) if hindered::by_definitions(reason, around) => hindered::FORGETFUL.to_owned(),
        (Reason::Converged, Some(Pending::Change)) => {
            let pending = pending(&situation.world.desired, situation.oldest_running());
            format!("All members are there and well. {pending}")
        }
        _ => plan.why.text.clone(),
    }
}

/// Whether the API server takes what is asked of objects that are there, once it has refused something. While it has not
/// been asked in this pass, what it said last holds.
fn applied(around: &Surroundings<'_>, before: &[Condition]) -> Option<Finding> {
    let refused = match &around.refused {
        Some(refused) => (!refused.is_empty()).then(|| refusal::bounded(&refused.join("; "), 2_000)),
        None => news::refused(before),
    };
    match (refused, condition::find(before, ConditionType::Applied)) {
        (Some(message), _) => Some(found(ConditionType::Applied, false, "Refused", message)),
        (None, Some(_)) => {
            let message = "The API server takes all that is asked for.".to_owned();
            Some(found(ConditionType::Applied, true, "AllTaken", message))
        }
        (None, None) => None,
    }
}

/// Whether fewer voters answer than it takes to decide, of those that were seen last. Whoever may still come after a sleep
/// counts as if it answered.
fn is_majority_silent(situation: &Situation<'_>, plan: &Plan, waking: Option<Waking>) -> bool {
    let is_told = situation.known().is_some();
    if is_told || !plan.memory.has_formed() || plan.why.reason == Reason::Hibernated {
        return false;
    }
    let members = plan.memory.members.iter().filter(|(_, member)| member.votes);
    let voters: Vec<_> = members.map(|(place, _)| *place).collect();
    let answering = voters.iter().filter(|place| {
        let is_excused = waking.is_some_and(|waking| waking.excuses(situation, **place));
        is_excused || situation.world.seen(**place).status().is_some()
    });
    !voters.is_empty() && answering.count() < majority(voters.len())
}

fn found(type_: ConditionType, is_so: bool, reason: &'static str, message: String) -> Finding {
    Finding {
        type_,
        status: if is_so { Truth::True } else { Truth::False },
        reason,
        message,
    }
}
