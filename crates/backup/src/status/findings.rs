//! What is true of an `EtcdBackup`, as conditions.

use etcd_operator_api::condition::{ConditionType, Finding, Truth};
use etcd_operator_api::reference::References;
use etcd_operator_api::{EtcdBackupStatus, refusal};

use jiff::Timestamp;

use crate::plan::promise::promised_before;
use crate::plan::{Plan, Reason};
use crate::world::World;

/// What keeps Jobs from being made, and is no matter of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody said which image is the operator's; the sentence says what to do.
    NoOperatorImage(String),
    /// A Job of a needed name is somebody else's.
    NameTaken(String),
}

impl Obstacle {
    fn text(&self) -> &str {
        match self {
            Self::NoOperatorImage(text) | Self::NameTaken(text) => text,
        }
    }
}

/// What a backup waits for that does not come by the clock.
pub fn awaited<'a>(plan: &'a Plan, obstacle: Option<&'a Obstacle>) -> Option<&'a str> {
    let waits = plan.why.is_held_up.then_some(plan.why.text.as_str());
    obstacle.map(Obstacle::text).or(waits)
}

/// What is true of a backup that is looked after, and of which the status says this.
pub fn findings(
    world: &World,
    plan: &Plan,
    references: &References,
    obstacle: Option<&Obstacle>,
    after: &EtcdBackupStatus,
) -> Vec<Finding> {
    let mut findings = vec![refusal::accepted(&[])];
    findings.extend(references.finding());
    findings.push(match obstacle {
        Some(obstacle) => {
            let reason = match obstacle {
                Obstacle::NoOperatorImage(_) => "NoOperatorImage",
                Obstacle::NameTaken(_) => "NameTaken",
            };
            found(ConditionType::Progressing, Truth::False, reason, obstacle.text())
        }
        None => found(
            ConditionType::Progressing,
            if plan.why.reason.is_work() {
                Truth::True
            } else {
                Truth::False
            },
            plan.why.reason.as_str(),
            &plan.why.text,
        ),
    });
    if let Some(Obstacle::NameTaken(text)) = obstacle {
        findings.push(found(ConditionType::NameConflict, Truth::True, "NameTaken", text));
    }
    findings.extend(fresh(world, plan));
    findings.extend(super::elsewhere::finding(after, world));
    findings
}

/// Whether there is a backup as recent as is promised; nothing is said of one that was asked for once and made.
fn fresh(world: &World, plan: &Plan) -> Option<Finding> {
    let by = plan.promised?;
    let success = plan.memory.success;
    let is_late = world.now > by;
    let text = match (success, is_late) {
        (Some(_), false) => "The last good backup is as recent as the schedule promises.".to_owned(),
        (None, false) => "No backup was made yet, and the first one is not late.".to_owned(),
        (Some(last), true) => format!(
            "The last good backup is of {last}; the next one was promised by {by}.{}",
            hint(plan)
        ),
        (None, true) => format!(
            "There is no good backup; the first one was promised by {by}.{}",
            hint(plan)
        ),
    };
    let (truth, reason) = verdict(success.is_some(), is_late);
    Some(found(ConditionType::BackupFresh, truth, reason, &text))
}

/// What is true of freshness, and why in one word.
fn verdict(was_made: bool, is_late: bool) -> (Truth, &'static str) {
    match (was_made, is_late) {
        (true, false) => (Truth::True, "Fresh"),
        (false, false) => (Truth::Unknown, "NotDueYet"),
        (true, true) => (Truth::False, "Late"),
        (false, true) => (Truth::False, "NeverMade"),
    }
}

/// The same of one whose spec cannot be: what was promised before still is.
pub fn fresh_before(before: &EtcdBackupStatus, now: Timestamp) -> Option<Finding> {
    let by = promised_before(before)?;
    let last = before.last_success_date.as_ref().map(|time| time.0);
    let (truth, reason) = verdict(last.is_some(), now > by);
    let last = match last {
        Some(last) => format!("The last good backup is of {last}"),
        None => "There is no good backup".to_owned(),
    };
    let text = format!("{last}, and none is made while the spec is refused: Accepted says why.");
    Some(found(ConditionType::BackupFresh, truth, reason, &text))
}

fn hint(plan: &Plan) -> &'static str {
    match plan.why.reason {
        Reason::Suspended => " No new one starts while spec.suspend is set.",
        _ => " Progressing and status.Reason say why.",
    }
}

fn found(type_: ConditionType, status: Truth, reason: &'static str, message: &str) -> Finding {
    Finding {
        type_,
        status,
        reason,
        message: message.to_owned(),
    }
}
