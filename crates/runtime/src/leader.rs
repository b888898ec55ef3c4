//! Leader election through a Lease of the API server: executes what [`lease`](crate::lease) decides.
//!
//! Every call has a timeout, and every write names the version it replaces. Informers run independently of leadership, so
//! that the stores of a standby are synced.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::SharedClock;
use crate::fence::{Leadership, LeadershipControl};
use crate::gate::Gate;
use crate::jitter::Jitter;
use crate::lease::{Candidate, Decision, Record, Timing, Write};
use crate::liveness::Liveness;
use crate::metrics::Metrics;

/// Timeout of every call. Two calls and a delay fit into the renew deadline.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay after a failed call.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Lease duration in a released lease, in seconds. It is shorter than that of any holder and so marks the release: a lease
/// whose holder a user cleared by hand has another duration.
const RELEASED_DURATION: i32 = 1;

/// Leadership was lost. The process should exit, because its state no longer reflects what the next leader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease could not be renewed in time; another process may lead now")]
pub struct LeadershipLost;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Read,
    Write,
}

impl Verb {
    const fn failure(self) -> &'static str {
        match self {
            Self::Read => "cannot be read",
            Self::Write => "cannot be written",
        }
    }
}

/// Competes for one Lease.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    candidate: Candidate,
    timing: Timing,
    clock: SharedClock,
    metrics: Metrics,
    control: LeadershipControl,
    /// A process that hangs does not write the Lease.
    liveness: Liveness,
    /// A process whose stores are not synced does not acquire the Lease.
    gates: Vec<Gate>,
    /// The Lease as last read or written, so that a renewal keeps the fields of other clients.
    stored: Option<Lease>,
    /// The other holder that was logged last.
    holder: Option<String>,
    /// The kind of call that the reported lease problem is about.
    failed_call: Option<Verb>,
    /// Whether the last write was a conflict.
    conflicted: bool,
    /// Whether a loop of this process hung when the Lease was last to be written.
    hangs: bool,
}

