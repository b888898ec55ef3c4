//! One run of a backup.
//!
//! It looks for what an earlier try of the run stored, leaves other owners' backups alone, and tries the members one after
//! the other. It ends with a backup that counts or with nothing.

mod attempt;
mod destination;
mod replacement;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{BackupTask, JobOrder, Manifest};
use etcd_operator_etcd::error::{Class, Error};
use etcd_operator_etcd::tool::Tools;
use etcd_operator_store::Store;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::attempt::Attempt;
use self::destination::{Destination, ExistingObject};
use crate::budget::Budget;
use crate::clock;
use crate::encoder::Encoding;
use crate::failure::{CLIENT_TLS, Failure};
use crate::leftovers::{self, RunIdentity};
use crate::member_choice::{self, Candidate, NoUsableMember};
use crate::members::{Members, Survey};
use crate::{settings, test_restore};

/// The failure reason of a run that is out of time.
const DEADLINE: &str = "Deadline";

/// What a run works with.
#[derive(Debug)]
pub struct Run<'a> {
    /// The order.
    pub order: &'a JobOrder,
    /// The backup task of the order.
    pub task: &'a BackupTask,
    /// Where the backup is stored.
    pub store: Store,
    /// The members of the etcd cluster to back up.
    pub members: &'a dyn Members,
    /// The scratch directory, in which a backup is verified.
    pub scratch: PathBuf,
    /// etcd's own programs, which restore a backup for its verification.
    pub tools: Tools,
    /// The memory budget.
    pub budget: Budget,
    /// Cancelled when the process is asked to terminate.
    pub stop: CancellationToken,
}

/// What the tries with all members have in common.
struct Tries<'a> {
    destination: &'a Destination,
    candidates: &'a [Candidate],
    encoding: &'a Arc<Encoding>,
    started: Timestamp,
}

impl Run<'_> {
    /// Stores a backup, or finds the one that an earlier try of this run stored.
    pub async fn backup(&self) -> Result<Manifest, Failure> {
        let started = clock::now();
        let encoding = self.encoding()?;
        let path = self.order.store.path.as_str();
        let identity = RunIdentity {
            owner: &self.order.owner_uid,
            run: &self.order.run,
            now: started,
            is_last: false,
        };
        let mut destination = Destination::read(&self.store, path).await?;
        if let Some(manifest) = destination.backup_of_run(identity) {
            tracing::info!(
                object = manifest.object,
                "an earlier try of this run stored the backup"
            );
            return Ok(manifest);
        }
        if started >= self.task.deadline {
            return Err(self.deadline_exceeded());
        }
        if self.task.verification == Verification::Restore {
            // An unusable etcd image is reported before gibibytes are stored.
            test_restore::supported_version(&self.tools).await?;
        }
        let swept = leftovers::sweep(&self.store, &mut destination.catalog, identity).await?;
        let candidates = self.candidates().await?;
        if let Some(best) = candidates.first()
            && !self.task.allow_others
        {
            destination.refuse_other_cluster(identity, &best.cluster.to_string(), path)?;
        }
        let existing = destination
            .existing_object(&self.store, self.task, identity, path, &swept)
            .await?;
        if existing == ExistingObject::OwnBackup {
            tracing::info!(
                kept = path,
                "the earlier backup of this EtcdBackup stays: the new one gets revision and time in its name"
            );
        }
        let tries = Tries {
            destination: &destination,
            candidates: &candidates,
            encoding: &encoding,
            started,
        };
        match &existing {
            ExistingObject::BackupToReplace(old_manifest) => {
                let make = self.try_members(&tries, &ExistingObject::OwnBackup);
                Box::pin(replacement::replace(self, identity, old_manifest, make)).await
            }
            other => self.try_members(&tries, other).await,
        }
    }

    /// Tries to store the snapshot of one member after the other. Only a failure that concerns the member leads to the
    /// next.
    async fn try_members(&self, tries: &Tries<'_>, existing: &ExistingObject) -> Result<Manifest, Failure> {
        let mut last = None;
        for candidate in tries.candidates {
            let attempt = Attempt {
                run: self,
                candidate,
                encoding: tries.encoding,
                started: tries.started,
                existing,
            };
            match attempt.run(tries.destination).await {
                Ok(manifest) => return Ok(manifest),
                Err(failure) if is_member_failure(&failure) => {
                    let member = candidate.display_name();
                    tracing::warn!(member, %failure, "cannot back up this member");
                    last = Some(failure.with_context(&format!("member {member}")));
                }
                Err(failure) if failure.reason == DEADLINE => return Err(with_cause(failure, last)),
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::retriable("NoMember", "no member answers")))
    }

    fn deadline_exceeded(&self) -> Failure {
        Failure::permanent(
            DEADLINE,
            format!("the run exceeded its deadline {}", self.task.deadline),
        )
    }

    fn encoding(&self) -> Result<Arc<Encoding>, Failure> {
        let directory = self.task.keys.as_deref();
        let key = directory.map(settings::read_encryption_key).transpose()?;
        Ok(Arc::new(Encoding {
            is_compressed: self.task.compression == Compression::Zstd,
            key,
        }))
    }

    /// The members that can be backed up, the best first.
    async fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        let wanted = self.task.cluster_id.as_deref().map(str::parse).transpose();
        let wanted = wanted.map_err(|error| Failure::bad_order(format!("clusterID: {error}")))?;
        let Survey { found, errors } = self.members.survey().await;
        for error in &errors {
            tracing::warn!(%error, "an endpoint does not answer");
        }
        member_choice::rank(found, wanted).map_err(|none| survey_failure(none, &errors))
    }

    /// Returns when the run must stop, with the reason: its deadline, or the termination of the process.
    async fn wait_until_stopped(&self) -> Failure {
        let left = clock::time_until(self.task.deadline);
        tokio::select! {
            () = self.stop.cancelled() => Failure::retriable("Stopped", "the process was asked to terminate"),
            () = tokio::time::sleep(left) => self.deadline_exceeded(),
        }
    }
}

