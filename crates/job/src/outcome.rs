//! What a Job says when it ends, in as many bytes as a pod may say. Pure.

use std::process::ExitCode;

use etcd_operator_api::contract::{self, JobOutcome, JobResult, Manifest, Stored};

use crate::failure::Failure;

/// The most bytes of a message; a list may be as long as kubelet takes one.
const MOST: usize = 2048;
const MOST_LISTED: usize = 4096;
/// The most bytes of a sentence, which is one line.
const SENTENCE: usize = 900;

/// How a process ends, for whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was done.
    Done,
    /// It was not, and another try may help.
    Again,
    /// The order is wrong.
    BadOrder,
    /// It was not, and another try does not help.
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

/// How a process ends after this.
pub fn exit(outcome: &JobOutcome) -> Exit {
    match outcome {
        JobOutcome::Failed { retriable: true, .. } => Exit::Again,
        JobOutcome::Failed { reason, .. } if reason == "BadOrder" => Exit::BadOrder,
        JobOutcome::Failed { .. } => Exit::Never,
        JobOutcome::Stored(_)
        | JobOutcome::Listed { .. }
        | JobOutcome::Pruned { .. }
        | JobOutcome::Verified(_)
        | JobOutcome::Fetched { .. }
        | JobOutcome::Compared { .. } => Exit::Done,
    }
}

/// A stored backup as its manifest tells it.
pub fn stored(manifest: Manifest) -> JobOutcome {
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

/// A failure.
pub fn failed(failure: &Failure) -> JobOutcome {
    JobOutcome::Failed {
        reason: failure.reason.clone().into_owned(),
        message: sentence(&failure.message),
        retriable: failure.is_retriable,
    }
}

/// One line, cut between two characters if it is too long.
fn sentence(text: &str) -> String {
    let line = text.replace(char::is_control, " ");
    let mut end = line.len().min(SENTENCE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end].to_owned()
}

/// The message, with what does not fit left to the next page or only counted.
pub fn message(run: &str, outcome: JobOutcome) -> Vec<u8> {
    let mut result = JobResult {
        version: contract::VERSION,
        run: run.to_owned(),
        outcome,
    };
    loop {
        let bytes = contract::write(&result);
        let most = match &result.outcome {
            JobOutcome::Listed { .. } => MOST_LISTED,
            _ => MOST,
        };
        if bytes.len() <= most || !shorten(&mut result.outcome) {
            return bytes;
        }
    }
}

/// Makes it shorter, if it can be.
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
    fn a_long_list_is_told_page_by_page_and_nothing_is_lost() {
        let all: Vec<Listed> = (0..300)
            .map(|number| Listed {
                object: name(number),
                incarnation: Some(1),
                revision: 1,
                size: 1,
                completed_at: jiff::Timestamp::UNIX_EPOCH,
            })
            .collect();
        let (mut told, mut from) = (Vec::new(), 0);
        loop {
            let outcome = JobOutcome::Listed {
                backups: all[from..].to_vec(),
                others: 0,
                next: None,
            };
            let bytes = message("r", outcome);
            assert!(bytes.len() <= MOST_LISTED);
            let read: JobResult = contract::read(&bytes).expect("a result");
            let JobOutcome::Listed { backups, next, .. } = read.outcome else {
                panic!("{:?}", read.outcome);
            };
            assert!(!backups.is_empty());
            from += backups.len();
            told.extend(backups);
            if next.is_none() {
                break;
            }
            assert_eq!(next, told.last().map(|last| last.object.clone()));
        }
        assert_eq!(told, all);
    }

    #[test]
    fn what_was_skipped_is_counted_where_it_is_not_named() {
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
        let bytes = message("r", outcome);
        assert!(bytes.len() <= MOST);
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
    fn a_sentence_of_any_length_and_script_fits() {
        for text in ["\u{0}".repeat(5000), "ä\"\\\n".repeat(5000), "短".repeat(5000)] {
            let bytes = message("r", failed(&Failure::passing("StreamBroken", text)));
            assert!(bytes.len() <= MOST, "{}", bytes.len());
            let read: JobResult = contract::read(&bytes).expect("a result");
            let JobOutcome::Failed { message, .. } = read.outcome else {
                panic!("{:?}", read.outcome);
            };
            assert!(message.len() <= SENTENCE && !message.contains(char::is_control));
        }
    }

    #[test]
    fn programs_are_told_by_the_exit_code_whether_to_try_again() {
        let of = |failure| exit(&failed(&failure));
        assert_eq!(of(Failure::passing("Unreachable", "")), Exit::Again);
        assert_eq!(of(Failure::lasting("Credentials", "")), Exit::Never);
        assert_eq!(of(Failure::order("")), Exit::BadOrder);
    }
}
