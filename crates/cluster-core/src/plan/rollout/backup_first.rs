//! A verified backup before another minor version. It is requested once nothing else keeps the pod template from changing, or a
//! downgrade from being enabled, and that follows when it is verified.

use etcd_operator_api::cluster::BackupFirstPolicy;
use etcd_operator_api::span::second;
use etcd_operator_etcd_types::version::Version;
use jiff::{SignedDuration, Timestamp};

use super::versions;
use crate::blocker::{BackupProblem, Blocker};
use crate::observed_state::ObservedBackup;
use crate::persisted_state::PersistedState;
use crate::plan::cluster_view::ClusterView;
use crate::plan::step::BackupRequest;

/// How long a requested backup may take before the user is asked to act.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(30);
/// How long a verified backup counts once it is complete, also one that took longer than this. Then another one is requested.
const COUNTS_FOR: SignedDuration = SignedDuration::from_hours(1);

/// How far the backup is that comes before another minor version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupFirst {
    /// No minor version changes, no `EtcdBackup` can be asked for a backup, or the user wants none.
    NotNeeded,
    /// A backup that started after it was requested is verified, and complete since less than an hour.
    Verified,
    /// The `EtcdBackup` does not have the request yet.
    ToRequest(BackupRequest),
    /// The requested backup has not finished.
    Running {
        /// The name of the `EtcdBackup`.
        name: String,
        /// What it says.
        message: Option<String>,
    },
    /// The backup failed or takes too long, and the user must act.
    Blocked(Blocker),
}

impl BackupFirst {
    /// Whether the pod template does not wait for a backup any more: it is verified, or none is needed.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::NotNeeded | Self::Verified)
    }
}

/// How far the backup is. One verified backup suffices, whichever `EtcdBackup` made it, if it began after the request.
/// One that ended longer than `COUNTS_FOR` ago does not count: another one is requested.
pub fn state(view: &ClusterView<'_>, persisted: &PersistedState) -> BackupFirst {
    let observed = view.observed;
    let changes_minor = versions::is_next_minor(view) || versions::is_previous_minor(view);
    if observed.desired.updates.backup_first == BackupFirstPolicy::Never || !changes_minor {
        return BackupFirst::NotNeeded;
    }
    let backups = &observed.upgrade_backups;
    let Some(preferred) = preferred(backups) else {
        return BackupFirst::NotNeeded;
    };
    let recorded = persisted
        .rollout
        .as_ref()
        .and_then(|rollout| rollout.backup_requested_at);
    let request_at = |requested_at| {
        BackupFirst::ToRequest(BackupRequest {
            backup: preferred.name.clone(),
            requested_at,
            value: annotation_value(&observed.wanted.version, requested_at),
        })
    };
    let Some(requested_at) = recorded else {
        return request_at(second(observed.now));
    };
    let value = annotation_value(&observed.wanted.version, requested_at);
    let is_verified = |backup: &ObservedBackup| {
        let started = backup.last_success_started;
        (has_finished(backup, &value) && backup.has_succeeded)
            || started.is_some_and(|started| started >= requested_at)
    };
    let mut verified = backups.iter().filter(|backup| is_verified(backup)).peekable();
    if verified.peek().is_some() {
        return if verified.any(|backup| is_recent(backup, observed.now)) {
            BackupFirst::Verified
        } else {
            request_at(second(observed.now))
        };
    }
    let has_request = |backup: &&ObservedBackup| {
        backup.request.as_ref() == Some(&value) || backup.handled_request.as_ref() == Some(&value)
    };
    // A user may have requested another backup since.
    let is_running = |backup: &&ObservedBackup| backup.is_running;
    let requested = backups.iter().find(has_request);
    let Some(backup) = requested.or_else(|| backups.iter().find(is_running)) else {
        return request_at(requested_at);
    };
    let blocked = |problem| {
        BackupFirst::Blocked(Blocker::BackupFirst {
            backup: backup.name.clone(),
            problem,
        })
    };
    if backup.is_refused || has_finished(backup, &value) {
        return blocked(BackupProblem::Failed {
            message: backup.message.clone(),
        });
    }
    // One that waits so long for other backups to end is told, too. Once it has started it has the time again.
    let since = backup.running_since.unwrap_or(requested_at).max(requested_at);
    if observed.now.duration_since(since) >= TIMEOUT {
        let minutes = TIMEOUT.as_mins().unsigned_abs();
        return blocked(BackupProblem::NotVerified {
            minutes,
            message: backup.message.clone(),
        });
    }
    BackupFirst::Running {
        name: backup.name.clone(),
        message: backup.message.clone(),
    }
}

/// The `EtcdBackup` that a backup is requested from: one that is not refused, then one whose last backup is verified,
/// then the first by name. `None` without any.
fn preferred(backups: &[ObservedBackup]) -> Option<&ObservedBackup> {
    backups
        .iter()
        .min_by_key(|backup| (backup.is_refused, !backup.has_succeeded, &backup.name))
}

/// Whether the last verified backup is complete since less than an hour. One whose end is unknown does not count.
fn is_recent(backup: &ObservedBackup, now: Timestamp) -> bool {
    let completed = backup.last_success_completed;
    completed.is_some_and(|completed| now.duration_since(completed) < COUNTS_FOR)
}

/// Whether a backup that was started for this request has finished, successfully or not.
fn has_finished(backup: &ObservedBackup, value: &str) -> bool {
    backup.handled_request.as_deref() == Some(value) && !backup.is_running
}

fn annotation_value(version: &Version, requested_at: Timestamp) -> String {
    format!("before-etcd-{version}-{requested_at}")
}
