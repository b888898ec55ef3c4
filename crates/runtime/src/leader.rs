//! Leader election against the API server: carries out what [`lease`](crate::lease) decides.
//!
//! Every call is bounded and every write replaces a version. Informers do not depend on this: a standby stays warm.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock::SharedClock;
use crate::fence::{Leadership, Tenure};
use crate::jitter;
use crate::lease::{Candidate, Decision, Record, Timing, Write};
use crate::metrics::Metrics;

/// Bound on every call: two of them and a pause fit into what a leader believes.
const CALL: Duration = Duration::from_secs(2);

/// Pause after a call that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Leadership was lost; the process should end, for it no longer knows what others have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease could not be renewed in time; another process may lead now")]
pub struct Lost;

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
            candidate: Candidate::new(format!("{host}_{}", jitter::suffix()), timing),
            timing,
            clock,
            metrics,
            tenure,
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
                }
                failure => self.failed("read", failure.map(Result::err)).await,
            },
            Decision::Write(write) => {
                let started = self.clock.elapsed();
                match timeout(CALL, self.write(&write)).await {
                    Ok(Ok(lease)) => self
                        .candidate
                        .wrote(record_of(&lease), started, self.clock.elapsed()),
                    failure => self.failed("write", failure.map(Result::err)).await,
                }
            }
        }
    }

    async fn failed<T>(&mut self, verb: &str, failure: Result<Option<Error>, T>) {
        self.candidate.failed();
        match failure {
            // Somebody else was first: look at once.
            Ok(Some(Error::Api(status))) if status.code == 409 => return,
            Ok(Some(error)) => debug!(lease = self.name, "cannot {verb} the lease: {error}"),
            Ok(None) | Err(_) => debug!(
                lease = self.name,
                "no answer to a {verb} of the lease within {CALL:?}"
            ),
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
        let Some(write) = self.candidate.retire() else {
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

    fn lease(&self, write: &Write) -> Lease {
        // Times in the lease are for people; no decision reads them.
        let now = MicroTime(self.clock.now());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: write.replaces.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(write.holder.clone().unwrap_or_default()),
                lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
                lease_transitions: Some(write.transitions),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }
}

fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or_default();
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::fake::{Call, Reply, Server};
    use serde_json::{Value, json};
    use std::sync::Mutex;
    use tokio::task::JoinHandle;

    /// One lease, kept the way the API server keeps it; `down` makes every call unanswered.
    #[derive(Clone, Default)]
    struct Shelf {
        lease: Arc<Mutex<Option<Value>>>,
        down: Arc<Mutex<bool>>,
        versions: Arc<Mutex<u64>>,
    }

    impl Shelf {
        fn server(&self) -> Server {
            let this = self.clone();
            Server::new(move |call| this.serve(call))
        }

        fn serve(&self, call: &Call) -> Reply {
            if *self.down.lock().unwrap() {
                return Reply::Silence;
            }
            let mut lease = self.lease.lock().unwrap();
            let stored =
                |lease: &Option<Value>| lease.as_ref().map(|l| l["metadata"]["resourceVersion"].clone());
            let sent = Some(call.body["metadata"]["resourceVersion"].clone()).filter(|v| !v.is_null());
            match call.method.as_str() {
                "GET" => lease.clone().map_or_else(|| Reply::no(404, "none"), Reply::ok),
                _ if sent != stored(&lease) => Reply::no(409, "changed"),
                _ => {
                    let mut versions = self.versions.lock().unwrap();
                    *versions += 1;
                    let mut new = call.body.clone();
                    new["metadata"]["resourceVersion"] = json!(versions.to_string());
                    *lease = Some(new.clone());
                    Reply::ok(new)
                }
            }
        }

        fn spec(&self) -> Value {
            self.lease
                .lock()
                .unwrap()
                .as_ref()
                .map(|l| l["spec"].clone())
                .unwrap_or_default()
        }
    }

    struct Manager {
        leadership: Leadership,
        identity: String,
        shutdown: CancellationToken,
        server: Server,
        running: JoinHandle<Result<(), Lost>>,
        metrics: Metrics,
    }

    fn manager(shelf: &Shelf, clock: &SharedClock) -> Manager {
        let (server, metrics) = (shelf.server(), Metrics::new("1", "c"));
        let elector = Elector::new(
            server.client(),
            "ops",
            "etcd",
            "host",
            clock.clone(),
            metrics.clone(),
        );
        let (leadership, identity) = (elector.leadership(), elector.identity().to_owned());
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(elector.run(shutdown.clone()));
        Manager {
            leadership,
            identity,
            shutdown,
            server,
            running,
            metrics,
        }
    }

    async fn pass(seconds: f64) {
        let never = std::future::pending::<()>();
        assert!(timeout(Duration::from_secs_f64(seconds), never).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_leads_and_keeps_the_lease() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let first = manager(&shelf, &clock);
        pass(0.5).await;
        let second = manager(&shelf, &clock);
        for _ in 0..300 {
            pass(1.0).await;
            assert!(first.leadership.leads() && !second.leadership.leads());
        }
        assert_eq!(shelf.spec()["holderIdentity"], json!(first.identity));
        assert_eq!(shelf.spec()["leaseTransitions"], json!(0));
        assert!(first.metrics.encode().contains("etcd_operator_leader 1\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_graceful_stop_hands_over_within_two_seconds() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let first = manager(&shelf, &clock);
        pass(0.5).await;
        let second = manager(&shelf, &clock);
        pass(5.0).await;
        first.shutdown.cancel();
        pass(2.0).await;
        assert_eq!(first.running.await.unwrap(), Ok(()));
        assert!(second.leadership.leads());
        assert_eq!(shelf.spec()["leaseTransitions"], json!(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crashed_leader_is_followed_within_fifteen_seconds() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let first = manager(&shelf, &clock);
        pass(0.5).await;
        let second = manager(&shelf, &clock);
        pass(5.0).await;
        first.running.abort();
        pass(8.0).await;
        assert!(!first.leadership.leads() && !second.leadership.leads());
        pass(7.0).await;
        assert!(second.leadership.leads());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_cut_off_from_the_api_server_stops_before_anybody_may_follow() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let manager = manager(&shelf, &clock);
        pass(5.0).await;
        assert!(manager.leadership.leads());
        *shelf.down.lock().unwrap() = true;
        pass(7.1).await;
        assert!(!manager.leadership.leads());
        assert_eq!(manager.running.await.unwrap(), Err(Lost));
        assert!(manager.metrics.encode().contains("etcd_operator_leader 0\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_outage_costs_nothing() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let manager = manager(&shelf, &clock);
        pass(5.0).await;
        *shelf.down.lock().unwrap() = true;
        pass(3.0).await;
        *shelf.down.lock().unwrap() = false;
        pass(60.0).await;
        assert!(manager.leadership.leads());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_calls_every_two_seconds_and_no_more() {
        let (shelf, clock) = (Shelf::default(), TestClock::shared());
        let manager = manager(&shelf, &clock);
        pass(60.5).await;
        let calls = manager.server.calls().len();
        assert!((30..=33).contains(&calls), "{calls} calls in a minute");
    }
}
