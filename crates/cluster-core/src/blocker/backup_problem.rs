//! Why the backup that comes before another minor version is not verified.

use std::fmt;

use etcd_operator_api::refusal::bounded;

/// At most this much of an error is shown: in a status the hint after it must have room.
pub const MAX_ERROR_CHARS: usize = 150;
/// At most this much is shown of what an `EtcdBackup` says, for the same reason.
pub const MAX_BACKUP_CHARS: usize = 200;

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
        /// What the `EtcdBackup` says.
        message: Option<String>,
    },
}

impl fmt::Display for BackupProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self {
            Self::Failed { message } => {
                f.write_str("made no backup")?;
                message
            }
            Self::NotVerified { minutes, message } => {
                write!(f, "has no verified backup after {minutes} minutes")?;
                message
            }
        };
        message.as_ref().map_or(Ok(()), |message| {
            write!(
                f,
                " ({})",
                bounded(message.trim_end_matches('.'), MAX_BACKUP_CHARS)
            )
        })
    }
}
