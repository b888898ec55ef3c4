//! A rollout waits for a backup that runs, as it may read from the member that would restart, but not for long.

use jiff::SignedDuration;

use crate::observed_state::RunningBackup;
use crate::persisted_state::Rollout;
use crate::plan::cluster_view::ClusterView;

/// How long a restart waits at most, both for one backup and after the last progress of the rollout: backups may follow one another.
pub const MAX_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// The running backup that the next restart waits for; `None` if each has run for `MAX_WAIT`, or the rollout has made
/// no progress for that long.
pub fn awaited<'a>(view: &ClusterView<'a>, rollout: &Rollout) -> Option<&'a RunningBackup> {
    let observed = view.observed;
    let mut running = observed.running_backups.iter();
    let is_recent = |backup: &&RunningBackup| observed.now.duration_since(backup.started_at) < MAX_WAIT;
    running
        .find(is_recent)
        .filter(|_| rollout.has_progressed_within(MAX_WAIT, observed.now))
}
