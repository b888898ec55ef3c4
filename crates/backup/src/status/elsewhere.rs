//! Backups that lie where the spec no longer says: they are told of, and left alone, as nobody said that they may go.

use etcd_operator_api::EtcdBackupStatus;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{ConditionType, Finding, Truth};
use etcd_operator_api::location::belongs;
use etcd_operator_api::refusal::bounded;

use crate::world::World;

/// As much as a condition says, with room for its own words; one that is longer would keep all of the status from being
/// written.
const LONGEST: usize = 4_000;
/// How many places are told of, the newest.
const MOST: usize = 16;

/// Whether a backup lies where the spec says. Of one whose place was not recorded the name tells.
pub fn is_here(record: &BackupRecord, world: &World) -> bool {
    match &record.location {
        Some(location) => *location == world.place(),
        None => belongs(&record.object, world.desired.path(&world.name)),
    }
}

/// Where else backups were stored, by what the status says already and by what it tells of backups.
pub fn former(status: &EtcdBackupStatus, here: &str) -> Option<Vec<String>> {
    let known = status.former_locations.iter().flatten();
    let history = status.history.iter().flatten().rev();
    let recorded = history.chain(&status.last_success);
    let recorded = recorded.filter_map(|record| record.location.as_ref());
    let mut former: Vec<String> = Vec::new();
    for place in known.chain(recorded).filter(|place| *place != here) {
        if !former.contains(place) {
            former.push(place.clone());
        }
    }
    former.drain(..former.len().saturating_sub(MOST));
    (!former.is_empty()).then_some(former)
}

/// The places that were not told of before.
pub fn newly(before: Option<&EtcdBackupStatus>, after: &EtcdBackupStatus) -> Vec<String> {
    let known: Vec<&String> = before
        .iter()
        .flat_map(|before| before.former_locations.iter().flatten())
        .collect();
    let now = after.former_locations.iter().flatten();
    now.filter(|place| !known.contains(place)).cloned().collect()
}

/// What becomes of backups at such places.
pub fn stays(places: &[String]) -> String {
    format!(
        "Backups that were stored before the spec named another place stay at {}: they are neither pruned nor deleted \
         with this object.",
        places.join(", ")
    )
}

/// The same while there is something to do about it but by hand.
pub fn stays_for_now(places: &[String]) -> String {
    let stays = stays(places);
    format!("{stays} Delete them by hand, or name that place in the spec again to have it done.")
}

/// That there are such places.
pub fn finding(after: &EtcdBackupStatus, world: &World) -> Option<Finding> {
    let places = after.former_locations.as_ref()?;
    Some(Finding {
        type_: ConditionType::BackupsElsewhere,
        status: Truth::True,
        reason: "LocationChanged",
        message: bounded(
            &format!("{} New ones go to {}.", stays_for_now(places), world.place()),
            LONGEST,
        ),
    })
}