impl Elector {
    /// Creates a candidate for the Lease `namespace/name`. The identity is `host` with a suffix unique to this process.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        host: &str,
        clock: SharedClock,
        metrics: Metrics,
    ) -> Self {
        let (_, control) = Leadership::standby(Arc::clone(&clock));
        let timing = Timing::default();
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            candidate: Candidate::new(format!("{host}_{}", Jitter::default().suffix()), timing),
            timing,
            liveness: Liveness::new(Arc::clone(&clock)),
            gates: Vec::new(),
            clock,
            metrics,
            control,
            stored: None,
            holder: None,
            failed_call: None,
            conflicted: false,
            hangs: false,
        }
    }

    /// Stops acquiring and renewing the Lease while a loop of this process hangs.
    #[must_use]
    pub fn liveness(mut self, liveness: &Liveness) -> Self {
        self.liveness = liveness.clone();
        self
    }

    /// Acquires the Lease only while every gate is ready. Without synced stores a leader could do nothing. A leader keeps
    /// the Lease when a gate closes, because its stores may only be outdated.
    #[must_use]
    pub fn gates(mut self, gates: Vec<Gate>) -> Self {
        self.gates = gates;
        self
    }

    /// The leadership that all writers check.
    pub fn leadership(&self) -> Leadership {
        self.control.leadership().clone()
    }

    /// The identity of this process in the Lease.
    pub fn identity(&self) -> &str {
        self.candidate.identity()
    }

    /// Acquires and renews the Lease until `shutdown`, then releases it. Cancel `shutdown` only after the controllers have
    /// drained. Returns [`LeadershipLost`] as soon as this process stops being the leader.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), LeadershipLost> {
        let ended = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            lost = self.campaign() => Err(lost),
        };
        self.control.stand_by();
        self.metrics.leading(false);
        if ended.is_ok() {
            self.release().await;
        } else {
            warn!(lease = self.name, "lost the lease");
        }
        ended
    }

    /// Acquires the Lease and renews it; returns once leadership is lost.
    async fn campaign(&mut self) -> LeadershipLost {
        let mut was_leader = false;
        loop {
            let now = self.clock.elapsed();
            if was_leader && !self.candidate.is_leader(now) {
                return LeadershipLost;
            }
            // A leader must not wait beyond the end of its leadership.
            let remaining = self
                .candidate
                .leads_until()
                .filter(|_| was_leader)
                .map(|end| end.saturating_sub(now));
            let step = self.step();
            match remaining {
                Some(remaining) => {
                    // The aborted call may have reached the API server, so the known record may be outdated.
                    if timeout(remaining, step).await.is_err() {
                        self.candidate.on_failure();
                    }
                }
                None => step.await,
            }
            if let Some(end) = self.candidate.leads_until()
                && self.candidate.is_leader(self.clock.elapsed())
            {
                self.control.lead_until(end);
                if !was_leader {
                    was_leader = true;
                    self.metrics.leading(true);
                    self.metrics.lease_taken();
                    info!(lease = self.name, identity = self.candidate.identity(), "leading");
                }
            }
        }
    }

    /// Carries out the next decision of the candidate: one call, or a wait.
    async fn step(&mut self) {
        match self.candidate.decide(self.clock.elapsed()) {
            Decision::Wait(rest) => sleep(rest.max(Duration::from_millis(1))).await,
            Decision::Read => match timeout(CALL_TIMEOUT, self.leases.get_opt(&self.name)).await {
                Ok(Ok(lease)) => {
                    let record = lease.as_ref().map(to_record);
                    self.candidate.on_read(record, self.clock.elapsed());
                    self.stored = lease;
                    self.on_success(Verb::Read);
                    self.log_holder();
                }
                failure => self.on_failure(Verb::Read, failure.map(Result::err)).await,
            },
            Decision::Write(_) if !self.may_hold_lease() => {
                // The Lease may change meanwhile.
                self.candidate.on_failure();
                sleep(self.timing.retry_period).await;
            }
            Decision::Write(write) => {
                let started = self.clock.elapsed();
                match timeout(CALL_TIMEOUT, self.write(&write)).await {
                    Ok(Ok(lease)) => {
                        self.candidate
                            .on_write(to_record(&lease), started, self.clock.elapsed());
                        self.stored = Some(lease);
                        self.on_success(Verb::Write);
                    }
                    failure => self.on_failure(Verb::Write, failure.map(Result::err)).await,
                }
            }
        }
    }

    /// Whether this process may acquire or renew the Lease. Logs what hangs.
    fn may_hold_lease(&mut self) -> bool {
        let overdue = self.liveness.overdue();
        if !overdue.is_empty() && !self.hangs {
            warn!(lease = self.name, "not writing the lease: {}", overdue.join("; "));
        }
        self.hangs = !overdue.is_empty();
        let leads = self.candidate.is_leader(self.clock.elapsed());
        !self.hangs && (leads || self.gates.iter().all(Gate::is_ready))
    }

    /// Processes a successful call. A successful read clears only a read problem, because writes may still be refused.
    fn on_success(&mut self, verb: Verb) {
        if verb == Verb::Write {
            self.conflicted = false;
        }
        let is_resolved = self
            .failed_call
            .is_some_and(|failed| verb == Verb::Write || failed == Verb::Read);
        if is_resolved && self.control.set_lease_problem(None) {
            self.failed_call = None;
            info!(lease = self.name, "the lease is accessible again");
        }
    }

    /// Logs the other holder of the Lease, once per holder.
    fn log_holder(&mut self) {
        let spec = self.stored.as_ref().and_then(|lease| lease.spec.as_ref());
        let is_another = |holder: &&String| !holder.is_empty() && *holder != self.candidate.identity();
        let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
        let holder = holder.filter(is_another).cloned();
        if let Some(holder) = holder.as_ref().filter(|_| holder != self.holder) {
            let since = spec.and_then(|spec| spec.acquire_time.as_ref());
            let since = since.map_or_else(|| "unknown".to_owned(), |since| since.0.to_string());
            info!(
                lease = self.name,
                holder, since, "another process holds the lease"
            );
        }
        self.holder = holder;
    }

    /// Processes a failed call: logs each problem once, and waits before the next call. After a first conflict it does
    /// neither.
    async fn on_failure<T>(&mut self, verb: Verb, failure: Result<Option<Error>, T>) {
        self.candidate.on_failure();
        let why = match failure {
            Ok(Some(Error::Api(status))) => {
                // Another client wrote first: read again at once.
                if status.code == 409 && !std::mem::replace(&mut self.conflicted, true) {
                    return;
                }
                format!("{} ({})", status.message, status.code)
            }
            Ok(Some(error)) => error.to_string(),
            Ok(None) | Err(_) => format!("no answer within {CALL_TIMEOUT:?}"),
        };
        self.failed_call = Some(verb);
        let problem = format!("{}: {why}", verb.failure());
        // Logged once per problem, not at every attempt.
        if self.control.set_lease_problem(Some(problem.clone())) {
            warn!(lease = self.name, "the lease {problem}");
        }
        sleep(RETRY_DELAY).await;
    }

    async fn write(&self, write: &Write) -> Result<Lease, Error> {
        let lease = self.lease(write);
        match write.replaces {
            None => self.leases.create(&PostParams::default(), &lease).await,
            Some(_) => {
                self.leases
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await
            }
        }
    }

    /// Releases the Lease if this process holds it, so that the next leader need not wait. A failure is only logged.
    async fn release(&mut self) {
        let Some(write) = self.candidate.release(self.clock.elapsed()) else {
            return;
        };
        match timeout(CALL_TIMEOUT, self.write(&write)).await {
            Ok(Ok(_)) => info!(lease = self.name, "released"),
            Ok(Err(error)) => warn!(lease = self.name, "the lease could not be released: {error}"),
            Err(_) => warn!(
                lease = self.name,
                "no answer to the release of the lease within {CALL_TIMEOUT:?}"
            ),
        }
    }

    /// The Lease to write: the stored one with the operator's fields replaced.
    fn lease(&self, write: &Write) -> Lease {
        // The times in the Lease are informative; no decision reads them.
        let now = MicroTime(self.clock.now());
        let stored = self
            .stored
            .clone()
            .filter(|lease| write.replaces.is_some() && lease.metadata.resource_version == write.replaces);
        let mut lease = stored.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: write.replaces.clone(),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_default();
        let holder = Some(write.holder.clone().unwrap_or_default());
        if spec.holder_identity != holder && write.holder.is_some() {
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = holder;
        spec.lease_duration_seconds = match write.holder {
            Some(_) => i32::try_from(self.timing.lease_duration.as_secs()).ok(),
            None => Some(RELEASED_DURATION),
        };
        spec.lease_transitions = Some(write.transitions);
        spec.renew_time = Some(now);
        lease
    }
}

/// The parts of a Lease that decide. An empty holder counts as none.
fn to_record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        released: holder.is_none() && spec.lease_duration_seconds == Some(RELEASED_DURATION),
        holder,
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}
