//! By when the next good backup is promised, which is what fresh means.

use std::time::Duration;

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::condition::{self, ConditionType, Truth};
use jiff::{SignedDuration, Timestamp};

use crate::desired::{Desired, When};

/// The longest half period that a late start is given where nobody says how late it may be.
const LATEST: SignedDuration = SignedDuration::from_hours(24);

/// When there must be a good backup that is newer than the last one; none where one is asked for once and was made.
pub fn promised(
    desired: &Desired,
    created: Timestamp,
    success: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    // A backup of the future was stamped by a clock that was wrong.
    let success = success.map(|time| time.min(now));
    let (due, after) = match (&desired.when, success) {
        (When::Once, Some(_)) => return None,
        (When::Once, None) => (created, None),
        (When::Every(period), Some(time)) => (add(time, *period)?, Some(*period)),
        (When::Every(period), None) => (created, Some(*period)),
        (When::Schedule(schedule), success) => {
            let due = schedule.next(success.unwrap_or(created))?.timestamp();
            let period = schedule
                .next(due)
                .map(|next| next.timestamp().duration_since(due));
            (due, period.and_then(|period| Duration::try_from(period).ok()))
        }
    };
    let half = after.map(|period| SignedDuration::try_from(period / 2).unwrap_or(LATEST).min(LATEST));
    let late = match desired.late {
        Some(late) => SignedDuration::try_from(late).unwrap_or(LATEST),
        None => half.unwrap_or(SignedDuration::ZERO),
    };
    add(due, desired.timeout)?.checked_add(late).ok()
}

/// The same of a backup whose spec cannot be, as it was promised before that: since when it is late, or when the next one was
/// due.
pub fn promised_before(status: &EtcdBackupStatus) -> Option<Timestamp> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let late = condition::find(conditions, ConditionType::BackupFresh)
        .filter(|fresh| fresh.status == Truth::False.as_str())
        .and_then(|fresh| fresh.last_transition_time.as_deref()?.parse().ok());
    late.or_else(|| Some(status.next_schedule_time.as_ref()?.0))
}

fn add(time: Timestamp, span: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(span).ok()?).ok()
}
