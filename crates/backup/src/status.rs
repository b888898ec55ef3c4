//! What is reported about an `EtcdBackup`.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

use etcd_operator_api::{
    EtcdBackup, EtcdBackupStatus,
    condition::{self, ConditionType, Finding, Truth},
    reference::References,
    refusal::{self, Refusal},
    scope::NotServed,
};
use jiff::Timestamp;

use crate::desired::Desired;

/// Said on every valid object, so that nobody relies on backups that are not made.
const NOT_MADE: &str = "This version of the operator checks EtcdBackups and does not make backups yet.";

/// The status of a backup that this installation looks after. `references` tells what became of what it refers to.
pub fn status(
    backup: &EtcdBackup,
    desired: &Result<Desired, Vec<Refusal>>,
    references: &References,
    now: Timestamp,
) -> EtcdBackupStatus {
    let before = backup.status.clone().unwrap_or_default();
    let generation = backup.metadata.generation;
    let findings = findings(desired, references);
    let conditions = condition::merge(
        before.conditions.as_deref().unwrap_or_default(),
        &findings,
        generation,
        now,
    );
    let (phase, reason) = match desired {
        Ok(_) => ("Waiting", Some(NOT_MADE.to_owned())),
        Err(refused) => ("Invalid", refused.iter().min().map(ToString::to_string)),
    };
    EtcdBackupStatus {
        observed_generation: generation,
        conditions: Some(conditions),
        phase: Some(phase.to_owned()),
        reason,
        ..before
    }
}

fn findings(desired: &Result<Desired, Vec<Refusal>>, references: &References) -> Vec<Finding> {
    let refused = desired.as_ref().err().map_or(&[][..], Vec::as_slice);
    let mut findings = vec![refusal::accepted(refused)];
    let Ok(desired) = desired else { return findings };
    findings.extend(references.finding());
    findings.push(Finding {
        type_: ConditionType::Progressing,
        status: Truth::False,
        reason: if desired.suspended {
            "Suspended"
        } else {
            "NotImplemented"
        },
        message: NOT_MADE.to_owned(),
    });
    findings
}

/// The status of a backup that is not this installation's business: said once, where nobody has said anything yet.
pub fn left_alone(backup: &EtcdBackup, not_served: &NotServed, now: Timestamp) -> Option<EtcdBackupStatus> {
    let before = backup.status.clone().unwrap_or_default();
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        backup.metadata.generation,
        now,
    )?;
    Some(EtcdBackupStatus {
        conditions: Some(conditions),
        ..before
    })
}
