//! Former locations: where earlier backups remain after an edit of the spec. They are reported, and never pruned or
//! deleted, because the user did not ask for that.

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{ConditionType, Finding, Truth};
use etcd_operator_api::location::belongs;
use etcd_operator_api::refusal::bounded;

use crate::observed_state::ObservedBackup;

/// The longest list in a condition's message: the API server rejects a status whose message is too long.
const MAX_MESSAGE: usize = 4_000;
/// How many former locations the status lists, the newest ones.
const MAX_LOCATIONS: usize = 16;

/// Whether a backup is at the location that the spec names. Without a recorded location its object name decides.
pub fn is_at_current_location(record: &BackupRecord, observed: &ObservedBackup) -> bool {
    match &record.location {
        Some(location) => *location == observed.location_address(),
        None => belongs(&record.object, observed.desired.object_path(&observed.name)),
    }
}

/// The locations other than `current` in the status and in its backup records, at most the newest sixteen; `None` if
/// there are none.
pub fn former_locations(status: &EtcdBackupStatus, current: &str) -> Option<Vec<String>> {
    let known = status.former_locations.iter().flatten();
    let history = status.history.iter().flatten().rev();
    let records = history.chain(&status.last_success);
    let recorded = records.filter_map(|record| record.location.as_ref());
    let mut former: Vec<String> = Vec::new();
    for location in known.chain(recorded).filter(|location| *location != current) {
        if !former.contains(location) {
            former.push(location.clone());
        }
    }
    former.drain(..former.len().saturating_sub(MAX_LOCATIONS));
    (!former.is_empty()).then_some(former)
}

/// The former locations that the status did not list before.
pub fn new_former_locations(before: Option<&EtcdBackupStatus>, after: &EtcdBackupStatus) -> Vec<String> {
    let known: Vec<&String> = before
        .iter()
        .flat_map(|before| before.former_locations.iter().flatten())
        .collect();
    let now = after.former_locations.iter().flatten();
    now.filter(|location| !known.contains(location))
        .cloned()
        .collect()
}

/// Says that the backups at these locations are kept.
pub fn kept_at(locations: &[String]) -> String {
    format!(
        "Backups from before the spec named another location stay at {}: they are neither pruned nor deleted with this \
         object.",
        locations.join(", ")
    )
}

/// Says that the backups at these locations are kept, and how to have them deleted while the object exists.
pub fn kept_at_with_advice(locations: &[String]) -> String {
    let kept = kept_at(locations);
    format!("{kept} Delete them by hand, or name that location in the spec again to have the operator do it.")
}

/// The condition `BackupsElsewhere`, if there are former locations.
pub fn condition(after: &EtcdBackupStatus, observed: &ObservedBackup) -> Option<Finding> {
    let locations = after.former_locations.as_ref()?;
    let message = format!(
        "{} New backups go to {}.",
        kept_at_with_advice(locations),
        observed.location_address()
    );
    Some(Finding {
        type_: ConditionType::BackupsElsewhere,
        status: Truth::True,
        reason: "LocationChanged",
        message: bounded(&message, MAX_MESSAGE),
    })
}
