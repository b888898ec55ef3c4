//! Builds the status of an `EtcdRestore`, which is also its persisted state. Pure.
//!
//! The result equals the previous status if nothing changed. Fields that this version does not know are kept.

#[cfg(test)]
mod tests;

use etcd_operator_api::{
    EtcdRestore, EtcdRestoreStatus,
    condition::{self, Condition, ConditionType, Finding, FinishedReason, Readiness, Truth},
    crd,
    reference::References,
    refusal::{self, Refusal, bounded},
    restore::MemberRestoreStatus,
    scope::NotServed,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::plan::{Phase, Plan, Reason};

/// Longest message in the status.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// The message of the condition `Finished` of a restore that was refused before it started.
const NEVER_STARTED: &str = "Nothing starts while the spec is refused: see the condition Accepted.";

/// The status of a served restore. `references` tells whether the referenced objects exist.
pub fn status(
    restore: &EtcdRestore,
    plan: &Plan,
    references: &References,
    now: Timestamp,
) -> EtcdRestoreStatus {
    let before = restore.status.clone().unwrap_or_default();
    let mut findings = vec![refusal::accepted(&[])];
    findings.extend(references.finding());
    findings.push(Finding {
        type_: ConditionType::Progressing,
        status: if plan.phase.is_active() {
            Truth::True
        } else {
            Truth::False
        },
        reason: plan.reason.as_str(),
        message: bounded(&plan.message, MAX_MESSAGE_CHARS),
    });
    let message = bounded(&plan.message, MAX_MESSAGE_CHARS);
    let (readiness, finished) = match plan.phase {
        Phase::Succeeded => (Readiness::Ready, FinishedReason::Succeeded),
        _ if plan.will_retry => (Readiness::Reconciling, FinishedReason::Retrying),
        Phase::Failed | Phase::RolledBack => (Readiness::Stalled, FinishedReason::Failed),
        // The cluster still carries it out, but its client Service stays closed.
        _ if Reason::UNUSABLE_DATA.contains(&plan.reason) => (Readiness::Stalled, FinishedReason::Failed),
        _ if plan.needs_user => (Readiness::Stalled, FinishedReason::Unfinished),
        _ => (Readiness::Reconciling, FinishedReason::Unfinished),
    };
    findings.extend(readiness.findings(plan.reason.as_str(), &message));
    findings.push(condition::finished(finished, message));
    let state = &plan.state;
    EtcdRestoreStatus {
        succeeded: state.succeeded,
        committed: state.committed,
        reason: Some(bounded(&plan.message, MAX_MESSAGE_CHARS)),
        phase: Some(plan.phase.as_str().to_owned()),
        observed_generation: if plan.observes_generation {
            restore.metadata.generation
        } else {
            // The cluster carries out an earlier spec, so the present one is an edit, which takes effect after that.
            before
                .observed_generation
                .filter(|generation| *generation != crd::UNOBSERVED)
        },
        conditions: Some(merge_conditions(restore, &findings, now)),
        object: state.object.clone(),
        revision: state.revision,
        progress: plan
            .progress
            .clone()
            .or_else(|| Some(plan.phase.as_str().to_owned())),
        members: match &plan.members {
            Some(now) => Some(merge_members(now, before.members.as_deref().unwrap_or_default())),
            None => before.members,
        },
        attempt: Some(state.attempt).filter(|attempt| *attempt > 0),
        safety_backup: state.safety_backup.clone(),
        plan: state.plan.as_deref().map(|text| bounded(text, MAX_MESSAGE_CHARS)),
        started_at: state.started_at.map(Time),
        completed_at: state.completed_at.map(Time),
    }
}

/// The members' progress, with the unknown fields that a newer operator version wrote into this status. Unknown fields from
/// the status of the `EtcdCluster` are not copied. The CRD of `EtcdRestore` may not have them, and the API server would drop
/// them at every write.
fn merge_members(
    current: &[MemberRestoreStatus],
    before: &[MemberRestoreStatus],
) -> Vec<MemberRestoreStatus> {
    let merge = |member: &MemberRestoreStatus| {
        let previous = before.iter().find(|previous| previous.name == member.name);
        MemberRestoreStatus {
            later: previous
                .map(|previous| previous.later.clone())
                .unwrap_or_default(),
            ..member.clone()
        }
    };
    current.iter().map(merge).collect()
}

/// The status of a restore whose spec is refused. What it recorded stays, also that the restore has ended.
pub fn refused_status(restore: &EtcdRestore, refused: &[Refusal], now: Timestamp) -> EtcdRestoreStatus {
    let before = restore.status.clone().unwrap_or_default();
    let mut findings = vec![refusal::accepted(refused)];
    findings.extend(refusal::stalled(refused));
    let finished_before = refusal::finished_before(before.conditions.as_deref().unwrap_or_default());
    findings.push(
        finished_before
            .unwrap_or_else(|| condition::finished(FinishedReason::Unfinished, NEVER_STARTED.to_owned())),
    );
    EtcdRestoreStatus {
        observed_generation: restore.metadata.generation,
        conditions: Some(merge_conditions(restore, &findings, now)),
        phase: Some("Invalid".to_owned()),
        reason: refused.iter().min().map(ToString::to_string),
        ..before
    }
}

fn merge_conditions(restore: &EtcdRestore, findings: &[Finding], now: Timestamp) -> Vec<Condition> {
    let before = restore
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    condition::merge(
        before.unwrap_or_default(),
        findings,
        restore.metadata.generation,
        now,
    )
}

/// The status of a restore that this installation does not serve; `None` if the restore has a verdict already, with complete
/// conditions.
pub fn not_served_status(
    restore: &EtcdRestore,
    not_served: &NotServed,
    now: Timestamp,
) -> Option<EtcdRestoreStatus> {
    let before = restore.status.clone().unwrap_or_default();
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        true,
        restore.metadata.generation,
        now,
    )?;
    Some(EtcdRestoreStatus {
        conditions: Some(conditions),
        ..before
    })
}
