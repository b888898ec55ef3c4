//! The informer against a scripted API server, in paused time.

mod hostile;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::channel::mpsc::{self, UnboundedSender};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::clock::{ManualClock, TestClock};
use crate::fake::{Call, Reply, Server};
use crate::key::ObjectKey;

fn map(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                        "resourceVersion": version.to_string()}, "data": {"v": version.to_string()}})
}

fn malformed(name: &str, version: u64) -> Value {
    let mut object = map(name, version);
    object["data"]["v"] = json!(5);
    object
}

fn list(version: u64, items: &[Value]) -> Reply {
    Reply::ok(json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}))
}

fn watch() -> (UnboundedSender<Value>, Reply) {
    let (lines, receiver) = mpsc::unbounded();
    (lines, Reply::Stream(receiver))
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn is_watch(call: &Call) -> bool {
    call.uri.contains("watch=true")
}

struct Fixture {
    server: Server,
    informer: Informer<ConfigMap>,
    metrics: Metrics,
    changes: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Starts an informer of ConfigMaps against this server.
    fn start(server: Server, scope: impl Into<Selection>) -> Self {
        let metrics = Metrics::new("1", "c");
        let mut informers = Informers::new(server.client(), TestClock::shared(), metrics.clone());
        let informer = informers.add::<ConfigMap>(scope, keep_all);
        let changes: Arc<Mutex<Vec<String>>> = Arc::default();
        let (record, store) = (changes.clone(), informer.store());
        informer.sink(move |change| {
            let stored = store.get(&change.key()).is_some();
            assert_eq!(
                stored,
                matches!(change, Change::Applied(_)),
                "the store comes before the sinks"
            );
            record.lock().unwrap().push(format!("{change:?}"));
        });
        tokio::spawn(informers.run(CancellationToken::new()));
        Self {
            server,
            informer,
            metrics,
            changes,
        }
    }

    /// The changes that the sink received since the last call, after advancing the paused time by `within`.
    async fn changes_within(&self, within: Duration) -> Vec<String> {
        assert!(timeout(within, std::future::pending::<()>()).await.is_err());
        std::mem::take(&mut self.changes.lock().unwrap())
    }

    async fn changes_soon(&self) -> Vec<String> {
        self.changes_within(Duration::from_millis(10)).await
    }

    fn waiting_reason(&self) -> String {
        match self.informer.synced().state() {
            State::Waiting(why) => why,
            State::Ready => "nothing".to_owned(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn applies_and_deletes_reach_the_store_and_then_every_sink() {
    let (lines, watch_reply) = watch();
    let fixture = Fixture::start(
        Server::scripted([list(5, &[map("a", 1)]), watch_reply]),
        Scope::All,
    );
    assert_eq!(fixture.changes_soon().await, ["Applied(shop/a)"]);
    assert!(fixture.informer.store().ready());
    lines.unbounded_send(event("ADDED", &map("b", 6))).unwrap();
    lines.unbounded_send(event("MODIFIED", &map("a", 7))).unwrap();
    lines.unbounded_send(event("DELETED", &map("b", 8))).unwrap();
    assert_eq!(
        fixture.changes_soon().await,
        ["Applied(shop/b)", "Applied(shop/a)", "Deleted(shop/b)"]
    );
    let stored = fixture
        .informer
        .store()
        .get(&ObjectKey::new("shop", "a"))
        .unwrap();
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_the_last_version_including_bookmarks() {
    let (first, watch_reply) = watch();
    let (_second, second_reply) = watch();
    let server = Server::scripted([list(5, &[]), watch_reply, second_reply]);
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_soon().await;
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "42"}});
    first.unbounded_send(event("BOOKMARK", &bookmark)).unwrap();
    drop(first);
    assert!(fixture.changes_within(Duration::from_secs(2)).await.is_empty());
    let uris: Vec<_> = fixture
        .server
        .calls()
        .into_iter()
        .filter(is_watch)
        .map(|call| call.uri)
        .collect();
    assert_eq!(uris.len(), 2);
    assert!(uris[0].contains("resourceVersion=5"), "{}", uris[0]);
    assert!(uris[0].contains("allowWatchBookmarks=true"), "{}", uris[0]);
    assert!(uris[1].contains("resourceVersion=42"), "{}", uris[1]);
    assert!(
        !fixture.metrics.encode().contains("watch_restarts_total{"),
        "a normal end is no restart"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_that_vanished_before_a_relist_are_reported_as_deleted() {
    let (lines, watch_reply) = watch();
    let (_second, second_reply) = watch();
    let server = Server::scripted([
        list(5, &[map("a", 1), map("b", 2), malformed("c", 3)]),
        watch_reply,
        list(90, &[map("b", 2), map("d", 80)]),
        second_reply,
    ]);
    let fixture = Fixture::start(server, Scope::All);
    assert_eq!(
        fixture.changes_soon().await,
        ["Applied(shop/a)", "Applied(shop/b)", "Malformed(shop/c)"]
    );
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    lines.unbounded_send(event("ERROR", &gone)).unwrap();
    assert_eq!(
        fixture.changes_soon().await,
        ["Applied(shop/d)", "Deleted(shop/a)", "MalformedDeleted(shop/c)"]
    );
    assert!(
        fixture
            .metrics
            .encode()
            .contains(r#"watch_restarts_total{kind="ConfigMap"} 1"#)
    );
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_is_reported_and_does_not_disturb_the_watch() {
    let (lines, watch_reply) = watch();
    let server = Server::scripted([list(5, &[malformed("x", 1), map("a", 2)]), watch_reply]);
    let fixture = Fixture::start(server, Scope::All);
    assert_eq!(
        fixture.changes_soon().await,
        ["Malformed(shop/x)", "Applied(shop/a)"]
    );
    let store = fixture.informer.store();
    let key = ObjectKey::new("shop", "x");
    assert_eq!(store.malformed(&key).unwrap().uid.as_deref(), Some("uid-x"));
    lines
        .unbounded_send(event("MODIFIED", &malformed("a", 6)))
        .unwrap();
    lines
        .unbounded_send(event("ADDED", &json!({"metadata": 7})))
        .unwrap();
    lines.unbounded_send(event("MODIFIED", &map("x", 7))).unwrap();
    lines
        .unbounded_send(event("DELETED", &malformed("a", 8)))
        .unwrap();
    assert_eq!(
        fixture.changes_soon().await,
        ["Malformed(shop/a)", "Applied(shop/x)", "MalformedDeleted(shop/a)"]
    );
    assert_eq!((store.len(), store.all_malformed().len()), (1, 0));
    assert_eq!(fixture.server.calls().len(), 2, "the watch was not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_silently_dead_connection_is_replaced_within_a_minute() {
    let (silent, watch_reply) = watch();
    let (fresh, second_reply) = watch();
    let server = Server::scripted([list(5, &[]), watch_reply, second_reply]);
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_soon().await;
    fresh.unbounded_send(event("ADDED", &map("a", 6))).unwrap();
    assert_eq!(
        fixture.changes_within(Duration::from_secs(40)).await,
        ["Applied(shop/a)"]
    );
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_list_or_watch_is_retried() {
    let (fresh, watch_reply) = watch();
    let replies = [Reply::NoAnswer, list(5, &[]), Reply::NoAnswer, watch_reply];
    let fixture = Fixture::start(Server::scripted(replies), Scope::All);
    assert!(fixture.changes_within(Duration::from_secs(29)).await.is_empty());
    fixture.changes_within(Duration::from_secs(5)).await;
    assert!(fixture.informer.store().ready());
    fresh.unbounded_send(event("ADDED", &map("a", 6))).unwrap();
    assert_eq!(
        fixture.changes_within(Duration::from_secs(15)).await,
        ["Applied(shop/a)"]
    );
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_with_back_off() {
    let count = AtomicUsize::new(0);
    let server = Server::new(move |call| match count.fetch_add(1, Ordering::SeqCst) {
        0..6 => Reply::error(500, "etcdserver: request timed out"),
        _ if is_watch(call) => Reply::NoAnswer,
        _ => list(5, &[]),
    });
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_within(Duration::from_secs(3)).await;
    assert_eq!(fixture.waiting_reason(), "etcdserver: request timed out (500)");
    let early = fixture.server.calls().len();
    assert!((3..6).contains(&early), "{early} tries in three seconds");
    fixture.changes_within(Duration::from_secs(45)).await;
    assert!(fixture.informer.store().ready());
}

#[tokio::test(start_paused = true)]
async fn immediately_closed_watches_are_retried_with_back_off() {
    let server = Server::new(|call| if is_watch(call) { watch().1 } else { list(5, &[]) });
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_within(Duration::from_mins(1)).await;
    let calls = fixture.server.calls().len();
    assert!(calls < 100, "{calls} calls in a minute");
}

#[tokio::test(start_paused = true)]
async fn the_waiting_reason_names_a_missing_crd() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let installed = arrived.clone();
    let server = Server::new(move |call| match installed.load(Ordering::SeqCst) {
        0 => Reply::error(404, "404 page not found"),
        _ if is_watch(call) => Reply::NoAnswer,
        _ => list(5, &[]),
    });
    let mut informers = Informers::new(server.client(), TestClock::shared(), Metrics::new("1", "c"));
    let informer = informers.add::<widget::Widget>(Scope::All, keep_all);
    tokio::spawn(informers.run(CancellationToken::new()));
    assert!(
        timeout(Duration::from_mins(1), informer.synced().wait_until_ready())
            .await
            .is_err()
    );
    let why = "waiting for CustomResourceDefinition widgets.test.example.com".to_owned();
    assert_eq!(informer.synced().state(), State::Waiting(why));
    arrived.store(1, Ordering::SeqCst);
    timeout(Duration::from_secs(20), informer.synced().wait_until_ready())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_its_own_watch_and_all_must_sync() {
    let server = Server::new(|call| {
        if call.uri.starts_with("/api/v1/namespaces/closed/") {
            Reply::error(403, "not yours")
        } else if is_watch(call) {
            Reply::NoAnswer
        } else {
            list(5, &[map("a", 1)])
        }
    });
    let namespaces = Scope::Namespaces(["shop".to_owned(), "closed".to_owned()].into());
    let fixture = Fixture::start(server, namespaces.labelled("app=etcd"));
    assert_eq!(
        fixture.changes_within(Duration::from_secs(1)).await,
        ["Applied(shop/a)"]
    );
    assert_eq!(
        fixture.waiting_reason(),
        "waiting for permission to list and watch configmaps: not yours"
    );
    let calls = fixture.server.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.uri.contains("labelSelector=app%3Detcd")),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_is_stored_page_by_page_and_is_synced_after_the_last_one() {
    let page = |more: &str, items: &[Value]| {
        Reply::ok(json!({"metadata": {"continue": more, "resourceVersion": "5"}, "items": items}))
    };
    let (lines, watch_reply) = watch();
    let server = Server::scripted([
        page("more", &[map("a", 1)]),
        page("", &[map("b", 2)]),
        watch_reply,
        page("more", &[map("c", 3)]),
    ]);
    let fixture = Fixture::start(server, Scope::All);
    assert_eq!(
        fixture.changes_soon().await,
        ["Applied(shop/a)", "Applied(shop/b)"]
    );
    assert!(fixture.server.calls()[1].uri.contains("continue=more"));
    assert!(fixture.informer.store().ready());

    // The second page of the next list is never answered: nothing is removed before the list is complete.
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    lines.unbounded_send(event("ERROR", &gone)).unwrap();
    assert_eq!(fixture.changes_soon().await, ["Applied(shop/c)"]);
    assert_eq!(fixture.informer.store().len(), 3);
    fixture.changes_within(Duration::from_mins(1)).await;
    assert!(!fixture.informer.store().ready());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_times_out_is_requested_with_fewer_objects_and_the_next_one_too() {
    let (lines, watch_reply) = watch();
    let mut first_watch = Some(watch_reply);
    let server = Server::new(move |call| match limit(call) {
        _ if is_watch(call) => first_watch.take().unwrap_or(Reply::NoAnswer),
        0..10 => list(5, &[map("a", 1)]),
        _ => Reply::NoAnswer,
    });
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_within(Duration::from_secs(31)).await;
    assert_eq!(
        fixture.waiting_reason(),
        "the API server did not answer a list within 30s"
    );
    assert_eq!(
        fixture.changes_within(Duration::from_secs(30)).await,
        ["Applied(shop/a)"]
    );
    assert!(fixture.informer.store().ready());
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    lines.unbounded_send(event("ERROR", &gone)).unwrap();
    fixture.changes_within(Duration::from_secs(1)).await;
    let calls = fixture.server.calls();
    let limits: Vec<u32> = calls.iter().filter(|call| !is_watch(call)).map(limit).collect();
    assert_eq!(limits, [250, 31, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_proxy_gives_up_is_requested_with_fewer_objects() {
    let server = Server::new(move |call| match limit(call) {
        _ if is_watch(call) => Reply::NoAnswer,
        0..100 => list(5, &[map("a", 1)]),
        _ => Reply::error(504, "gateway timeout"),
    });
    let fixture = Fixture::start(server, Scope::All);
    assert_eq!(
        fixture.changes_within(Duration::from_mins(1)).await,
        ["Applied(shop/a)"]
    );
}

/// The page size that a list requests.
fn limit(call: &Call) -> u32 {
    let limit = call.uri.split("limit=").nth(1).unwrap_or_default();
    let digits = limit.split('&').next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_late_sink_receives_all_stored_objects() {
    let server = Server::scripted([list(5, &[map("a", 1), malformed("x", 2)])]);
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_soon().await;
    let changes: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = changes.clone();
    fixture
        .informer
        .sink(move |change| record.lock().unwrap().push(format!("{change:?}")));
    assert_eq!(*changes.lock().unwrap(), ["Applied(shop/a)", "Malformed(shop/x)"]);
}

mod widget {
    //! A custom resource whose CRD may be missing.

    use std::borrow::Cow;

    use k8s_openapi::NamespaceResourceScope;
    use kube::Resource;
    use kube::core::ObjectMeta;
    use serde::Deserialize;

    #[derive(Clone, Debug, Deserialize)]
    pub(super) struct Widget {
        metadata: ObjectMeta,
    }

    impl super::Watched for Widget {}

    impl Resource for Widget {
        type DynamicType = ();
        type Scope = NamespaceResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            "Widget".into()
        }

        fn group((): &()) -> Cow<'_, str> {
            "test.example.com".into()
        }

        fn version((): &()) -> Cow<'_, str> {
            "v1".into()
        }

        fn plural((): &()) -> Cow<'_, str> {
            "widgets".into()
        }

        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_makes_the_process_not_live() {
    let clock = Arc::new(ManualClock::default());
    let liveness = Liveness::new(clock.clone());
    let server = Server::scripted([list(5, &[map("a", 1)])]);
    let mut informers =
        Informers::new(server.client(), clock.clone(), Metrics::new("1", "c")).liveness(&liveness);
    let informer = informers.add::<ConfigMap>(Scope::All, keep_all);
    let (started, has_started) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    informer.sink(move |_| {
        started.send(()).unwrap();
        // Ends when the sender is dropped.
        let _ = released.recv();
    });
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(informers.run(shutdown.clone()));
    tokio::task::spawn_blocking(move || has_started.recv().unwrap())
        .await
        .unwrap();
    assert!(liveness.overdue().is_empty());
    clock.advance(Duration::from_secs(121));
    let overdue = liveness.overdue();
    assert_eq!(overdue, ["the watch of ConfigMap hangs: overdue for 26 s"]);
    drop(release);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_waits_for_the_api_server_is_live() {
    let liveness = Liveness::new(TestClock::shared());
    let server = Server::scripted([list(5, &[])]);
    let mut informers =
        Informers::new(server.client(), TestClock::shared(), Metrics::new("1", "c")).liveness(&liveness);
    informers.add::<ConfigMap>(Scope::All, keep_all);
    tokio::spawn(informers.run(CancellationToken::new()));
    for _ in 0..60 {
        assert!(
            timeout(Duration::from_secs(10), std::future::pending::<()>())
                .await
                .is_err()
        );
        assert!(liveness.overdue().is_empty());
    }
}
