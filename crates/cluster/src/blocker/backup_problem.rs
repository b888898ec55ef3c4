//! Why the backup that comes before another minor version is not verified.

use std::fmt;

use etcd_operator_api::refusal::bounded;

use super::member_problem::MAX_ERROR_CHARS;

/// Why a requested backup is not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupProblem {
    /// It failed, or the spec of the `EtcdBackup` is refused.
    Failed {
        /// What the `EtcdBackup` says.
        message: Option<String>,
    },
    /// It has not finished in time.
    NotVerified {
        /// How long it may take.
        minutes: u64,
    },
}

impl fmt::Display for BackupProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { message: None } => f.write_str("made no backup"),
            Self::Failed {
                message: Some(message),
            } => write!(
                f,
                "made no backup ({})",
                bounded(message.trim_end_matches('.'), MAX_ERROR_CHARS)
            ),
            Self::NotVerified { minutes } => write!(f, "has no verified backup after {minutes} minutes"),
        }
    }
}
