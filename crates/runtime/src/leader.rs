//! Leader election against the API server: carries out what [`lease`](crate::lease) decides.
//!
//! Every call is bounded and every write replaces a version. Informers do not depend on this: a standby stays warm.

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
use crate::fence::{Leadership, Tenure};
use crate::jitter::Jitter;
use crate::lease::{Candidate, Decision, Record, Timing, Write};
use crate::metrics::Metrics;

/// Bound on every call: two of them and a pause fit into what a leader believes.
const CALL: Duration = Duration::from_secs(2);

/// Pause after a call that failed.
const RETRY: Duration = Duration::from_millis(500);

/// The promise in a lease that its holder has released: shorter than any holder's, so that it is a mark. A lease whose
/// holder was emptied by hand has another one.
const RELEASED: i32 = 1;

/// Leadership was lost; the process should end, for it no longer knows what others have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease could not be renewed in time; another process may lead now")]
pub struct Lost;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Read,
    Write,
}

impl Verb {
    const fn failed(self) -> &'static str {
        match self {
            Self::Read => "cannot be read",
            Self::Write => "cannot be written",
        }
    }
}

/// A candidate for one lease.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    candidate: Candidate,
    timing: Timing,
    clock: SharedClock,
    metrics: Metrics,
    tenure: Tenure,
    /// The lease as it was last read or written: what others put on it stays.
    stored: Option<Lease>,
    /// The other process that was told last to hold it.
    holder: Option<String>,
    /// The last write was a conflict.
    conflicted: bool,
}

