//! Whether the image holds the minor version of etcd that the pod template names: a tag or a digest can lie. etcd of another
//! minor version could raise the version of the cluster, or change the files of the member, with no way back.

use std::path::Path;
use std::time::Duration;

use etcd_operator_api::contract::{self, IMAGE_VERSION_DIFFERS, JobOutcome, JobResult, RefusedImage};
use etcd_operator_etcd::tool;
use etcd_operator_etcd::version::Minor;

/// How long etcd has to tell its version.
pub const LIMIT: Duration = Duration::from_secs(10);
/// How long it has in a Job, where no member waits for it: a node that is busy is no fault of the image.
pub const JOB_LIMIT: Duration = Duration::from_mins(1);

/// What is wrong with an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It holds another minor version.
    #[error("it holds etcd {}, and {} is expected", .0.found, .0.expected)]
    Version(RefusedImage),
    /// etcd does not tell its version.
    #[error("{0}")]
    NotTold(String),
}

/// Why etcd of this image must not start; none also where it does not tell its version. A check that cannot be made keeps no
/// member down: what is wrong with the image shows when etcd starts.
pub async fn check(program: &Path, expected: Minor, limit: Duration) -> Option<RefusedImage> {
    match find_fault(program, expected, limit).await? {
        Fault::Version(refused) => Some(refused),
        Fault::NotTold(why) => {
            tracing::warn!("the version of etcd in this image is not known: {why}");
            None
        }
    }
}

/// What is wrong with the image that this process runs in.
pub async fn find_fault(program: &Path, expected: Minor, limit: Duration) -> Option<Fault> {
    let version = tokio::time::timeout(limit, tool::server_version(program.to_owned())).await;
    match version {
        Ok(Ok(found)) if Minor::of(&found) == Some(expected) => None,
        Ok(Ok(found)) => Some(Fault::Version(RefusedImage {
            found: found.to_string(),
            expected: expected.to_string(),
        })),
        Ok(Err(error)) => Some(Fault::NotTold(error.to_string())),
        Err(_) => Some(Fault::NotTold(format!(
            "{} did not tell its version within {} seconds",
            program.display(),
            limit.as_secs()
        ))),
    }
}

/// What the Job reports that tries an image before any member gets it.
pub fn job_result(fault: &Fault) -> JobResult {
    let reason = match fault {
        Fault::Version(_) => IMAGE_VERSION_DIFFERS,
        Fault::NotTold(_) => "ImageNotRunning",
    };
    JobResult {
        version: contract::VERSION,
        run: "image-check".to_owned(),
        outcome: JobOutcome::Failed {
            reason: reason.to_owned(),
            message: fault.to_string(),
            retriable: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::samples::Scratch;

    /// What is said of an image whose etcd is this script.
    async fn check_script(script: &str) -> Option<RefusedImage> {
        check_within(script, LIMIT).await
    }

    async fn check_within(script: &str, limit: Duration) -> Option<RefusedImage> {
        let scratch = Scratch::new();
        let program = scratch.program("etcd", script);
        check(&program, Minor::V3_6, limit).await
    }

    fn refused(found: &str) -> RefusedImage {
        RefusedImage {
            found: found.to_owned(),
            expected: "3.6".to_owned(),
        }
    }

    #[tokio::test]
    async fn etcd_of_another_minor_version_is_refused_and_any_patch_version_is_not() {
        let says =
            |version: &str| format!("[ \"$*\" = --version ] && echo 'etcd Version: {version}\nGit SHA: 1'");
        for version in ["3.6.0", "3.6.16", "3.6.0-rc.1"] {
            assert_eq!(check_script(&says(version)).await, None, "{version}");
        }
        for version in ["3.7.3", "3.5.35", "3.8.0", "4.6.1"] {
            assert_eq!(check_script(&says(version)).await, Some(refused(version)));
        }
    }

    #[tokio::test]
    async fn what_does_not_tell_its_version_is_not_refused() {
        for script in [
            "exit 0",
            "echo 'etcd Version: 3.7.3'; exit 1",
            "echo 'etcd Version: newest'",
            "echo 'the arm64 platform is unsupported' >&2; exit 1",
            "kill -9 $$",
        ] {
            assert_eq!(check_script(script).await, None, "{script}");
        }
        let says = Scratch::new();
        let other = says.program("etcd", "echo 'etcd Version: 3.7.3'");
        let fault = find_fault(&other, Minor::V3_6, LIMIT)
            .await
            .expect("another version");
        let JobOutcome::Failed { reason, message, .. } = job_result(&fault).outcome else {
            panic!("not failed");
        };
        assert_eq!(
            (reason.as_str(), message.as_str()),
            (IMAGE_VERSION_DIFFERS, "it holds etcd 3.7.3, and 3.6 is expected")
        );
        let absent = Path::new("/no/such/etcd");
        let fault = find_fault(absent, Minor::V3_6, LIMIT).await.expect("no program");
        let JobOutcome::Failed { reason, .. } = job_result(&fault).outcome else {
            panic!("not failed");
        };
        assert_ne!(reason, IMAGE_VERSION_DIFFERS);
        assert_eq!(check(absent, Minor::V3_6, LIMIT).await, None);
    }

    #[tokio::test]
    async fn what_does_not_answer_is_waited_for_within_bounds() {
        let began = Instant::now();
        let slow = "sleep 60; echo 'etcd Version: 3.7.3'";
        assert_eq!(check_within(slow, Duration::from_secs(1)).await, None);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
