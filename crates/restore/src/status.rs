//! What is reported about an `EtcdRestore`.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

#[cfg(test)]
mod tests;

use etcd_operator_api::{
    EtcdRestore, EtcdRestoreStatus,
    condition::{self, ConditionType, Finding, Truth},
    reference::References,
    refusal::{self, Refusal},
    scope::NotServed,
};
use jiff::Timestamp;

use crate::desired::Desired;

/// Said on every valid object, so that nobody waits for data that will not come.
const NOT_DONE: &str = "This version of the operator checks EtcdRestores and does not restore yet.";

/// The status of a restore that this installation looks after. `references` tells what became of what it refers to.
pub fn status(
    restore: &EtcdRestore,
    desired: &Result<Desired, Vec<Refusal>>,
    references: &References,
    now: Timestamp,
) -> EtcdRestoreStatus {
    let before = restore.status.clone().unwrap_or_default();
    let generation = restore.metadata.generation;
    let refused = desired.as_ref().err().map_or(&[][..], Vec::as_slice);
    let mut findings = vec![refusal::accepted(refused)];
    if desired.is_ok() {
        findings.extend(references.finding());
        findings.push(Finding {
            type_: ConditionType::Progressing,
            status: Truth::False,
            reason: "NotImplemented",
            message: NOT_DONE.to_owned(),
        });
    }
    let conditions = condition::merge(
        before.conditions.as_deref().unwrap_or_default(),
        &findings,
        generation,
        now,
    );
    let (phase, reason) = match refused.iter().min() {
        None => ("Waiting", NOT_DONE.to_owned()),
        Some(first) => ("Invalid", first.to_string()),
    };
    EtcdRestoreStatus {
        observed_generation: generation,
        conditions: Some(conditions),
        phase: Some(phase.to_owned()),
        reason: Some(reason),
        ..before
    }
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
