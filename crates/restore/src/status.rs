//! What is reported about an `EtcdRestore`, which is also what is remembered of it.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

#[cfg(test)]
mod tests;

use etcd_operator_api::{
    EtcdRestore, EtcdRestoreStatus,
    condition::{self, Condition, ConditionType, Finding, Truth},
    reference::References,
    refusal::{self, Refusal, bounded},
    restore::MemberRestoreStatus,
    scope::NotServed,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::plan::Plan;

/// The longest text in the status.
const LONGEST: usize = 2_000;

/// The status of a restore that is looked after. `references` tells what became of what it refers to.
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
        status: if plan.phase.works() {
            Truth::True
        } else {
            Truth::False
        },
        reason: plan.reason.as_str(),
        message: bounded(&plan.text, LONGEST),
    });
    let memory = &plan.memory;
    EtcdRestoreStatus {
        succeeded: memory.succeeded,
        committed: memory.committed,
        reason: Some(bounded(&plan.text, LONGEST)),
        phase: Some(plan.phase.as_str().to_owned()),
        observed_generation: if plan.observes {
            restore.metadata.generation
        } else {
            before.observed_generation
        },
        conditions: Some(merged(restore, &findings, now)),
        object: memory.object.clone(),
        revision: memory.revision,
        progress: plan
            .progress
            .clone()
            .or_else(|| Some(plan.phase.as_str().to_owned())),
        members: match &plan.members {
            Some(now) => Some(members(now, before.members.as_deref().unwrap_or_default())),
            None => before.members,
        },
        attempt: Some(memory.attempt).filter(|attempt| *attempt > 0),
        safety_backup: memory.safety.clone(),
        plan: memory.plan.as_deref().map(|text| bounded(text, LONGEST)),
        started_at: memory.started.map(Time),
        completed_at: memory.completed.map(Time),
    }
}

/// Each member's part, with what a newer version of the operator wrote of it here. What it wrote of it in the status of the
/// `EtcdCluster` stays there: the definition of this kind may not have it, and would drop it with every write.
fn members(now: &[MemberRestoreStatus], before: &[MemberRestoreStatus]) -> Vec<MemberRestoreStatus> {
    let told = |member: &MemberRestoreStatus| {
        let was = before.iter().find(|was| was.name == member.name);
        MemberRestoreStatus {
            later: was.map(|was| was.later.clone()).unwrap_or_default(),
            ..member.clone()
        }
    };
    now.iter().map(told).collect()
}

/// The status of a restore whose spec cannot be.
pub fn refused(restore: &EtcdRestore, refused: &[Refusal], now: Timestamp) -> EtcdRestoreStatus {
    let before = restore.status.clone().unwrap_or_default();
    let findings = [refusal::accepted(refused)];
    EtcdRestoreStatus {
        observed_generation: restore.metadata.generation,
        conditions: Some(merged(restore, &findings, now)),
        phase: Some("Invalid".to_owned()),
        reason: refused.iter().min().map(ToString::to_string),
        ..before
    }
}

fn merged(restore: &EtcdRestore, findings: &[Finding], now: Timestamp) -> Vec<Condition> {
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

/// The status of a restore that is not this installation's business: said once, where nobody has said anything yet.
pub fn left_alone(
    restore: &EtcdRestore,
    not_served: &NotServed,
    now: Timestamp,
) -> Option<EtcdRestoreStatus> {
    let before = restore.status.clone().unwrap_or_default();
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        restore.metadata.generation,
        now,
    )?;
    Some(EtcdRestoreStatus {
        conditions: Some(conditions),
        ..before
    })
}
