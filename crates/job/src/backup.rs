//! One run of a backup: what an earlier try did is found, what is another's is left alone, members are asked in turn, and
//! the run ends with a backup that counts or with nothing.

mod attempt;
mod place;
mod swap;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::{BackupTask, JobOrder, Manifest};
use etcd_operator_etcd::error::Class;
use etcd_operator_etcd::tool::Tools;
use etcd_operator_store::Store;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::attempt::Attempt;
use self::place::{Place, Replaced};
use crate::budget::Budget;
use crate::choice::{self, Candidate};
use crate::clock;
use crate::failure::Failure;
use crate::leftovers::{self, Actor};
use crate::members::{Members, Survey};
use crate::shape::Wanted;
use crate::{rehearsal, settings};

/// The time of the run is over.
const DEADLINE: &str = "Deadline";

/// What a run works with.
#[derive(Debug)]
pub struct Run<'a> {
    /// What it is told.
    pub order: &'a JobOrder,
    /// The part about backups.
    pub task: &'a BackupTask,
    /// Where the backup goes.
    pub store: Store,
    /// What is backed up.
    pub members: &'a dyn Members,
    /// Where a backup may be laid out to be checked.
    pub scratch: PathBuf,
    /// The programs of etcd with which one is restored to be checked.
    pub tools: Tools,
    /// The memory it may take.
    pub budget: Budget,
    /// When the process is asked to end.
    pub stop: CancellationToken,
}

/// What each try with a member is made with.
struct Tries<'a> {
    place: &'a Place,
    candidates: &'a [Candidate],
    wanted: &'a Arc<Wanted>,
    started: Timestamp,
}

impl Run<'_> {
    /// Stores a backup, or finds that an earlier try has.
    pub async fn backup(&self) -> Result<Manifest, Failure> {
        let started = clock::now();
        let wanted = self.wanted()?;
        let path = self.order.store.path.as_str();
        let actor = Actor {
            owner: &self.order.owner_uid,
            run: &self.order.run,
            now: started,
        };
        let mut place = Place::look(&self.store, path).await?;
        if let Some(manifest) = place.made_by(actor) {
            tracing::info!(
                object = manifest.object,
                "an earlier try of this run has stored the backup"
            );
            return Ok(manifest);
        }
        if started >= self.task.deadline {
            return Err(self.over());
        }
        if self.task.verification == Verification::Restore {
            // Better known before a gibibyte is stored than after.
            rehearsal::version(&self.tools).await?;
        }
        let swept = leftovers::sweep(&self.store, &mut place.catalog, actor).await?;
        let candidates = self.candidates().await?;
        if let Some(best) = candidates.first()
            && !self.task.allow_others
        {
            place.refuse_others(actor, &best.cluster.to_string(), path)?;
        }
        let replaced = place
            .replaced(&self.store, self.task, actor, path, &swept)
            .await?;
        if replaced == Replaced::Beside {
            tracing::info!(
                kept = path,
                "what this EtcdBackup stored before stays: the new backup has revision and time in its name"
            );
        }
        let tries = Tries {
            place: &place,
            candidates: &candidates,
            wanted: &wanted,
            started,
        };
        match &replaced {
            Replaced::Backup(old) => {
                let make = self.try_each(&tries, &Replaced::Beside);
                Box::pin(swap::replace(self, actor, old, make)).await
            }
            other => self.try_each(&tries, other).await,
        }
    }

    /// Asks one member after the other.
    async fn try_each(&self, tries: &Tries<'_>, replaced: &Replaced) -> Result<Manifest, Failure> {
        let mut last = None;
        for candidate in tries.candidates {
            let attempt = Attempt {
                run: self,
                candidate,
                wanted: tries.wanted,
                started: tries.started,
                replaced,
            };
            match attempt.make(tries.place).await {
                Ok(manifest) => return Ok(manifest),
                Err(failure) if is_the_members(&failure) => {
                    tracing::warn!(member = candidate.title(), %failure, "this member's snapshot was not had");
                    last = Some(failure.while_doing(&format!("member {}", candidate.title())));
                }
                Err(failure) if failure.reason == DEADLINE => return Err(given_up(failure, last)),
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::passing("NoMember", "no member answers")))
    }

    fn over(&self) -> Failure {
        Failure::lasting(
            DEADLINE,
            format!("the run was to be over at {}", self.task.deadline),
        )
    }

    fn wanted(&self) -> Result<Arc<Wanted>, Failure> {
        let key = self.task.keys.as_deref().map(settings::sealing_key).transpose()?;
        Ok(Arc::new(Wanted {
            is_compressed: self.task.compression == etcd_operator_api::backup::Compression::Zstd,
            key,
        }))
    }

    async fn candidates(&self) -> Result<Vec<Candidate>, Failure> {
        let wanted = self.task.cluster_id.as_deref().map(str::parse).transpose();
        let wanted = wanted.map_err(|error| Failure::order(format!("clusterID: {error}")))?;
        let Survey { found, errors } = self.members.survey().await;
        for error in &errors {
            tracing::warn!(%error, "an endpoint does not answer");
        }
        choice::order(found, wanted).map_err(|none| {
            let failure = Failure::from(none);
            let Some(first) = errors.first() else {
                return failure;
            };
            let all_refuse = errors.iter().all(|error| error.class() == Class::Unauthorised);
            let more = match errors.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let message = format!("{failure}: {first}{more}");
            if all_refuse {
                return Failure::lasting("Unauthorised", message);
            }
            Failure { message, ..failure }
        })
    }

    /// Why the run ends now, if it does: it never comes to an end otherwise.
    async fn halted(&self) -> Failure {
        let left = self.task.deadline.duration_since(clock::now()).unsigned_abs();
        tokio::select! {
            () = self.stop.cancelled() => Failure::passing("Stopped", "the process was asked to end"),
            () = tokio::time::sleep(left) => self.over(),
        }
    }
}

/// The end of a run's time, told with what used it up, if that is known.
fn given_up(over: Failure, last: Option<Failure>) -> Failure {
    match last {
        Some(last) => Failure {
            message: format!("{last} (given up, as {over})"),
            is_retriable: over.is_retriable,
            ..last
        },
        None => over,
    }
}

/// Whether another member may do better.
fn is_the_members(failure: &Failure) -> bool {
    matches!(
        failure.reason.as_ref(),
        "StreamBroken" | "SnapshotDamaged" | rehearsal::FAILED | "Unauthorised" | "Unsupported"
    )
}
