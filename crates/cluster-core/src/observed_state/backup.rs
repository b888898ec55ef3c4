//! `EtcdBackup`s of the cluster: one that a backup before a newer minor version can be requested from, and a backup that runs.

use jiff::Timestamp;

/// A periodic `EtcdBackup` of the cluster that is neither suspended nor being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedBackup {
    /// Its name.
    pub name: String,
    /// The value of its annotation `backup-now`.
    pub request: Option<String>,
    /// The value of that annotation for which it last started a backup.
    pub handled_request: Option<String>,
    /// Whether a backup has started or waits to start, and has not finished.
    pub is_running: bool,
    /// When the running backup started; none while it waits for other backups to end.
    pub running_since: Option<Timestamp>,
    /// Whether its spec is refused, so that it makes no backup.
    pub is_refused: bool,
    /// Whether the last finished backup is complete and verified.
    pub has_succeeded: bool,
    /// When the last verified backup started.
    pub last_success_started: Option<Timestamp>,
    /// When the last verified backup was complete.
    pub last_success_completed: Option<Timestamp>,
    /// What it says of the run that is under way. Without one, why the last backup failed, or what the next one waits for.
    pub message: Option<String>,
}

/// A backup of the cluster that runs and may read from any member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningBackup {
    /// The name of its `EtcdBackup`.
    pub name: String,
    /// When it started.
    pub started_at: Timestamp,
}
