//! Managers competing for one Lease, in paused time.

use super::*;
use crate::clock::TestClock;
use crate::fake::{Call, Reply, Server};
use crate::gate::State;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::task::JoinHandle;

/// A Lease with the API server's optimistic locking. With `is_down`, no call is answered.
#[derive(Clone, Default)]
struct StoredLease {
    lease: Arc<Mutex<Option<Value>>>,
    is_down: Arc<Mutex<bool>>,
    versions: Arc<Mutex<u64>>,
}

impl StoredLease {
    fn server(&self) -> Server {
        let this = self.clone();
        Server::new(move |call| this.serve(call))
    }

    fn serve(&self, call: &Call) -> Reply {
        if *self.is_down.lock().unwrap() {
            return Reply::NoAnswer;
        }
        let mut lease = self.lease.lock().unwrap();
        let stored = |lease: &Option<Value>| lease.as_ref().map(|l| l["metadata"]["resourceVersion"].clone());
        let sent = Some(call.body["metadata"]["resourceVersion"].clone()).filter(|v| !v.is_null());
        match call.method.as_str() {
            "GET" => lease.clone().map_or_else(|| Reply::error(404, "none"), Reply::ok),
            "PUT" if lease.is_none() => Reply::error(404, "none"),
            _ if sent != stored(&lease) => Reply::error(409, "changed"),
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

    /// Another client changes the Lease.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let (mut lease, mut versions) = (self.lease.lock().unwrap(), self.versions.lock().unwrap());
        let lease = lease.as_mut().unwrap();
        *versions += 1;
        lease["metadata"]["resourceVersion"] = json!(versions.to_string());
        change(lease);
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
    running: JoinHandle<Result<(), LeadershipLost>>,
    metrics: Metrics,
}

fn start_manager(stored: &StoredLease, clock: &SharedClock) -> Manager {
    start_manager_on(stored.server(), clock)
}

fn start_manager_on(server: Server, clock: &SharedClock) -> Manager {
    let metrics = Metrics::new("1", "c");
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

/// Seconds after which a process that found no Lease is the leader.
const ACQUIRE_SECONDS: f64 = 7.5;

async fn advance(seconds: f64) {
    let never = std::future::pending::<()>();
    assert!(timeout(Duration::from_secs_f64(seconds), never).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_the_lease() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    let second = start_manager(&stored, &clock);
    for _ in 0..300 {
        advance(1.0).await;
        assert!(first.leadership.is_leader() && !second.leadership.is_leader());
    }
    assert_eq!(stored.spec()["holderIdentity"], json!(first.identity));
    assert_eq!(stored.spec()["leaseTransitions"], json!(0));
    assert!(first.metrics.encode().contains("etcd_operator_leader 1\n"));
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_hands_over_within_two_seconds() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    let second = start_manager(&stored, &clock);
    advance(5.0).await;
    first.shutdown.cancel();
    advance(2.0).await;
    assert_eq!(first.running.await.unwrap(), Ok(()));
    assert!(second.leadership.is_leader());
    assert_eq!(stored.spec()["leaseTransitions"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_within_fifteen_seconds() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    let second = start_manager(&stored, &clock);
    advance(5.0).await;
    first.running.abort();
    advance(8.0).await;
    assert!(!first.leadership.is_leader() && !second.leadership.is_leader());
    advance(7.0).await;
    assert!(second.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_the_api_server_stops_before_another_may_lead() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let manager = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    advance(5.0).await;
    assert!(manager.leadership.is_leader());
    *stored.is_down.lock().unwrap() = true;
    advance(7.1).await;
    assert!(!manager.leadership.is_leader());
    assert_eq!(manager.running.await.unwrap(), Err(LeadershipLost));
    assert!(manager.metrics.encode().contains("etcd_operator_leader 0\n"));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_does_not_end_leadership() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let manager = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    advance(5.0).await;
    *stored.is_down.lock().unwrap() = true;
    advance(3.0).await;
    *stored.is_down.lock().unwrap() = false;
    advance(60.0).await;
    assert!(manager.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_calls_every_two_seconds_and_no_more() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let manager = start_manager(&stored, &clock);
    advance(60.5).await;
    let calls = manager.server.calls().len();
    assert!((30..=33).contains(&calls), "{calls} calls in a minute");
}

/// Checks both every ten milliseconds for twenty seconds. Returns how often both led, and whether `second` leads at the
/// end.
async fn watch_both(first: &Leadership, second: &Leadership) -> (usize, bool) {
    let mut both = 0;
    for _ in 0..2000 {
        advance(0.01).await;
        both += usize::from(first.is_leader() && second.is_leader());
    }
    (both, second.is_leader())
}

#[tokio::test(start_paused = true)]
async fn a_process_that_finds_no_lease_waits_until_the_holder_of_a_deleted_one_expired() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(20.05).await;
    assert!(first.leadership.is_leader());
    *stored.lease.lock().unwrap() = None;
    let second = start_manager(&stored, &clock);
    assert_eq!(watch_both(&first.leadership, &second.leadership).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_cleared_by_hand_is_not_replaced_while_it_may_lead() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(12.0).await;
    let second = start_manager(&stored, &clock);
    advance(8.05).await;
    assert!(first.leadership.is_leader());
    stored.edit(|lease| lease["spec"]["holderIdentity"] = json!(""));
    assert_eq!(watch_both(&first.leadership, &second.leadership).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn repeated_conflicts_are_retried_with_a_delay() {
    let mut count = 0;
    let server = Server::new(move |call| {
        count += 1;
        let lease = json!({"metadata": {"name": "etcd", "resourceVersion": "1"},
                           "spec": {"leaseDurationSeconds": 1}});
        match call.method.as_str() {
            // A loop without a delay would never end in paused time.
            _ if count > 1000 => Reply::NoAnswer,
            "GET" => Reply::ok(lease),
            _ => Reply::error(409, "changed"),
        }
    });
    let manager = start_manager_on(server, &TestClock::shared());
    advance(10.0).await;
    let calls = manager.server.calls().len();
    assert!((10..50).contains(&calls), "{calls} calls in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_foreign_fields_and_the_acquire_time() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let manager = start_manager(&stored, &clock);
    advance(20.0).await;
    let acquired = stored.spec()["acquireTime"].clone();
    assert!(acquired.is_string(), "{acquired}");
    stored.edit(|lease| {
        lease["metadata"]["labels"] = json!({"team": "storage"});
        lease["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Namespace", "name": "ops", "uid": "u"}]);
    });
    advance(10.0).await;
    assert!(manager.leadership.is_leader());
    let lease = stored.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["metadata"]["labels"], json!({"team": "storage"}));
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], json!("u"));
    assert_eq!(lease["spec"]["acquireTime"], acquired);
    assert_ne!(lease["spec"]["renewTime"], acquired);
}

/// Captures the log lines of the elector.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(tracing::Level, String)>>>);

impl Log {
    /// Captures the log of this thread.
    ///
    /// With a single subscriber in the process, `tracing` caches per log statement whether it is enabled. The first thread
    /// that reaches the statement decides, and threads of other tests have no subscriber. A second dispatcher disables that
    /// cache.
    fn subscribe() -> (Self, tracing::Dispatch, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let guard = tracing::subscriber::set_default(log.clone());
        (log, second, guard)
    }

    /// The lines of this level that contain `words`.
    fn lines(&self, level: tracing::Level, words: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let matching = lines
            .iter()
            .filter(|(of, line)| *of == level && line.contains(words));
        matching.map(|(_, line)| line.clone()).collect()
    }
}

/// The fields of one log line.
#[derive(Default)]
struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0
            .push_str(&[field.name(), "=", &format!("{value:?}"), " "].concat());
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target() == "etcd_operator_runtime::leader" {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push((*event.metadata().level(), line.0));
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_lease_problem_is_logged_once_and_shown_until_it_is_resolved() {
    let (log, _second, _guard) = Log::subscribe();
    let warnings = || log.lines(tracing::Level::WARN, "").len();
    let (stored, code) = (StoredLease::default(), Arc::new(Mutex::new(403)));
    let (store, refusal) = (stored.clone(), code.clone());
    let server = Server::new(move |call| match *refusal.lock().unwrap() {
        0 => store.serve(call),
        code => Reply::error(code, "leases is forbidden"),
    });
    let manager = start_manager_on(server, &TestClock::shared());
    let health = crate::health::Health::new(
        vec![],
        manager.leadership.clone(),
        Liveness::new(TestClock::shared()),
        manager.metrics.clone(),
    );
    advance(60.0).await;
    let page = "waiting lease: cannot be read: leases is forbidden (403)\n".to_owned();
    assert_eq!(health.readiness(), (false, page));
    assert_eq!(warnings(), 1);
    *code.lock().unwrap() = 500;
    advance(60.0).await;
    assert_eq!(warnings(), 2, "another cause is logged again");
    *code.lock().unwrap() = 0;
    advance(20.0).await;
    assert_eq!(health.readiness(), (true, "ok lease: leading\n".to_owned()));
    *code.lock().unwrap() = 403;
    advance(3.0).await;
    let (ready, page) = health.readiness();
    assert!(
        ready && page.contains("leading, but the lease cannot be"),
        "{page}"
    );
}

#[tokio::test(start_paused = true)]
async fn each_holder_of_the_lease_is_logged_once() {
    let (log, _second, _guard) = Log::subscribe();
    let held = || log.lines(tracing::Level::INFO, "another process holds the lease");
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let first = start_manager(&stored, &clock);
    advance(ACQUIRE_SECONDS).await;
    assert_eq!(held(), [""; 0], "there is no other holder");
    let _second = start_manager(&stored, &clock);
    advance(60.0).await;
    let lines = held();
    let since = stored.spec()["acquireTime"].as_str().unwrap()[..19].to_owned();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains(&first.identity) && lines[0].contains(&since),
        "{lines:?}"
    );
    stored.edit(|lease| lease["spec"]["holderIdentity"] = json!("another-process"));
    advance(5.0).await;
    let lines = held();
    let by_both = lines.iter().filter(|line| line.contains("another-process"));
    assert_eq!(by_both.count(), 2, "both managers log it: {lines:?}");
}

fn elector(stored: &StoredLease, clock: &SharedClock) -> Elector {
    let (client, metrics) = (stored.server().client(), Metrics::new("1", "c"));
    Elector::new(client, "ops", "etcd", "host", clock.clone(), metrics)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_hangs_gives_up_the_lease_and_does_not_acquire_it() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let liveness = Liveness::new(clock.clone());
    let leading = elector(&stored, &clock).liveness(&liveness);
    let leadership = leading.leadership();
    let running = tokio::spawn(leading.run(CancellationToken::new()));
    advance(ACQUIRE_SECONDS).await;
    assert!(leadership.is_leader());
    let hanging = liveness.start("the controller cluster", Duration::from_secs(10));
    advance(10.0).await;
    assert!(leadership.is_leader(), "the heartbeat is not overdue yet");
    advance(7.5).await;
    let ended = timeout(Duration::from_secs(1), running).await.unwrap();
    assert_eq!(ended.unwrap(), Err(LeadershipLost));

    // Nothing else hangs in the next process.
    let next = start_manager(&stored, &clock);
    let again = elector(&stored, &clock).liveness(&liveness);
    let (hung, stop) = (again.leadership(), CancellationToken::new());
    tokio::spawn(again.run(stop.clone()));
    advance(30.0).await;
    assert!(next.leadership.is_leader() && !hung.is_leader());
    next.shutdown.cancel();
    advance(30.0).await;
    assert!(!hung.is_leader(), "a released lease");
    drop(hanging);
    advance(3.0).await;
    assert!(hung.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_stores_are_not_synced_does_not_acquire_the_lease() {
    let (stored, clock) = (StoredLease::default(), TestClock::shared());
    let pods = Gate::waiting("Pod", "listing");
    let waiting = elector(&stored, &clock).gates(vec![pods.clone()]);
    let leadership = waiting.leadership();
    tokio::spawn(waiting.run(CancellationToken::new()));
    advance(60.0).await;
    assert_eq!(stored.spec(), Value::Null, "the lease is left to other processes");
    pods.set(State::Ready);
    advance(ACQUIRE_SECONDS + 1.0).await;
    assert!(leadership.is_leader());
    pods.set(State::Waiting("listing again".to_owned()));
    advance(60.0).await;
    assert!(leadership.is_leader(), "a leader keeps the lease");
}
