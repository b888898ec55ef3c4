//! Which backup is meant, among those that an `EtcdBackup` says it has made.

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::location::Blocks;
use etcd_operator_api::span::second;
use jiff::{SignedDuration, Timestamp};

use crate::desired::{At, Desired, From};
use crate::world::Source;

/// What comes after a moment that somebody names, who reads it where it is told to the second: all of that second counts.
fn after(moment: Timestamp) -> Timestamp {
    later(second(moment))
}

/// Whether a backup, of which the store says to the fraction when it was finished, may be one that was chosen as finished not
/// after a moment: what a status tells of it is up to a second earlier.
pub(super) fn may_be_by(finished: Timestamp, moment: Timestamp) -> bool {
    finished < later(after(moment))
}

/// A second later, or never.
fn later(moment: Timestamp) -> Timestamp {
    let later = moment.checked_add(SignedDuration::from_secs(1));
    later.unwrap_or(Timestamp::MAX)
}

/// Where the backup is that is meant, with what opens it, or why there is none. One that was chosen before stays the one.
pub fn chosen(
    desired: &Desired,
    backup: Option<&EtcdBackup>,
    before: Option<&str>,
) -> Result<Source, String> {
    let source = choose(&desired.from, backup, &desired.cluster, before)?;
    Ok(Source {
        keys: desired.keys.clone().or(source.keys),
        ..source
    })
}

/// The same by what the place alone says.
pub fn choose(
    from: &From,
    backup: Option<&EtcdBackup>,
    cluster: &str,
    before: Option<&str>,
) -> Result<Source, String> {
    match from {
        From::Object(location) => Ok(Source {
            location: location.clone(),
            object: location.key().unwrap_or(cluster).to_owned(),
            keys: None,
        }),
        From::Refused(why) => Err(why.clone()),
        From::Backup { name, at } => {
            let backup = backup.ok_or_else(|| format!("there is no EtcdBackup {name} that can be read"))?;
            among(backup, name, *at, before)
        }
    }
}

fn among(backup: &EtcdBackup, name: &str, at: At, before: Option<&str>) -> Result<Source, String> {
    let spec = &backup.spec;
    let blocks = Blocks {
        s3: spec.s3.as_ref(),
        abs: spec.abs.as_ref(),
        gcs: spec.gcs.as_ref(),
        oss: spec.oss.as_ref(),
        local: spec.local.as_ref(),
    };
    let location = blocks
        .locate(spec.storage_type, "spec.storageType")
        .map_err(|refused| {
            let words: Vec<_> = refused.iter().map(ToString::to_string).collect();
            format!("the EtcdBackup {name} cannot be read: {}", words.join("; "))
        })?;
    let history = backup
        .status
        .iter()
        .flat_map(|status| status.history.iter().flatten());
    let fits = |record: &&BackupRecord| match at {
        At::Latest => true,
        At::Revision(revision) => record.revision.is_some_and(|found| found <= revision),
        At::Time(time) => record.completed().is_some_and(|found| found < after(time)),
    };
    // Of one that lies where the spec no longer says, another object may bear the name at the place of now.
    let here = location.key().map(|path| location.address(path));
    let is_elsewhere = |record: &&BackupRecord| {
        let place = record.location.as_ref();
        place
            .zip(here.as_ref())
            .is_some_and(|(place, here)| place != here)
    };
    // Another life of the data may have counted the same revisions: the one that was backed up last is meant, if it fits.
    let present = history
        .clone()
        .max_by_key(|record| record.completed())
        .and_then(|record| record.cluster_id.as_ref());
    let is_meant = |record: &BackupRecord| match at {
        At::Revision(_) => record.cluster_id.as_ref() == present,
        At::Latest | At::Time(_) => true,
    };
    let newest = history
        .clone()
        .filter(fits)
        .max_by_key(|record| (is_meant(record), record.completed()));
    if let Some(elsewhere) = newest.filter(is_elsewhere).filter(|_| before.is_none()) {
        return Err(format!(
            "the backup {} that the EtcdBackup {name} tells of lies at {}, and its spec names another place by now: name it by its full key, with backupStorageType and the block of its store",
            elsewhere.object,
            elsewhere.location.as_deref().unwrap_or_default()
        ));
    }
    let object = before
        .map(str::to_owned)
        .or_else(|| newest.map(|record| record.object.clone()));
    let Some(object) = object else {
        let wanted = match at {
            At::Latest => String::new(),
            At::Revision(revision) => format!(" whose revision is not above {revision}"),
            At::Time(time) => format!(" that was finished not after {time}"),
        };
        return Err(format!(
            "the EtcdBackup {name} tells of {} backups, and of none{wanted}: an older one is named by its full key, with backupStorageType and the block of its store",
            history.count()
        ));
    };
    Ok(Source {
        location,
        object,
        keys: spec
            .encryption
            .as_ref()
            .map(|sealed| sealed.secret_ref.name.clone()),
    })
}
