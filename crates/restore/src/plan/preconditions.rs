//! Checks whether a verified backup can replace the data of a cluster, before the restore changes anything.

use std::time::Duration;

use etcd_operator_api::contract::{RestoreIntent, RestoreSecrets, VERSION, Verified};
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::span::Span;
use etcd_operator_api::version::EtcdVersion;

use super::Reason;
use super::select_backup::may_be_completed_by;
use crate::desired::{BackupRef, PointInTime};
use crate::observed_state::{ObservedCluster, ObservedRestore, Source};

/// etcd's default database quota.
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;
/// Space for the WAL that etcd's restore tool writes next to the database.
const WAL_BYTES: u64 = 128 << 20;
/// The alarms that the operator can disarm after a restore.
const KNOWN_ALARMS: [&str; 2] = ["NOSPACE", "CORRUPT"];
/// Highest initial revision of a restored cluster. etcd's revisions have 63 bits and never decrease, so half of the range
/// is reserved.
const MAX_REVISION: i64 = 1 << 62;

/// The request for the cluster and its description for the user, or why the restore is refused.
pub fn check_preconditions(
    observed: &ObservedRestore,
    cluster: &ObservedCluster,
    source: &Source,
    verified: &Verified,
) -> Result<(RestoreIntent, String), (Reason, String)> {
    if let Some(message) = violates_point_in_time(observed, source, verified) {
        return Err((Reason::NoBackup, message));
    }
    if verified.auth_enabled {
        let message = format!(
            "{} comes from an etcd with authentication enabled ({} users, {} roles), which the operator does not support yet",
            source.object, verified.users, verified.roles
        );
        return Err((Reason::AuthEnabled, message));
    }
    if let Some(message) = exceeds_revision_limit(observed, source, verified) {
        return Err((Reason::RevisionTooHigh, message));
    }
    let (writer, from) = writer_version(verified);
    if let (Some(from), Some(to)) = (&from, &cluster.version)
        && (from.major, from.minor) > (to.major, to.minor)
    {
        let message = format!(
            "{} was written by etcd {from}, but the cluster runs {to}, which cannot read it: set spec.version of the EtcdCluster {} to {}.{} or newer",
            source.object, cluster.name, from.major, from.minor
        );
        return Err((Reason::NewerVersion, message));
    }
    if let Some(alarm) = unknown_alarm(verified) {
        let message = format!(
            "{} contains the alarm {alarm} of a newer etcd, which this operator cannot disarm, so the restored cluster would never serve clients: restore another backup, or install an operator that supports that etcd",
            source.object
        );
        return Err((Reason::NewerVersion, message));
    }
    if let Some(message) = exceeds_quota(cluster, source, verified) {
        return Err((Reason::NoRoom, message));
    }
    let (needed, old_data) = (required_space(verified), verified.beside.unwrap_or(0));
    let is_enough = |volume: &u64| *volume >= needed.saturating_add(old_data);
    if let Some(volume) = cluster.volume_size.filter(|volume| !is_enough(volume)) {
        let message = format!(
            "a member's volume has {volume} bytes, but the download, the new database and its WAL need {needed} bytes in addition to the {old_data} bytes of the old database: increase spec.storage.size of the EtcdCluster {}",
            cluster.name
        );
        return Err((Reason::NoRoom, message));
    }
    let request = restore_request(observed, source, verified, writer.unwrap_or_default());
    Ok((request, describe_restore(observed, cluster, source, verified)))
}

/// An alarm in the backup that the operator cannot disarm.
fn unknown_alarm(verified: &Verified) -> Option<&str> {
    let mut alarms = verified.alarms.iter().map(String::as_str);
    alarms.find(|alarm| !KNOWN_ALARMS.contains(alarm))
}

/// Why the verified object is not from before the revision or time in `spec.source.at`: it was replaced since it was selected. One
/// that was replaced and still fits passes.
fn violates_point_in_time(
    observed: &ObservedRestore,
    source: &Source,
    verified: &Verified,
) -> Option<String> {
    let BackupRef::Backup { at, .. } = &observed.desired.backup else {
        return None;
    };
    let (object, found) = (&source.object, verified.revision);
    match *at {
        PointInTime::Revision(wanted) if found > wanted => Some(format!(
            "{object} was replaced: it has revision {found} now, but spec.source.at requires at most {wanted}"
        )),
        PointInTime::Time(wanted)
            if !verified
                .completed_at
                .is_some_and(|at| may_be_completed_by(at, wanted)) =>
        {
            Some(format!(
                "{object} was replaced: spec.source.at requires a backup that completed at or before {wanted}"
            ))
        }
        _ => None,
    }
}

/// The etcd version that wrote the backup, as text and parsed. Manifest and database each contain one; either may be wrong
/// or missing, so the newer one counts.
fn writer_version(verified: &Verified) -> (Option<&str>, Option<EtcdVersion>) {
    let versions = [&verified.etcd_version, &verified.cluster_version];
    let read = versions.into_iter().flatten().filter_map(|message| {
        let version = message.parse::<EtcdVersion>().ok()?;
        Some((version, message.as_str()))
    });
    let newest = read.max_by(|(one, _), (other, _)| one.cmp(other));
    newest.map_or((None, None), |(version, message)| (Some(message), Some(version)))
}

/// Why the revision would be too close to the end of etcd's range. That could not be corrected, because revisions never
/// decrease.
fn exceeds_revision_limit(
    observed: &ObservedRestore,
    source: &Source,
    verified: &Verified,
) -> Option<String> {
    let bump = observed.desired.revision_bump;
    let is_within_limit = verified
        .revision
        .checked_add(bump)
        .is_some_and(|sum| sum <= MAX_REVISION);
    (!is_within_limit).then(|| {
        format!(
            "{} has revision {}, which plus spec.revisionBump ({bump}) exceeds {MAX_REVISION}, too close to the end of etcd's revision range: restore another backup, or set spec.revisionBump to 0 if that suffices",
            source.object, verified.revision
        )
    })
}