impl Elector {
    /// A candidate for the lease `namespace/name`. `host` is for people; the identity is made unique to this process.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        host: &str,
        clock: SharedClock,
        metrics: Metrics,
    ) -> Self {
        let (_, tenure) = Leadership::standby(Arc::clone(&clock));
        let timing = Timing::default();
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            candidate: Candidate::new(format!("{host}_{}", Jitter::default().suffix()), timing),
            timing,
            clock,
            metrics,
            tenure,
            stored: None,
            holder: None,
            conflicted: false,
        }
    }

    /// What everybody who writes asks.
    pub fn leadership(&self) -> Leadership {
        self.tenure.leadership().clone()
    }

    /// The identity in the lease.
    pub fn identity(&self) -> &str {
        self.candidate.name()
    }

    /// Stands by, leads and renews until `shutdown`, then releases the lease. Cancel `shutdown` only after the
    /// controllers have drained. Ends with [`Lost`] as soon as leadership once held is held no longer.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Lost> {
        let ended = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            lost = self.campaign() => Err(lost),
        };
        self.tenure.stand_by();
        self.metrics.leading(false);
        if ended.is_ok() {
            self.release().await;
        } else {
            warn!(lease = self.name, "lost the lease");
        }
        ended
    }

    async fn campaign(&mut self) -> Lost {
        let mut led = false;
        loop {
            let now = self.clock.elapsed();
            if led && !self.candidate.leads(now) {
                return Lost;
            }
            // While leading, no wait may outlast the belief.
            let belief = self
                .candidate
                .believes_until()
                .filter(|_| led)
                .map(|end| end.saturating_sub(now));
            let step = self.step();
            match belief {
                Some(rest) => {
                    // A step cut off here may have reached the server, so what is known may be outdated.
                    if timeout(rest, step).await.is_err() {
                        self.candidate.failed();
                    }
                }
                None => step.await,
            }
            if let Some(end) = self.candidate.believes_until()
                && self.candidate.leads(self.clock.elapsed())
            {
                self.tenure.lead_until(end);
                if !led {
                    led = true;
                    self.metrics.leading(true);
                    self.metrics.lease_taken();
                    info!(lease = self.name, identity = self.candidate.name(), "leading");
                }
            }
        }
    }

    async fn step(&mut self) {
        match self.candidate.decide(self.clock.elapsed()) {
            Decision::Wait(rest) => sleep(rest.max(Duration::from_millis(1))).await,
            Decision::Read => match timeout(CALL, self.leases.get_opt(&self.name)).await {
                Ok(Ok(lease)) => {
                    let record = lease.as_ref().map(record_of);
                    self.candidate.read(record, self.clock.elapsed());
                    self.stored = lease;
                    self.reached(Verb::Read);
                    self.tell_holder();
                }
                failure => self.failed(Verb::Read, failure.map(Result::err)).await,
            },
            Decision::Write(write) => {
                let started = self.clock.elapsed();
                match timeout(CALL, self.write(&write)).await {
                    Ok(Ok(lease)) => {
                        self.candidate
                            .wrote(record_of(&lease), started, self.clock.elapsed());
                        self.stored = Some(lease);
                        self.reached(Verb::Write);
                    }
                    failure => self.failed(Verb::Write, failure.map(Result::err)).await,
                }
            }
        }
    }

    /// A call succeeded. A read takes back only what was said of reads: writes may still be refused.
    fn reached(&mut self, verb: Verb) {
        if verb == Verb::Write {
            self.conflicted = false;
        }
        let trouble = self.tenure.leadership().trouble();
        let over =
            trouble.is_some_and(|trouble| verb == Verb::Write || trouble.starts_with(Verb::Read.failed()));
        if over && self.tenure.trouble(None) {
            info!(lease = self.name, "the lease is within reach again");
        }
    }

    /// Tells whom this process waits for: once, and anew when that is another one.
    fn tell_holder(&mut self) {
        let spec = self.stored.as_ref().and_then(|lease| lease.spec.as_ref());
        let is_another = |holder: &&String| !holder.is_empty() && *holder != self.candidate.name();
        let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
        let holder = holder.filter(is_another).cloned();
        if let Some(holder) = holder.as_ref().filter(|_| holder != self.holder) {
            let since = spec.and_then(|spec| spec.acquire_time.as_ref());
            let since = since.map_or_else(|| "nobody knows when".to_owned(), |since| since.0.to_string());
            info!(
                lease = self.name,
                holder, since, "another process holds the lease"
            );
        }
        self.holder = holder;
    }

    async fn failed<T>(&mut self, verb: Verb, failure: Result<Option<Error>, T>) {
        self.candidate.failed();
        let why = match failure {
            Ok(Some(Error::Api(status))) => {
                // Somebody else was first: look at once.
                if status.code == 409 && !std::mem::replace(&mut self.conflicted, true) {
                    return;
                }
                format!("{} ({})", status.message, status.code)
            }
            Ok(Some(error)) => error.to_string(),
            Ok(None) | Err(_) => format!("no answer within {CALL:?}"),
        };
        let trouble = format!("{}: {why}", verb.failed());
        // Told once, not at every try.
        if self.tenure.trouble(Some(trouble.clone())) {
            warn!(lease = self.name, "the lease {trouble}");
        }
        sleep(RETRY).await;
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

    async fn release(&mut self) {
        let Some(write) = self.candidate.retire(self.clock.elapsed()) else {
            return;
        };
        match timeout(CALL, self.write(&write)).await {
            Ok(Ok(_)) => info!(lease = self.name, "released"),
            Ok(Err(error)) => warn!(lease = self.name, "the lease could not be released: {error}"),
            Err(_) => warn!(
                lease = self.name,
                "no answer to the release of the lease within {CALL:?}"
            ),
        }
    }

    /// The lease to be: as it was read, but for what is ours to say.
    fn lease(&self, write: &Write) -> Lease {
        // Times in the lease are for people; no decision reads them.
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
            Some(_) => i32::try_from(self.timing.duration.as_secs()).ok(),
            None => Some(RELEASED),
        };
        spec.lease_transitions = Some(write.transitions);
        spec.renew_time = Some(now);
        lease
    }
}

fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        released: holder.is_none() && spec.lease_duration_seconds == Some(RELEASED),
        holder,
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}
