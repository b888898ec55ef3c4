//! A complete manager on the fake API server: a broken controller does not affect the others, and an idle manager is silent.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser as _;
use etcd_operator_api::crd;
use etcd_operator_backup::metrics as backup;
use etcd_operator_cluster::metrics as cluster;
use etcd_operator_manager::cli::{Cli, Command};
use etcd_operator_manager::controllers::Functions;
use etcd_operator_manager::run::Manager;
use etcd_operator_restore::metrics as restore;
use etcd_operator_runtime::clock::{Clock, SharedClock, TestClock};
use etcd_operator_runtime::controller::Function;
use etcd_operator_runtime::health::Server;
use etcd_operator_testkit::Fake;
use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "shop";
const GROUP: &str = "etcd.database.coreos.com/v1beta2";

fn api_server() -> Fake {
    let fake = Fake::new();
    fake.add_namespace(NAMESPACE);
    for definition in crd::all() {
        fake.register(&definition);
    }
    fake
}

async fn manager(fake: &Fake) -> Manager {
    let line = ["etcd-operator", "manager", "--health-address", "127.0.0.1:0"];
    let Command::Manager(args) = Cli::try_parse_from(line).unwrap().command else {
        panic!("another command")
    };
    Manager {
        server: Server::bind(args.health_address).await.unwrap(),
        args: *args,
        namespace: NAMESPACE.to_owned(),
        api_server: "http://fake".to_owned(),
        client: fake.client(NAMESPACE),
        clock: TestClock::shared(),
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

fn put_objects(fake: &Fake, count: usize) {
    let store = json!({"path": "bucket/key", "ossSecret": "s"});
    for n in 0..count {
        let name = format!("x{n}");
        fake.put_object(object("EtcdCluster", &name, &json!({"size": 3})));
        let backup = json!({"etcdCluster": {"name": name}, "storageType": "OSS", "oss": store, "schedule": "0 3 * * *"});
        fake.put_object(object("EtcdBackup", &name, &backup));
        let restore = json!({"etcdCluster": {"name": name}, "source": {"backup": {"name": name}}});
        fake.put_object(object("EtcdRestore", &name, &restore));
    }
}

/// Status and message of an object's Accepted condition.
fn verdict(fake: &Fake, kind: &str, name: &str) -> Option<(String, String)> {
    let object = fake.get_object(GROUP, kind, NAMESPACE, name)?;
    let accepted = object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == "Accepted")?
        .clone();
    let text = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_mins(2), wait).await.expect(what);
}

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_causes_no_writes_and_almost_no_log_lines() {
    let fake = api_server();
    put_objects(&fake, 20);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // With a single subscriber in the process, `tracing` caches per log statement whether it is enabled. The first thread
    // that reaches the statement decides, and threads of other tests have no subscriber. A second dispatcher disables that
    // cache.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _logging = tracing::subscriber::set_default(subscriber);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager(&fake).await.run(stop.clone()));
    for n in 0..20 {
        for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
            until("a verdict", || verdict(&fake, kind, &format!("x{n}")).is_some()).await;
        }
    }
    // Events are sent after the statuses.
    sleep(Duration::from_mins(1)).await;

    let (mark, lines_before) = (fake.mark(), log.text().lines().count());
    assert!(lines_before > 0, "the test does not capture the log");
    let start = log
        .text()
        .lines()
        .find(|line| line.contains("starting"))
        .map(str::to_owned);
    let start = start.expect("a line about the start");
    for word in ["http://fake", "namespace shop", "objects without the annotation"] {
        assert!(start.contains(word), "{start}");
    }
    assert!(!start.contains("Namespaces("), "{start}");
    sleep(Duration::from_hours(1)).await;

    let writes = fake.writes_since(mark);
    let (lease, other): (Vec<_>, Vec<_>) = writes.into_iter().partition(|call| call.resource == "leases");
    assert!(lease.len() >= 1000, "the lease was renewed {} times", lease.len());
    assert!(other.is_empty(), "{other:?}");
    let text = log.text();
    let new_lines: Vec<_> = text.lines().skip(lines_before).collect();
    assert!(new_lines.len() <= 10, "{new_lines:#?}");
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panic_in_one_controller_is_counted_and_does_not_affect_the_others() {
    let fake = api_server();
    put_objects(&fake, 3);
    let manager = manager(&fake).await;
    let address = manager.server.address().unwrap();
    let stop = CancellationToken::new();
    let running = manager.run_with(stop.clone(), |kinds, shared| {
        let real = Functions::new(kinds, shared);
        let panics: Function<_> = Box::new(|key| async move { panic!("cannot reconcile {key}") }.boxed());
        Functions {
            cluster: panics,
            ..real
        }
    });
    let running = tokio::spawn(running);
    for n in 0..3 {
        for kind in ["EtcdBackup", "EtcdRestore"] {
            until("a verdict", || verdict(&fake, kind, &format!("x{n}")).is_some()).await;
        }
    }
    let mut page = String::new();
    while !page.contains(r#"etcd_operator_reconcile_panics_total{controller="cluster"} "#)
        || page.contains(r#"etcd_operator_reconcile_panics_total{controller="cluster"} 0"#)
    {
        page = metrics(address).await;
    }
    assert!(!running.is_finished());
    assert_eq!(verdict(&fake, "EtcdCluster", "x0"), None);

    // The other controllers still react to changes.
    fake.update_object(GROUP, "EtcdBackup", NAMESPACE, "x1", |backup| {
        backup["spec"]["timeZone"] = json!("Middle/Earth");
    });
    until("the changed backup's verdict", || {
        verdict(&fake, "EtcdBackup", "x1")
            .is_some_and(|(holds, message)| holds == "False" && message.contains("timeZone"))
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// A clock that can be put forward by hours, as if all loops had hung for so long.
#[derive(Debug)]
struct MovableClock {
    inner: SharedClock,
    hours: AtomicU64,
}

impl Clock for MovableClock {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn elapsed(&self) -> Duration {
        self.inner.elapsed() + Duration::from_hours(self.hours.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn healthz_fails_if_any_watch_or_controller_hangs_and_names_each() {
    let fake = api_server();
    put_objects(&fake, 1);
    let mut manager = manager(&fake).await;
    let clock = Arc::new(MovableClock {
        inner: TestClock::shared(),
        hours: AtomicU64::new(0),
    });
    manager.clock = clock.clone();
    // Without a lease, which would lapse meanwhile.
    manager.args.leader_elect = false;
    let address = manager.server.address().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    for kind in ["EtcdCluster", "EtcdBackup", "EtcdRestore"] {
        until("a verdict", || verdict(&fake, kind, "x0").is_some()).await;
    }
    let healthy = page(address, "/healthz").await;
    assert!(healthy.starts_with("HTTP/1.1 200"), "{healthy}");

    // A loop that wakes just then makes its promise anew, and is found by the next look.
    let wanted: BTreeSet<_> = [
        "the controller backup",
        "the controller cluster",
        "the controller restore",
        "the watch of EtcdBackup in namespace shop",
        "the watch of EtcdCluster in namespace shop",
        "the watch of EtcdRestore in namespace shop",
        "the watch of Job in namespace shop",
        "the watch of PersistentVolumeClaim in namespace shop",
        "the watch of Pod in namespace shop",
        "the watch of PodDisruptionBudget in namespace shop",
        "the watch of Service in namespace shop",
        "the watch of StatefulSet in namespace shop",
    ]
    .map(str::to_owned)
    .into();
    let mut named = BTreeSet::new();
    for _ in 0..20 {
        clock.hours.fetch_add(24, Ordering::SeqCst);
        let page = page(address, "/healthz").await;
        let lines = page.lines().filter_map(|line| line.split_once(" hangs: overdue"));
        named.extend(lines.map(|(name, _)| name.to_owned()));
        if !named.is_empty() {
            assert!(page.starts_with("HTTP/1.1 503"), "{page}");
        }
    }
    named.retain(|name| !name.starts_with("the reconcile of"));
    assert_eq!(named, wanted);
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn its_own_status_wakes_no_controller() {
    const COUNT: usize = 12;
    let fake = api_server();
    for n in 0..COUNT {
        fake.put_object(object("EtcdCluster", &format!("x{n}"), &json!({"size": 3})));
    }
    let manager = manager(&fake).await;
    let address = manager.server.address().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    for n in 0..COUNT {
        until("a verdict", || {
            verdict(&fake, "EtcdCluster", &format!("x{n}")).is_some()
        })
        .await;
    }
    // Changes of a kind arrive in order: after this one took effect, the watch has returned all statuses.
    fake.update_object(GROUP, "EtcdCluster", NAMESPACE, "x0", |cluster| {
        cluster["spec"]["image"] = json!("example.dev/etcd:latest");
    });
    until("the changed cluster's verdict", || {
        verdict(&fake, "EtcdCluster", "x0").is_some_and(|(holds, _)| holds == "False")
    })
    .await;
    let page = metrics(address).await;
    let counted = page
        .lines()
        .find(|line| line.starts_with(r#"etcd_operator_reconciles_total{controller="cluster""#));
    let times = counted.and_then(|line| line.rsplit(' ').next());
    assert_eq!(times, Some((COUNT + 1).to_string().as_str()), "{page}");

    // A status change by another client wakes the controller.
    fake.update_object(GROUP, "EtcdCluster", NAMESPACE, "x2", |cluster| {
        cluster["status"]["phase"] = json!("Running");
    });
    until("the status is corrected", || {
        let cluster = fake.get_object(GROUP, "EtcdCluster", NAMESPACE, "x2");
        cluster.is_some_and(|cluster| cluster["status"]["phase"] != "Running")
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn metrics_of_clusters_appear_and_disappear_with_them() {
    let fake = api_server();
    for name in ["stays", "goes"] {
        fake.put_object(object("EtcdCluster", name, &json!({"size": 3})));
    }
    let manager = manager(&fake).await;
    let address = manager.server.address().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    for name in ["stays", "goes"] {
        until("a verdict", || verdict(&fake, "EtcdCluster", name).is_some()).await;
    }
    let wanted = |name| {
        format!(r#"etcd_operator_cluster_members_desired{{namespace="{NAMESPACE}",cluster="{name}"}} 3"#)
    };
    page_until(address, |page| {
        page.contains(&wanted("stays")) && page.contains(&wanted("goes"))
    })
    .await;
    let page = metrics(address).await;
    let clusters = cluster::FAMILIES.iter().map(|(name, ..)| *name);
    let backups = backup::FAMILIES.iter().map(|(name, ..)| *name);
    let restores = restore::FAMILIES.iter().map(|(name, ..)| *name);
    let families = clusters.chain(backups).chain(restores);
    for name in families.chain([cluster::CONTROLLED_ELSEWHERE.0]) {
        assert!(
            page.contains(&format!("# HELP etcd_operator_{name} ")),
            "{name} not in\n{page}"
        );
    }
    fake.delete_object(GROUP, "EtcdCluster", NAMESPACE, "goes");
    page_until(address, |page| {
        page.contains(&wanted("stays")) && !page.contains("goes")
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

async fn page_until(address: std::net::SocketAddr, holds: impl Fn(&str) -> bool) {
    let wait = async {
        while !holds(&metrics(address).await) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_mins(2), wait)
        .await
        .expect("the metrics page changes");
}

async fn metrics(address: std::net::SocketAddr) -> String {
    page(address, "/metrics").await
}

async fn page(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
