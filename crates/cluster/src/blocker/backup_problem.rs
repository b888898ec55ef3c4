//! Why the backup that comes before another minor version is not verified.

use std::fmt;

use etcd_operator_api::refusal::bounded;

/// At most this much of an error is shown: in a status the hint after it must have room.
pub const MAX_ERROR_CHARS: usize = 150;

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