/// Why the restored etcd would refuse every write: the database exceeds its quota.
fn exceeds_quota(cluster: &ObservedCluster, source: &Source, verified: &Verified) -> Option<String> {
    let size = verified.object.snapshot_size;
    let quota = cluster.quota.unwrap_or(DEFAULT_QUOTA_BYTES);
    (size >= quota).then(|| {
        let remedy = if cluster.awaits_restore {
            "increase its spec.etcd.quotaBackendBytes"
        } else {
            "restore into another EtcdCluster with a larger spec.etcd.quotaBackendBytes"
        };
        format!(
            "the database of {} has {size} bytes, which reaches the quota of {quota} bytes of the EtcdCluster {}, so etcd would refuse every write: {remedy}",
            source.object, cluster.name
        )
    })
}

/// Bytes that a restore needs on each volume in addition to the previous data.
pub fn required_space(verified: &Verified) -> u64 {
    let snapshot = verified.object.snapshot_size;
    snapshot.saturating_mul(2).saturating_add(WAL_BYTES)
}

/// The request for the cluster controller.
pub fn restore_request(
    observed: &ObservedRestore,
    source: &Source,
    verified: &Verified,
    writer: &str,
) -> RestoreIntent {
    let owned = |secret: Option<&str>| secret.map(str::to_owned);
    RestoreIntent {
        version: VERSION,
        uid: observed.uid.clone(),
        name: observed.name.clone(),
        store: source.location.order(&source.object),
        secrets: RestoreSecrets {
            store: owned(source.location.secret()),
            ca: owned(source.location.ca_secret()),
            keys: source.keys.clone(),
            claim: owned(source.location.claim()),
        },
        object: verified.object.clone(),
        revision: verified.revision,
        etcd_version: writer.to_owned(),
        digest: verified.digest.clone(),
        revision_bump: observed.desired.revision_bump,
        keep_previous_seconds: observed.desired.keep_previous.as_secs(),
        compared_cluster: None,
        single_member: is_single_node(observed),
    }
}

/// Whether only one node at a time can mount the PVC with the backup, so that one member restores it and the others
/// join. False for other stores, and if the access modes are unknown.
fn is_single_node(observed: &ObservedRestore) -> bool {
    observed.is_pvc_shared == Some(false)
}

/// Describes to the user what the restore will do.
fn describe_restore(
    observed: &ObservedRestore,
    cluster: &ObservedCluster,
    source: &Source,
    verified: &Verified,
) -> String {
    let age = verified.completed_at.map_or_else(String::new, |at| {
        let age = Duration::try_from(observed.now.duration_since(at)).unwrap_or_default();
        let age = Duration::from_secs(age.as_secs());
        format!(", {} old", Span(age))
    });
    let alarms = if verified.alarms.is_empty() {
        String::new()
    } else {
        format!(
            " It contains the alarm {}, which is disarmed once the quota is checked.",
            verified.alarms.join(", ")
        )
    };
    let users = match (verified.users, verified.roles) {
        (0, 0) => String::new(),
        (users, roles) => {
            format!(" It contains {users} users and {roles} roles of etcd; authentication is disabled.")
        }
    };
    let safety_backup = match (observed.desired.safety_backup, cluster.is_known_empty) {
        (true, true) => " No safety backup is made, because no member of the cluster was ever started.",
        (true, false) => " A safety backup of the cluster is made first.",
        (false, _) => "",
    };
    let writer = verified
        .etcd_version
        .as_deref()
        .map_or_else(String::new, |version| format!(", etcd {version}"));
    let others_join = is_single_node(observed) && cluster.member_count > 1;
    let joins = if others_join {
        format!(
            " Only one node at a time can mount the PersistentVolumeClaim {}: {}-0 restores the backup, and the other members join once the restore has succeeded.",
            source.location.claim().unwrap_or_default(),
            cluster.name
        )
    } else {
        String::new()
    };
    if cluster.awaits_restore {
        let ephemeral = if cluster.is_ephemeral {
            " The data is ephemeral and is lost with the pods."
        } else {
            ""
        };
        return format!(
            "{} (revision {}, {} keys, {}{writer}{age}) becomes the data of the {} members of EtcdCluster {}, which waits for it.{joins}{ephemeral}{alarms}{users}{safety_backup}",
            source.object,
            verified.revision,
            verified.keys,
            Bytes(verified.object.snapshot_size),
            cluster.member_count,
            cluster.name
        );
    }
    let kept = Span(observed.desired.keep_previous);
    let old_data = if cluster.is_ephemeral {
        "The old data is ephemeral: it is lost when the pods stop, and cannot come back if the restore fails."
            .to_owned()
    } else if others_join {
        format!(
            "The old data can be brought back until the restore is committed. After that {}-0 keeps its old data for {kept}, and the volumes of the other members are deleted when they join.",
            cluster.name
        )
    } else {
        format!(
            "The old data can be brought back until the restore is committed, and is kept on the volumes for {kept} after that."
        )
    };
    format!(
        "{} (revision {}, {} keys, {}{writer}{age}) replaces all data of the {} members of EtcdCluster {}, which does not serve during the restore. Each volume needs {} of free space.{joins} {old_data}{alarms}{users}{safety_backup}",
        source.object,
        verified.revision,
        verified.keys,
        Bytes(verified.object.snapshot_size),
        cluster.member_count,
        cluster.name,
        Bytes(required_space(verified)),
    )
}
