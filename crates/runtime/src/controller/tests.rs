//! The driver in paused time.

use super::*;
use crate::clock::TestClock;
use crate::gate::State;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::time::timeout;

#[derive(Debug, thiserror::Error)]
#[error("no luck")]
struct Unlucky(Class);

impl Classified for Unlucky {
    fn class(&self) -> Class {
        self.0
    }
}

struct Bench {
    clock: SharedClock,
    metrics: Metrics,
    shutdown: CancellationToken,
    runs: Arc<Mutex<BTreeMap<String, Vec<Duration>>>>,
}

impl Bench {
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

    /// A reconcile function that notes when it ran for what.
    fn noting<E: Send + 'static>(
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

    fn times(&self, name: &str) -> usize {
        self.runs.lock().unwrap().get(name).map_or(0, Vec::len)
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

const FINE: Result<Wake, Unlucky> = Ok(Wake::OnChange);

/// Lets everything that can happen before `time` happen; time is paused, so this takes none.
async fn pass(time: Duration) {
    let never = std::future::pending::<()>();
    assert!(timeout(time, never).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_store_is_filled() {
    let bench = Bench::new();
    let (pods, claims) = (Synced::waiting("Pod", ""), Synced::waiting("Claim", ""));
    let controller = bench.controller().gate(&pods).gate(&claims);
    controller.wakeup().push(key("a"));
    tokio::spawn(controller.run(bench.noting(|_| FINE), bench.always(), bench.shutdown.clone()));
    pods.set(State::Ready);
    pass(Duration::from_mins(1)).await;
    assert_eq!(bench.times("a"), 0);
    claims.set(State::Ready);
    pass(Duration::from_secs(1)).await;
    assert_eq!(bench.times("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_reconciles_nothing_and_a_new_leader_everything() {
    let bench = Bench::new();
    let (leadership, tenure) = Leadership::standby(bench.clock.clone());
    let controller = bench.controller();
    let wake = controller.wakeup();
    wake.push(key("a"));
    tokio::spawn(controller.run(bench.noting(|_| FINE), leadership, bench.shutdown.clone()));
    pass(Duration::from_mins(10)).await;
    assert_eq!(bench.times("a"), 0);
    tenure.lead_until(bench.clock.elapsed() + Duration::from_secs(7));
    pass(Duration::from_secs(1)).await;
    assert_eq!(bench.times("a"), 1);
    // The lease runs out without a word.
    pass(Duration::from_secs(10)).await;
    wake.push(key("a"));
    pass(Duration::from_mins(10)).await;
    assert_eq!(bench.times("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_no_key_of_what_is_gone_when_it_leads() {
    let bench = Bench::new();
    let (leadership, tenure) = Leadership::standby(bench.clock.clone());
    let store = Store::<ConfigMap>::new(Synced::waiting("ConfigMap", ""));
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
    let controller = bench.controller().objects(store);
    let wake = controller.wakeup();
    tokio::spawn(controller.run(bench.noting(|_| FINE), leadership, bench.shutdown.clone()));
    wake.push(key("a"));
    wake.push(key("gone"));
    pass(Duration::from_mins(1)).await;
    tenure.lead_until(bench.clock.elapsed() + Duration::from_mins(10));
    pass(Duration::from_secs(1)).await;
    assert_eq!(["a", "b", "gone"].map(|name| bench.times(name)), [1, 1, 0]);
    wake.push(key("new"));
    pass(Duration::from_secs(1)).await;
    assert_eq!(bench.times("new"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_harms_only_its_own_object() {
    let bench = Bench::new();
    let controller = bench.controller();
    let wake = controller.wakeup();
    let reconcile = bench.noting(|name| {
        assert!(name != "poisoned", "bad day");
        FINE
    });
    tokio::spawn(controller.run(reconcile, bench.always(), bench.shutdown.clone()));
    wake.push(key("poisoned"));
    wake.push(key("sound"));
    pass(Duration::from_secs(20)).await;
    assert_eq!((bench.times("poisoned"), bench.times("sound")), (1, 1));
    wake.push(key("sound"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(
        (bench.times("poisoned"), bench.times("sound")),
        (2, 2),
        "tried again after a while"
    );
    let page = bench.metrics.encode();
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
async fn a_hanging_reconcile_is_abandoned_at_its_deadline() {
    let bench = Bench::new();
    let controller = bench
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
            Ok::<_, Unlucky>(Wake::OnChange)
        }
    };
    tokio::spawn(controller.run(reconcile, bench.always(), bench.shutdown.clone()));
    wake.push(key("hanging"));
    wake.push(key("next"));
    pass(Duration::from_secs(29)).await;
    assert_eq!(done.load(Ordering::SeqCst), 0);
    pass(Duration::from_secs(2)).await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert!(bench.metrics.encode().contains(r#"class="transient"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_growing_pauses() {
    let bench = Bench::new();
    let controller = bench.controller();
    controller.wakeup().push(key("a"));
    let reconcile = bench.noting(|_| Err(Unlucky(Class::Transient)));
    tokio::spawn(controller.run(reconcile, bench.always(), bench.shutdown.clone()));
    pass(Duration::from_secs(80)).await;
    // After 0, 5, 15, 35 and 75 seconds, each a little earlier for jitter.
    assert_eq!(bench.times("a"), 5);
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_work_under_way_finish_and_starts_nothing_new() {
    let bench = Bench::new();
    let controller = bench.controller();
    let wake = controller.wakeup();
    let (doors, done) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (door, count) = (doors.clone(), done.clone());
    let reconcile = move |_| {
        let (door, count) = (door.clone(), count.clone());
        async move {
            door.acquire().await.expect("the door is never closed").forget();
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Unlucky>(Wake::OnChange)
        }
    };
    let running = tokio::spawn(controller.run(reconcile, bench.always(), bench.shutdown.clone()));
    wake.push(key("under-way"));
    pass(Duration::from_secs(1)).await;
    bench.shutdown.cancel();
    wake.push(key("too-late"));
    pass(Duration::from_secs(1)).await;
    assert!(!running.is_finished());
    doors.add_permits(2);
    timeout(Duration::from_secs(1), running).await.unwrap().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn draining_is_bounded() {
    let bench = Bench::new();
    let controller = bench.controller().drain(Duration::from_secs(5));
    controller.wakeup().push(key("a"));
    let reconcile = |_| std::future::pending::<Result<Wake, Unlucky>>();
    let running = tokio::spawn(controller.run(reconcile, bench.always(), bench.shutdown.clone()));
    pass(Duration::from_secs(1)).await;
    bench.shutdown.cancel();
    timeout(Duration::from_secs(6), running).await.unwrap().unwrap();
}
