//! Until when the last good backup counts as fresh, as the condition `BackupFresh` and the lateness metric report it.

use std::time::Duration;

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::condition::{self, ConditionType, Truth};
use jiff::{SignedDuration, Timestamp};

use crate::desired::{Desired, Trigger};

/// The longest tolerance for a late start where the spec sets no `startingDeadlineSeconds`.
const LONGEST_TOLERANCE: SignedDuration = SignedDuration::from_hours(24);

/// When the next good backup must be complete; `None` for a one-shot backup that was made.
///
/// That is the due time, plus the tolerance for a late start, plus the timeout of a run. The tolerance is
/// `startingDeadlineSeconds`, or by default half the time to the following run.
pub fn fresh_until(
    desired: &Desired,
    created_at: Timestamp,
    last_success: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    // A backup from the future was recorded by a wrong clock.
    let last_success = last_success.map(|time| time.min(now));
    let (due, period) = match (&desired.trigger, last_success) {
        (Trigger::Once, Some(_)) => return None,
        (Trigger::Once, None) => (created_at, None),
        (Trigger::Interval(period), Some(time)) => (add(time, *period)?, Some(*period)),
        (Trigger::Interval(period), None) => (created_at, Some(*period)),
        (Trigger::Schedule(schedule), last_success) => {
            let due = schedule.next(last_success.unwrap_or(created_at))?.timestamp();
            let period = schedule
                .next(due)
                .map(|next| next.timestamp().duration_since(due));
            (due, period.and_then(|period| Duration::try_from(period).ok()))
        }
    };
    let half_period = period.map(|period| {
        SignedDuration::try_from(period / 2)
            .unwrap_or(LONGEST_TOLERANCE)
            .min(LONGEST_TOLERANCE)
    });
    let tolerance = match desired.starting_deadline {
        Some(deadline) => SignedDuration::try_from(deadline).unwrap_or(LONGEST_TOLERANCE),
        None => half_period.unwrap_or(SignedDuration::ZERO),
    };
    add(due, desired.timeout)?.checked_add(tolerance).ok()
}

/// The deadline of a backup whose spec is refused now, as the status recorded it before: since when the backup has been
/// late, else when the next run was due. `None` if it recorded neither.
pub fn recorded_fresh_until(status: &EtcdBackupStatus) -> Option<Timestamp> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let late_since = condition::find(conditions, ConditionType::BackupFresh)
        .filter(|fresh| fresh.status == Truth::False.as_str())
        .and_then(|fresh| fresh.last_transition_time.as_deref()?.parse().ok());
    late_since.or_else(|| Some(status.next_schedule_time.as_ref()?.0))
}

fn add(time: Timestamp, span: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(span).ok()?).ok()
}
