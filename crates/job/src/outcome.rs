//! The result of a Job as a termination message, within the size that Kubernetes allows. Pure.

use std::process::ExitCode;

use etcd_operator_api::contract::{self, JobOutcome, JobResult, Manifest, Stored};

use crate::failure::Failure;

/// The largest termination message in bytes.
const MAX_MESSAGE: usize = 2048;
/// The largest termination message with a list in bytes: the kubelet's limit.
const MAX_LIST_MESSAGE: usize = 4096;
/// The largest failure text in bytes.
const MAX_FAILURE_TEXT: usize = 900;

/// The exit status of a process: 0, 1, 2 and 3 in this order. The Job's pod failure policy relies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// A failure that a retry may cure.
    Again,
    /// The order is invalid.
    BadOrder,
    /// A failure that a retry does not cure.
    Never,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Again => Self::from(1),
            Exit::BadOrder => Self::from(2),
            Exit::Never => Self::from(3),
        }
    }
}

/// The exit status for an outcome.
pub fn exit_of(outcome: &JobOutcome) -> Exit {
    match outcome {
        JobOutcome::Failed { retriable: true, .. } => Exit::Again,
        JobOutcome::Failed { reason, .. } if reason == "BadOrder" => Exit::BadOrder,
        JobOutcome::Failed { .. } => Exit::Never,
        JobOutcome::Stored(_)
        | JobOutcome::Listed { .. }
        | JobOutcome::Pruned { .. }
        | JobOutcome::Verified(_)
        | JobOutcome::Unchanged
        | JobOutcome::Fetched { .. }
        | JobOutcome::Compared { .. } => Exit::Done,
    }
}

/// The outcome for a stored backup.
pub fn stored_outcome(manifest: Manifest) -> JobOutcome {
    JobOutcome::Stored(Box::new(Stored {
        object: manifest.object,
        revision: manifest.revision,
        size: manifest.object_size,
        sha256: manifest.object_sha256,
        etcd_version: manifest.etcd_version,
        cluster_id: manifest.cluster_id,
        member: manifest.member,
        verification: manifest.verification,
        incarnation: manifest.incarnation,
        started_at: manifest.started_at,
        completed_at: manifest.completed_at,
    }))
}

/// The outcome for a failure.
pub fn failed_outcome(failure: &Failure) -> JobOutcome {
    JobOutcome::Failed {
        reason: failure.reason.clone().into_owned(),
        message: to_one_line(&failure.message),
        retriable: failure.is_retriable,
    }
}

/// The text in one line, truncated at a character boundary.
fn to_one_line(text: &str) -> String {
    let line = text.replace(char::is_control, " ");
    let mut end = line.len().min(MAX_FAILURE_TEXT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end].to_owned()
}

/// The termination message. A list that does not fit continues on the next page; skipped objects that do not fit are counted.
pub fn termination_message(run: &str, outcome: JobOutcome) -> Vec<u8> {
    let mut result = JobResult {
        version: contract::VERSION,
        run: run.to_owned(),
        outcome,
    };
    loop {
        let bytes = contract::write(&result);
        let limit = match &result.outcome {
            JobOutcome::Listed { .. } => MAX_LIST_MESSAGE,
            _ => MAX_MESSAGE,
        };
        if bytes.len() <= limit || !shorten(&mut result.outcome) {
            return bytes;
        }
    }
}

/// Makes an outcome shorter; returns false if it cannot be shortened.
fn shorten(outcome: &mut JobOutcome) -> bool {
    match outcome {
        JobOutcome::Listed { backups, next, .. } if backups.len() > 1 => {
            backups.pop();
            *next = backups.last().map(|last| last.object.clone());
            true
        }
        JobOutcome::Pruned {
            skipped,
            more_skipped,
            ..
        } if !skipped.is_empty() => {
            skipped.pop();
            *more_skipped += 1;
            true
        }
        JobOutcome::Failed { message, .. } if message.len() > 1 => {
            *message = message.chars().take(message.chars().count() / 2).collect();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::contract::{Listed, Skipped};

    use super::*;

    fn name(number: usize) -> String {
        format!("etcd/orders_v{number}_2026-03-01-03:00:00")
    }

    #[test]
    fn a_long_list_is_returned_page_by_page_without_loss() {
        let all: Vec<Listed> = (0..300)
            .map(|number| Listed {
                object: name(number),
                incarnation: Some(1),
                revision: 1,
                size: 1,
                completed_at: jiff::Timestamp::UNIX_EPOCH,
            })
            .collect();
        let (mut received, mut from) = (Vec::new(), 0);
        loop {
            let outcome = JobOutcome::Listed {
                backups: all[from..].to_vec(),
                others: 0,
                next: None,
            };
            let bytes = termination_message("r", outcome);
            assert!(bytes.len() <= MAX_LIST_MESSAGE);
            let read: JobResult = contract::read(&bytes).expect("a result");
            let JobOutcome::Listed { backups, next, .. } = read.outcome else {
                panic!("{:?}", read.outcome);
            };
            assert!(!backups.is_empty());
            from += backups.len();
            received.extend(backups);
            if next.is_none() {
                break;
            }
            assert_eq!(next, received.last().map(|last| last.object.clone()));
        }
        assert_eq!(received, all);
    }

    #[test]
    fn skipped_objects_that_do_not_fit_are_counted() {
        let skipped = (0..100)
            .map(|number| Skipped {
                object: name(number),
                why: "Locked".to_owned(),
            })
            .collect();
        let outcome = JobOutcome::Pruned {
            deleted: 5,
            kept: 100,
            skipped,
            more_skipped: 0,
        };
        let bytes = termination_message("r", outcome);
        assert!(bytes.len() <= MAX_MESSAGE);
        let read: JobResult = contract::read(&bytes).expect("a result");
        let JobOutcome::Pruned {
            skipped,
            more_skipped,
            ..
        } = read.outcome
        else {
            panic!("{:?}", read.outcome);
        };
        assert_eq!(skipped.len() as u64 + more_skipped, 100);
    }

    #[test]
    fn a_failure_text_of_any_length_and_script_fits() {
        for text in ["\u{0}".repeat(5000), "ä\"\\\n".repeat(5000), "短".repeat(5000)] {
            let bytes = termination_message("r", failed_outcome(&Failure::retriable("StreamBroken", text)));
            assert!(bytes.len() <= MAX_MESSAGE, "{}", bytes.len());
            let read: JobResult = contract::read(&bytes).expect("a result");
            let JobOutcome::Failed { message, .. } = read.outcome else {
                panic!("{:?}", read.outcome);
            };
            assert!(message.len() <= MAX_FAILURE_TEXT && !message.contains(char::is_control));
        }
    }

    #[test]
    fn the_exit_status_says_whether_a_retry_may_help() {
        let exit = |failure| exit_of(&failed_outcome(&failure));
        assert_eq!(exit(Failure::retriable("Unreachable", "")), Exit::Again);
        assert_eq!(exit(Failure::permanent("Credentials", "")), Exit::Never);
        assert_eq!(exit(Failure::bad_order("")), Exit::BadOrder);
    }
}
