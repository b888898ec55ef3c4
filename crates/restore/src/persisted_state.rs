//! The state of an `EtcdRestore` that must survive restarts of the operator, read from its status and from the annotation
//! with its commit record. Pure.
//!
//! The progress of the restore itself is stored on the `EtcdCluster`, whose controller carries it out.

use etcd_operator_api::EtcdRestoreStatus;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::condition::{self, ConditionType, FinishedReason};
use etcd_operator_api::contract::{self, CommitRecord};
use jiff::Timestamp;

use crate::plan::Reason;

/// State that must survive restarts of the operator. The progress of the restore itself is on the `EtcdCluster`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PersistedState {
    /// The phase in the status.
    pub phase: String,
    /// The message in the status.
    pub message: Option<String>,
    /// The reason of the condition Progressing, if later plans depend on it.
    pub reason: Option<Reason>,
    /// The message of the condition `Finished` if it reports a failure. The restore then starts again only after an edit
    /// of its spec.
    pub failure: Option<String>,
    /// Whether the restore succeeded. It is then never carried out again.
    pub succeeded: bool,
    /// Whether the restore passed its commit point, so that the previous data cannot come back.
    pub committed: bool,
    /// The key of the selected backup in the store.
    pub object: Option<String>,
    /// The revision of the selected backup.
    pub revision: Option<i64>,
    /// What the restore will do, as text for the user.
    pub plan: Option<String>,
    /// The backup of the previous data, made before the restore changed anything.
    pub safety_backup: Option<BackupRecord>,
    /// Number of the current attempt; 0 before the first.
    pub attempt: i64,
    /// When the first attempt started.
    pub started_at: Option<Timestamp>,
    /// When the restore ended.
    pub completed_at: Option<Timestamp>,
}

impl PersistedState {
    /// Adds what the annotation with the commit record says. The status may have been removed since, and the restore must not
    /// be carried out again. An unreadable record counts as committed.
    #[must_use]
    pub fn with_commit_record(self, record: Option<&str>, uid: &str) -> Self {
        let record = CommitRecord::read(record, uid);
        Self {
            committed: self.committed || record.is_some(),
            succeeded: self.succeeded || record.is_some_and(|record| record.succeeded),
            ..self
        }
    }

    /// The record to keep on the object beside the status; `None` before the commit point.
    pub fn commit_record(&self, uid: &str) -> Option<CommitRecord> {
        (self.committed || self.succeeded).then(|| CommitRecord {
            version: contract::VERSION,
            uid: uid.to_owned(),
            succeeded: self.succeeded,
        })
    }

    /// The result of the comparison, if it was reported as final.
    pub fn unusable_data(&self) -> Option<Reason> {
        self.reason
            .filter(|reason| Reason::UNUSABLE_DATA.contains(reason))
    }

    /// Reads the state from a status.
    pub fn read(status: Option<&EtcdRestoreStatus>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let find = |type_| condition::find(conditions, type_);
        let has_failed = FinishedReason::read(conditions) == Some(FinishedReason::Failed);
        let reason = find(ConditionType::Progressing).and_then(|found| found.reason.as_deref());
        Self {
            phase: status.phase.clone().unwrap_or_default(),
            message: status.reason.clone(),
            reason: reason.and_then(Reason::read),
            failure: find(ConditionType::Finished)
                .filter(|_| has_failed)
                .map(|found| found.message.clone().unwrap_or_default()),
            succeeded: status.succeeded,
            committed: status.committed,
            object: status.object.clone(),
            revision: status.revision,
            plan: status.plan.clone(),
            safety_backup: status.safety_backup.clone(),
            attempt: status.attempt.unwrap_or_default().max(0),
            started_at: status.started_at.as_ref().map(|time| time.0),
            completed_at: status.completed_at.as_ref().map(|time| time.0),
        }
    }
}
