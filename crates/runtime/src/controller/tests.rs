//! The controller runner in paused time.

use super::*;
use crate::clock::{ManualClock, TestClock};
use crate::gate::State;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::time::timeout;

#[derive(Debug, thiserror::Error)]
#[error("test error")]
struct TestError(Class);

impl Classified for TestError {
    fn class(&self) -> Class {
        self.0
    }
}

struct Fixture {
    clock: SharedClock,
    metrics: Metrics,
    shutdown: CancellationToken,
    runs: Arc<Mutex<BTreeMap<String, Vec<Duration>>>>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            clock: TestClock::shared(),
            metrics: Metrics::new("1", "c"),
            shutdown: CancellationToken::new(),
            runs: Arc::default(),
        }
    }

    fn controller(&self) -> Controller {
        Controller::builder("test", self.clock.clone(), self.metrics.clone())
    }

    fn always(&self) -> Leadership {
        Leadership::always(self.clock.clone())
    }

    /// A reconcile function that records the time of every run per object.
    fn recording<E: Send + 'static>(
        &self,
        result: impl Fn(&str) -> Result<Wake, E> + Send + Sync + 'static,
    ) -> impl Fn(ObjectKey) -> std::future::Ready<Result<Wake, E>> + Send + Sync + 'static {
        let (runs, clock) = (self.runs.clone(), self.clock.clone());
        move |key| {
            runs.lock()
                .unwrap()
                .entry(key.name.clone())
                .or_default()
                .push(clock.elapsed());
            std::future::ready(result(&key.name))
        }
    }

    fn count(&self, name: &str) -> usize {
        self.runs.lock().unwrap().get(name).map_or(0, Vec::len)
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

const SUCCESS: Result<Wake, TestError> = Ok(Wake::OnChange);

/// Runs all tasks until `time` has passed. Time is paused, so the test does not wait.
async fn advance(time: Duration) {
    let never = std::future::pending::<()>();
    assert!(timeout(time, never).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_gate_is_open() {
    let fixture = Fixture::new();
    let (pods, claims) = (Gate::waiting("Pod", ""), Gate::waiting("Claim", ""));
    let controller = fixture.controller().gate(&pods).gate(&claims);
    controller.wakeup().push(key("a"));
    tokio::spawn(controller.run(
        fixture.recording(|_| SUCCESS),
        fixture.always(),
        fixture.shutdown.clone(),
    ));
    pods.set(State::Ready);
    advance(Duration::from_mins(1)).await;
    assert_eq!(fixture.count("a"), 0);
    claims.set(State::Ready);
    advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.count("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_reconciles_nothing_and_a_new_leader_everything() {
    let fixture = Fixture::new();
    let (leadership, tenure) = Leadership::standby(fixture.clock.clone());
    let controller = fixture.controller();
    let wake = controller.wakeup();
    wake.push(key("a"));
    tokio::spawn(controller.run(
        fixture.recording(|_| SUCCESS),
        leadership,
        fixture.shutdown.clone(),
    ));
    advance(Duration::from_mins(10)).await;
    assert_eq!(fixture.count("a"), 0);
    tenure.lead_until(fixture.clock.elapsed() + Duration::from_secs(7));
    advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.count("a"), 1);
    // The lease expires without a notification.
    advance(Duration::from_secs(10)).await;
    wake.push(key("a"));
    advance(Duration::from_mins(10)).await;
    assert_eq!(fixture.count("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_discards_keys_and_a_new_leader_enqueues_the_store() {
    let fixture = Fixture::new();
    let (leadership, tenure) = Leadership::standby(fixture.clock.clone());
    let store = Store::<ConfigMap>::new(Gate::waiting("ConfigMap", ""));
    for name in ["a", "b"] {
        let meta = ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        store.apply(Ok(ConfigMap {
            metadata: meta,
            ..ConfigMap::default()
        }));
    }
    let controller = fixture.controller().objects(store);
    let wake = controller.wakeup();
    tokio::spawn(controller.run(
        fixture.recording(|_| SUCCESS),
        leadership,
        fixture.shutdown.clone(),
    ));
    wake.push(key("a"));
    wake.push(key("gone"));
    advance(Duration::from_mins(1)).await;
    tenure.lead_until(fixture.clock.elapsed() + Duration::from_mins(10));
    advance(Duration::from_secs(1)).await;
    assert_eq!(["a", "b", "gone"].map(|name| fixture.count(name)), [1, 1, 0]);
    wake.push(key("new"));
    advance(Duration::from_secs(1)).await;
    assert_eq!(fixture.count("new"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_affects_only_its_own_object() {
    let fixture = Fixture::new();
    let controller = fixture.controller();
    let wake = controller.wakeup();
    let reconcile = fixture.recording(|name| {
        assert!(name != "poisoned", "simulated panic");
        SUCCESS
    });
    tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    wake.push(key("poisoned"));
    wake.push(key("sound"));
    advance(Duration::from_secs(20)).await;
    assert_eq!((fixture.count("poisoned"), fixture.count("sound")), (1, 1));
    wake.push(key("sound"));
    advance(Duration::from_secs(20)).await;
    assert_eq!(
        (fixture.count("poisoned"), fixture.count("sound")),
        (2, 2),
        "retried later"
    );
    let page = fixture.metrics.encode();
    assert!(
        page.contains(r#"reconcile_panics_total{controller="test"} 2"#),
        "{page}"
    );
    assert!(
        page.contains(r#"reconcile_errors_total{controller="test",class="fatal"} 2"#),
        "{page}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_reconcile_is_aborted_at_its_deadline() {
    let fixture = Fixture::new();
    let controller = fixture
        .controller()
        .concurrency(1)
        .deadline(Duration::from_secs(30));
    let wake = controller.wakeup();
    let done = Arc::new(AtomicUsize::new(0));
    let count = done.clone();
    let reconcile = move |key: ObjectKey| {
        let count = count.clone();
        async move {
            if key.name == "hanging" {
                std::future::pending::<()>().await;
            }
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, TestError>(Wake::OnChange)
        }
    };
    tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    wake.push(key("hanging"));
    wake.push(key("next"));
    advance(Duration::from_secs(29)).await;
    assert_eq!(done.load(Ordering::SeqCst), 0);
    advance(Duration::from_secs(2)).await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert!(fixture.metrics.encode().contains(r#"class="transient"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_back_off() {
    let fixture = Fixture::new();
    let controller = fixture.controller();
    controller.wakeup().push(key("a"));
    let reconcile = fixture.recording(|_| Err(TestError(Class::Transient)));
    tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    advance(Duration::from_secs(80)).await;
    // Runs after 0, 5, 15, 35 and 75 seconds, each slightly earlier because of jitter.
    assert_eq!(fixture.count("a"), 5);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_reconciles_and_starts_no_new_ones() {
    let fixture = Fixture::new();
    let controller = fixture.controller();
    let wake = controller.wakeup();
    let (permits, done) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (permit, count) = (permits.clone(), done.clone());
    let reconcile = move |_| {
        let (permit, count) = (permit.clone(), count.clone());
        async move {
            permit
                .acquire()
                .await
                .expect("the semaphore is never closed")
                .forget();
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, TestError>(Wake::OnChange)
        }
    };
    let running = tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    wake.push(key("under-way"));
    advance(Duration::from_secs(1)).await;
    fixture.shutdown.cancel();
    wake.push(key("too-late"));
    advance(Duration::from_secs(1)).await;
    assert!(!running.is_finished());
    permits.add_permits(2);
    timeout(Duration::from_secs(1), running).await.unwrap().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn draining_is_bounded() {
    let fixture = Fixture::new();
    let controller = fixture.controller().drain(Duration::from_secs(5));
    controller.wakeup().push(key("a"));
    let reconcile = |_| std::future::pending::<Result<Wake, TestError>>();
    let running = tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    advance(Duration::from_secs(1)).await;
    fixture.shutdown.cancel();
    timeout(Duration::from_secs(6), running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_that_blocks_its_thread_makes_the_process_not_live() {
    let (clock, shutdown) = (Arc::new(ManualClock::default()), CancellationToken::new());
    let shared: SharedClock = clock.clone();
    let liveness = Liveness::new(shared.clone());
    let controller = Controller::builder("test", shared.clone(), Metrics::new("1", "c")).liveness(&liveness);
    controller.wakeup().push(key("blocking"));
    let (started, has_started) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let reconcile = move |_| {
        let (started, released) = (started.clone(), released.clone());
        async move {
            started.send(()).unwrap();
            // Ends when the sender is dropped.
            let _ = released.lock().unwrap().recv();
            SUCCESS
        }
    };
    let leadership = Leadership::always(shared);
    let running = tokio::spawn(controller.run(reconcile, leadership, shutdown.clone()));
    tokio::task::spawn_blocking(move || has_started.recv().unwrap())
        .await
        .unwrap();
    assert!(liveness.overdue().is_empty());
    clock.advance(Duration::from_secs(121));
    let overdue = liveness.overdue();
    assert!(
        overdue
            .iter()
            .any(|line| line.starts_with("the reconcile of test shop/blocking hangs")),
        "{overdue:?}"
    );
    drop(release);
    shutdown.cancel();
    running.await.unwrap();
    assert!(liveness.overdue().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_controller_is_live() {
    let fixture = Fixture::new();
    let liveness = Liveness::new(fixture.clock.clone());
    let (leadership, _standby) = Leadership::standby(fixture.clock.clone());
    let controller = fixture.controller().liveness(&liveness);
    tokio::spawn(controller.run(
        fixture.recording(|_| SUCCESS),
        leadership,
        fixture.shutdown.clone(),
    ));
    for _ in 0..120 {
        advance(Duration::from_secs(10)).await;
        assert!(liveness.overdue().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn more_silent_objects_than_workers_delay_no_other_object() {
    const SILENT: usize = 400;
    let fixture = Fixture::new();
    let controller = fixture.controller().concurrency(8);
    let wake = controller.wakeup();
    let (runs, clock) = (fixture.runs.clone(), fixture.clock.clone());
    let reconcile = move |key: ObjectKey| {
        let (runs, clock) = (runs.clone(), clock.clone());
        async move {
            let is_silent = key.name.starts_with("silent");
            runs.lock()
                .unwrap()
                .entry(key.name)
                .or_default()
                .push(clock.elapsed());
            if is_silent {
                // The timeout of a call to a member.
                tokio::time::sleep(Duration::from_secs(2)).await;
                return Ok(Wake::Unanswered);
            }
            Ok::<_, TestError>(Wake::After(Duration::from_secs(30)))
        }
    };
    tokio::spawn(controller.run(reconcile, fixture.always(), fixture.shutdown.clone()));
    for number in 0..SILENT {
        wake.push(key(&format!("silent-{number}")));
    }
    wake.push(key("answering"));
    // Every silent object is asked once in the slots of all objects.
    advance(Duration::from_mins(2)).await;
    for round in 0..20 {
        let runs = fixture.count("answering");
        wake.push(key("answering"));
        advance(Duration::from_millis(10)).await;
        assert!(
            fixture.count("answering") > runs,
            "a change waits in round {round}"
        );
        advance(Duration::from_secs(29)).await;
    }
    let before = fixture.runs.lock().unwrap().values().map(Vec::len).sum::<usize>();
    advance(Duration::from_mins(10)).await;
    let calls = fixture.runs.lock().unwrap().values().map(Vec::len).sum::<usize>() - before;
    assert!(
        (SILENT * 8..SILENT * 13).contains(&calls),
        "{calls} reconciles in ten minutes"
    );
    let answering = fixture.runs.lock().unwrap()["answering"].clone();
    let gaps = answering.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    assert!(gaps.max() < Some(Duration::from_secs(125)), "{answering:?}");
}