/// Why no member can be backed up, with the first error of the survey.
fn survey_failure(none: NoUsableMember, errors: &[Error]) -> Failure {
    let is_silent = none == NoUsableMember::NoAnswer;
    let failure = Failure::from(none);
    let Some(first) = errors.first() else {
        return failure;
    };
    let more = match errors.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message = format!("{failure}: {first}{more}");
    let are_all = |class| errors.iter().all(|error| error.class() == class);
    if are_all(Class::Unauthorised) {
        return Failure::permanent("Unauthorised", message);
    }
    if is_silent && are_all(Class::Tls) {
        // Certificates may be renewed meanwhile.
        return Failure::retriable(CLIENT_TLS, message);
    }
    Failure { message, ..failure }
}

/// A missed deadline, reported with the failure that used up the time, if there is one.
fn with_cause(deadline_exceeded: Failure, last: Option<Failure>) -> Failure {
    match last {
        Some(last) => Failure {
            message: format!("{last}; then {deadline_exceeded}"),
            is_retriable: deadline_exceeded.is_retriable,
            ..last
        },
        None => deadline_exceeded,
    }
}

/// Whether a failure concerns this member, so that another one may succeed.
fn is_member_failure(failure: &Failure) -> bool {
    matches!(
        failure.reason.as_ref(),
        "StreamBroken" | "SnapshotDamaged" | test_restore::RESTORE_FAILED | "Unauthorised" | "Unsupported"
    )
}

#[cfg(test)]
mod tests {
    use etcd_operator_etcd::error::{Cause, TlsError, TlsFault};

    use super::*;

    #[test]
    fn members_that_fail_for_tls_alone_are_blamed_on_the_client_certificate_and_asked_again() {
        let error = |cause| Error {
            endpoint: "https://c-0:2379".parse().expect("a URL"),
            call: "Connect",
            cause,
        };
        let tls = error(Cause::Tls(TlsError {
            fault: TlsFault::MemberCertificate,
            text: "invalid peer certificate: UnknownIssuer".to_owned(),
        }));
        let silent = error(Cause::Unreachable("refused".to_owned()));
        let failure = survey_failure(NoUsableMember::NoAnswer, &[tls.clone(), tls.clone()]);
        assert_eq!((&*failure.reason, failure.is_retriable), (CLIENT_TLS, true));
        assert!(
            failure.message.contains("UnknownIssuer (and 1 more)"),
            "{failure}"
        );
        let mixed = survey_failure(NoUsableMember::NoAnswer, &[tls.clone(), silent]);
        assert_eq!(mixed.reason, "NoMember");
        let other = survey_failure(NoUsableMember::DifferentClusters("1, 2".to_owned()), &[tls]);
        assert_eq!(other.reason, "OtherCluster");
    }
}
