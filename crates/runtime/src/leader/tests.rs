//! Managers against one lease, in paused time.

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
        let stored = |lease: &Option<Value>| lease.as_ref().map(|l| l["metadata"]["resourceVersion"].clone());
        let sent = Some(call.body["metadata"]["resourceVersion"].clone()).filter(|v| !v.is_null());
        match call.method.as_str() {
            "GET" => lease.clone().map_or_else(|| Reply::no(404, "none"), Reply::ok),
            "PUT" if lease.is_none() => Reply::no(404, "none"),
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

    /// Somebody else changes the lease.
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
    running: JoinHandle<Result<(), Lost>>,
    metrics: Metrics,
}

fn manager(shelf: &Shelf, clock: &SharedClock) -> Manager {
    candidate(shelf.server(), clock)
}

fn candidate(server: Server, clock: &SharedClock) -> Manager {
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

/// After this long, a process that found no lease leads.
const FIRST: f64 = 7.5;

async fn pass(seconds: f64) {
    let never = std::future::pending::<()>();
    assert!(timeout(Duration::from_secs_f64(seconds), never).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_the_lease() {
    let (shelf, clock) = (Shelf::default(), TestClock::shared());
    let first = manager(&shelf, &clock);
    pass(FIRST).await;
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
    pass(FIRST).await;
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
    pass(FIRST).await;
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
    pass(FIRST).await;
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
    pass(FIRST).await;
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

/// Leads by `first` and `second`, looked at every ten milliseconds for twenty seconds.
async fn leads_of(first: &Leadership, second: &Leadership) -> (usize, bool) {
    let mut both = 0;
    for _ in 0..2000 {
        pass(0.01).await;
        both += usize::from(first.leads() && second.leads());
    }
    (both, second.leads())
}

#[tokio::test(start_paused = true)]
async fn a_new_process_that_finds_no_lease_does_not_lead_while_the_holder_of_a_deleted_one_may() {
    let (shelf, clock) = (Shelf::default(), TestClock::shared());
    let first = manager(&shelf, &clock);
    pass(20.05).await;
    assert!(first.leadership.leads());
    *shelf.lease.lock().unwrap() = None;
    let second = manager(&shelf, &clock);
    assert_eq!(leads_of(&first.leadership, &second.leadership).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_cleared_by_hand_is_not_followed_while_it_may_lead() {
    let (shelf, clock) = (Shelf::default(), TestClock::shared());
    let first = manager(&shelf, &clock);
    pass(12.0).await;
    let second = manager(&shelf, &clock);
    pass(8.05).await;
    assert!(first.leadership.leads());
    shelf.edit(|lease| lease["spec"]["holderIdentity"] = json!(""));
    assert_eq!(leads_of(&first.leadership, &second.leadership).await, (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_always_a_conflict_is_not_repeated_without_a_pause() {
    let mut count = 0;
    let server = Server::new(move |call| {
        count += 1;
        let lease = json!({"metadata": {"name": "etcd", "resourceVersion": "1"},
                           "spec": {"leaseDurationSeconds": 1}});
        match call.method.as_str() {
            // Paused time does not pass in a loop without a pause.
            _ if count > 1000 => Reply::Silence,
            "GET" => Reply::ok(lease),
            _ => Reply::no(409, "changed"),
        }
    });
    let manager = candidate(server, &TestClock::shared());
    pass(10.0).await;
    let calls = manager.server.calls().len();
    assert!((10..50).contains(&calls), "{calls} calls in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_on_the_lease_outlives_renewals_and_the_time_of_taking_it_is_told() {
    let (shelf, clock) = (Shelf::default(), TestClock::shared());
    let manager = manager(&shelf, &clock);
    pass(20.0).await;
    let acquired = shelf.spec()["acquireTime"].clone();
    assert!(acquired.is_string(), "{acquired}");
    shelf.edit(|lease| {
        lease["metadata"]["labels"] = json!({"team": "storage"});
        lease["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Namespace", "name": "ops", "uid": "u"}]);
    });
    pass(10.0).await;
    assert!(manager.leadership.leads());
    let lease = shelf.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["metadata"]["labels"], json!({"team": "storage"}));
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], json!("u"));
    assert_eq!(lease["spec"]["acquireTime"], acquired);
    assert_ne!(lease["spec"]["renewTime"], acquired);
}

/// Keeps what candidates say.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(tracing::Level, String)>>>);

impl Log {
    /// Listens to this thread. As long as there is one subscriber in a process, the thread that comes first by a line decides
    /// for all whether it is ever heard, and those of other tests listen to none: so there are two.
    fn listens() -> (Self, tracing::Dispatch, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let guard = tracing::subscriber::set_default(log.clone());
        (log, second, guard)
    }

    /// The lines of this level that hold these words.
    fn lines(&self, level: tracing::Level, words: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let said = lines
            .iter()
            .filter(|(of, line)| *of == level && line.contains(words));
        said.map(|(_, line)| line.clone()).collect()
    }
}

/// The fields of a line, one after the other.
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
async fn what_keeps_the_lease_out_of_reach_is_said_once_and_shown_until_it_is_over() {
    let (log, _second, _guard) = Log::listens();
    let warnings = || log.lines(tracing::Level::WARN, "").len();
    let (shelf, code) = (Shelf::default(), Arc::new(Mutex::new(403)));
    let (store, refusal) = (shelf.clone(), code.clone());
    let server = Server::new(move |call| match *refusal.lock().unwrap() {
        0 => store.serve(call),
        code => Reply::no(code, "leases is forbidden"),
    });
    let manager = candidate(server, &TestClock::shared());
    let health = crate::health::Health::new(vec![], manager.leadership.clone(), manager.metrics.clone());
    pass(60.0).await;
    let page = "waiting lease: cannot be read: leases is forbidden (403)\n".to_owned();
    assert_eq!(health.readiness(), (false, page));
    assert_eq!(warnings(), 1);
    *code.lock().unwrap() = 500;
    pass(60.0).await;
    assert_eq!(warnings(), 2, "another cause is news");
    *code.lock().unwrap() = 0;
    pass(20.0).await;
    assert_eq!(health.readiness(), (true, "ok lease: leading\n".to_owned()));
    *code.lock().unwrap() = 403;
    pass(3.0).await;
    let (ready, page) = health.readiness();
    assert!(ready && page.contains("leading, but it cannot be"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn who_holds_the_lease_is_said_once_and_anew_when_that_is_another_one() {
    let (log, _second, _guard) = Log::listens();
    let held = || log.lines(tracing::Level::INFO, "another process holds the lease");
    let (shelf, clock) = (Shelf::default(), TestClock::shared());
    let first = manager(&shelf, &clock);
    pass(FIRST).await;
    assert_eq!(held(), [""; 0], "nobody else was there");
    let _second = manager(&shelf, &clock);
    pass(60.0).await;
    let lines = held();
    let since = shelf.spec()["acquireTime"].as_str().unwrap()[..19].to_owned();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains(&first.identity) && lines[0].contains(&since),
        "{lines:?}"
    );
    shelf.edit(|lease| lease["spec"]["holderIdentity"] = json!("somebody-else"));
    pass(5.0).await;
    let lines = held();
    let of_others = lines.iter().filter(|line| line.contains("somebody-else"));
    assert_eq!(of_others.count(), 2, "each of the two is told: {lines:?}");
}
