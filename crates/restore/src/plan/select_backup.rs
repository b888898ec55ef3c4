//! Selects the backup to restore from the history of an `EtcdBackup`, or from an explicit location.

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::location::Blocks;
use etcd_operator_api::span::second;
use jiff::{SignedDuration, Timestamp};

use crate::desired::{BackupRef, Desired, PointInTime};
use crate::observed_state::Source;

/// The exclusive end of the second that contains `time`. Statuses show times in whole seconds, so a user who specifies a
/// time means the whole second.
fn end_of_second(time: Timestamp) -> Timestamp {
    add_second(second(time))
}

/// Whether a backup with the exact completion time `finished` may be the one selected as completed at or before `time`.
/// Times in a status are rounded down by up to a second.
pub(super) fn may_be_completed_by(finished: Timestamp, time: Timestamp) -> bool {
    finished < add_second(end_of_second(time))
}

/// Adds a second, saturating.
fn add_second(time: Timestamp) -> Timestamp {
    let later = time.checked_add(SignedDuration::from_secs(1));
    later.unwrap_or(Timestamp::MAX)
}

/// The location of the backup to restore, with its encryption keys, or why there is none. A backup that was selected before
/// stays selected.
pub fn select_source(
    desired: &Desired,
    backup: Option<&EtcdBackup>,
    selected_before: Option<&str>,
) -> Result<Source, String> {
    let source = locate_backup(&desired.backup, backup, &desired.cluster, selected_before)?;
    Ok(Source {
        keys: desired.keys.clone().or(source.keys),
        ..source
    })
}

/// Like [`select_source`], without the encryption keys of the restore's spec.
pub fn locate_backup(
    backup_ref: &BackupRef,
    backup: Option<&EtcdBackup>,
    cluster: &str,
    selected_before: Option<&str>,
) -> Result<Source, String> {
    match backup_ref {
        BackupRef::Object(location) => Ok(Source {
            location: location.clone(),
            object: location.key().unwrap_or(cluster).to_owned(),
            keys: None,
        }),
        BackupRef::Refused(why) => Err(why.clone()),
        BackupRef::Backup { name, at } => {
            let backup = backup.ok_or_else(|| format!("there is no readable EtcdBackup {name}"))?;
            select_from_history(backup, name, *at, selected_before)
        }
    }
}

/// The newest backup of a history that fits, or the one that was selected before. Fails if the newest one is stored at
/// another location than the spec names now.
fn select_from_history(
    backup: &EtcdBackup,
    name: &str,
    at: PointInTime,
    selected_before: Option<&str>,
) -> Result<Source, String> {
    let spec = &backup.spec;
    let blocks = Blocks::from(spec);
    let location = blocks
        .locate(spec.storage_type, "spec.storageType")
        .map_err(|refused| {
            let refusals: Vec<_> = refused.iter().map(ToString::to_string).collect();
            format!(
                "the spec of the EtcdBackup {name} is refused: {}",
                refusals.join("; ")
            )
        })?;
    let history = backup
        .status
        .iter()
        .flat_map(|status| status.history.iter().flatten());
    let fits = |record: &&BackupRecord| match at {
        PointInTime::Latest => true,
        PointInTime::Revision(revision) => record.revision.is_some_and(|found| found <= revision),
        PointInTime::Time(time) => record
            .completed()
            .is_some_and(|found| found < end_of_second(time)),
    };
    // If the spec of the EtcdBackup was moved to another location, an object of this name there may be another backup.
    let current_location = location.key().map(|path| location.address(path));
    let is_moved = |record: &&BackupRecord| {
        let stored_at = record.location.as_ref();
        stored_at
            .zip(current_location.as_ref())
            .is_some_and(|(stored_at, current_location)| stored_at != current_location)
    };
    // Different incarnations may use the same revisions: prefer backups of the cluster that was backed up last.
    let current_cluster_id = history
        .clone()
        .max_by_key(|record| record.completed())
        .and_then(|record| record.cluster_id.as_ref());
    let is_of_current_cluster = |record: &BackupRecord| match at {
        PointInTime::Revision(_) => record.cluster_id.as_ref() == current_cluster_id,
        PointInTime::Latest | PointInTime::Time(_) => true,
    };
    let newest = history
        .clone()
        .filter(fits)
        .max_by_key(|record| (is_of_current_cluster(record), record.completed()));
    if let Some(moved) = newest.filter(is_moved).filter(|_| selected_before.is_none()) {
        return Err(format!(
            "the backup {} in the history of the EtcdBackup {name} is stored at {}, but its spec names another location now; specify the backup by its full key, with backupStorageType and the block of its store",
            moved.object,
            moved.location.as_deref().unwrap_or_default()
        ));
    }
    let object = selected_before
        .map(str::to_owned)
        .or_else(|| newest.map(|record| record.object.clone()));
    let Some(object) = object else {
        let wanted = match at {
            PointInTime::Latest => String::new(),
            PointInTime::Revision(revision) => format!(" with a revision of at most {revision}"),
            PointInTime::Time(time) => format!(" that completed at or before {time}"),
        };
        return Err(format!(
            "the history of the EtcdBackup {name} has {} backups, but none{wanted}; specify an older one by its full key, with backupStorageType and the block of its store",
            history.count()
        ));
    };
    Ok(Source {
        location,
        object,
        keys: spec
            .encryption
            .as_ref()
            .map(|encryption| encryption.secret_ref.name.clone()),
    })
}
