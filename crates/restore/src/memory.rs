//! What must survive the operator about an `EtcdRestore`. Pure. The rest stands on the `EtcdCluster`, whose controller
//! carries the restore out.

use etcd_operator_api::EtcdRestoreStatus;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{self, ConditionType};
use jiff::Timestamp;

use crate::plan::Reason;

/// What must survive the operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The phase in one word.
    pub phase: String,
    /// What was said of it last.
    pub said: Option<String>,
    /// Whether it has failed, and it was said that it rests until somebody edits it: what stood in its way may go, and the
    /// Job that failed or went well may still be there.
    pub rests: bool,
    /// Whether it succeeded: it is never done again.
    pub succeeded: bool,
    /// Whether the old data were given up.
    pub committed: bool,
    /// The object that was chosen.
    pub object: Option<String>,
    /// The revision that the object holds.
    pub revision: Option<i64>,
    /// What will happen, in words.
    pub plan: Option<String>,
    /// The backup of what was there, made before anything was touched.
    pub safety: Option<BackupRecord>,
    /// Which Job is the present one; 0 before the first.
    pub attempt: i64,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it was over.
    pub completed: Option<Timestamp>,
}

impl Memory {
    /// Reads a status.
    pub fn read(status: Option<&EtcdRestoreStatus>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        Self {
            phase: status.phase.clone().unwrap_or_default(),
            said: status.reason.clone(),
            rests: condition::find(
                status.conditions.as_deref().unwrap_or_default(),
                ConditionType::Progressing,
            )
            .is_some_and(|found| found.reason.as_deref() == Some(Reason::FailedBefore.as_str())),
            succeeded: status.succeeded,
            committed: status.committed,
            object: status.object.clone(),
            revision: status.revision,
            plan: status.plan.clone(),
            safety: status.safety_backup.clone(),
            attempt: status.attempt.unwrap_or_default().max(0),
            started: status.started_at.as_ref().map(|time| time.0),
            completed: status.completed_at.as_ref().map(|time| time.0),
        }
    }
}
