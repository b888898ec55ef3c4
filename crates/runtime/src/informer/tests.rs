//! The informer against a scripted API server, in paused time.

mod hostile;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::channel::mpsc::{self, UnboundedSender};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::clock::TestClock;
use crate::fake::{Call, Reply, Server};
use crate::key::ObjectKey;

fn map(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                        "resourceVersion": version.to_string()}, "data": {"v": version.to_string()}})
}

fn bad(name: &str, version: u64) -> Value {
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

struct Bench {
    server: Server,
    informer: Informer<ConfigMap>,
    metrics: Metrics,
    told: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    /// Runs an informer of config maps against this server.
    fn start(server: Server, scope: impl Into<Selection>) -> Self {
        let metrics = Metrics::new("1", "c");
        let mut informers = Informers::new(server.client(), TestClock::shared(), metrics.clone());
        let informer = informers.add::<ConfigMap>(scope, keep_all);
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (note, store) = (told.clone(), informer.store());
        informer.sink(move |change| {
            let stored = store.get(&change.key()).is_some();
            assert_eq!(
                stored,
                matches!(change, Change::Applied(_)),
                "the store comes before the sinks"
            );
            note.lock().unwrap().push(format!("{change:?}"));
        });
        tokio::spawn(informers.run(CancellationToken::new()));
        Self {
            server,
            informer,
            metrics,
            told,
        }
    }

    /// What the sink heard since the last time; time is paused, so waiting for all that can happen takes none.
    async fn hears(&self, within: Duration) -> Vec<String> {
        assert!(timeout(within, std::future::pending::<()>()).await.is_err());
        std::mem::take(&mut self.told.lock().unwrap())
    }

    async fn hears_soon(&self) -> Vec<String> {
        self.hears(Duration::from_millis(10)).await
    }

    fn waits_for(&self) -> String {
        match self.informer.synced().state() {
            State::Waiting(why) => why,
            State::Ready => "nothing".to_owned(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn applies_and_deletes_reach_the_store_and_then_every_sink() {
    let (lines, watching) = watch();
    let bench = Bench::start(Server::scripted([list(5, &[map("a", 1)]), watching]), Scope::All);
    assert_eq!(bench.hears_soon().await, ["Applied(shop/a)"]);
    assert!(bench.informer.store().ready());
    lines.unbounded_send(event("ADDED", &map("b", 6))).unwrap();
    lines.unbounded_send(event("MODIFIED", &map("a", 7))).unwrap();
    lines.unbounded_send(event("DELETED", &map("b", 8))).unwrap();
    assert_eq!(
        bench.hears_soon().await,
        ["Applied(shop/b)", "Applied(shop/a)", "Deleted(shop/b)"]
    );
    let stored = bench.informer.store().get(&ObjectKey::new("shop", "a")).unwrap();
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_last_version_seen_bookmarks_included() {
    let (first, watching) = watch();
    let (_second, watching_on) = watch();
    let server = Server::scripted([list(5, &[]), watching, watching_on]);
    let bench = Bench::start(server, Scope::All);
    bench.hears_soon().await;
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "42"}});
    first.unbounded_send(event("BOOKMARK", &bookmark)).unwrap();
    drop(first);
    assert!(bench.hears(Duration::from_secs(2)).await.is_empty());
    let uris: Vec<_> = bench
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
        !bench.metrics.encode().contains("watch_restarts_total{"),
        "a normal end is no restart"
    );
}

#[tokio::test(start_paused = true)]
async fn what_vanished_before_a_relist_is_told_as_deleted() {
    let (lines, watching) = watch();
    let (_second, watching_on) = watch();
    let server = Server::scripted([
        list(5, &[map("a", 1), map("b", 2), bad("c", 3)]),
        watching,
        list(90, &[map("b", 2), map("d", 80)]),
        watching_on,
    ]);
    let bench = Bench::start(server, Scope::All);
    assert_eq!(
        bench.hears_soon().await,
        ["Applied(shop/a)", "Applied(shop/b)", "Malformed(shop/c)"]
    );
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    lines.unbounded_send(event("ERROR", &gone)).unwrap();
    assert_eq!(
        bench.hears_soon().await,
        ["Deleted(shop/a)", "Gone(shop/c)", "Applied(shop/d)"]
    );
    assert!(
        bench
            .metrics
            .encode()
            .contains(r#"watch_restarts_total{kind="ConfigMap"} 1"#)
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_reported_and_blocks_nothing() {
    let (lines, watching) = watch();
    let server = Server::scripted([list(5, &[bad("x", 1), map("a", 2)]), watching]);
    let bench = Bench::start(server, Scope::All);
    assert_eq!(bench.hears_soon().await, ["Malformed(shop/x)", "Applied(shop/a)"]);
    let store = bench.informer.store();
    let key = ObjectKey::new("shop", "x");
    assert_eq!(store.malformed(&key).unwrap().uid.as_deref(), Some("uid-x"));
    lines.unbounded_send(event("MODIFIED", &bad("a", 6))).unwrap();
    lines
        .unbounded_send(event("ADDED", &json!({"metadata": 7})))
        .unwrap();
    lines.unbounded_send(event("MODIFIED", &map("x", 7))).unwrap();
    lines.unbounded_send(event("DELETED", &bad("a", 8))).unwrap();
    assert_eq!(
        bench.hears_soon().await,
        ["Malformed(shop/a)", "Applied(shop/x)", "Gone(shop/a)"]
    );
    assert_eq!((store.len(), store.all_malformed().len()), (1, 0));
    assert_eq!(bench.server.calls().len(), 2, "the watch was not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_silently_heals_within_a_minute() {
    let (silent, watching) = watch();
    let (fresh, watching_on) = watch();
    let server = Server::scripted([list(5, &[]), watching, watching_on]);
    let bench = Bench::start(server, Scope::All);
    bench.hears_soon().await;
    fresh.unbounded_send(event("ADDED", &map("a", 6))).unwrap();
    assert_eq!(bench.hears(Duration::from_secs(40)).await, ["Applied(shop/a)"]);
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn a_list_or_watch_that_is_never_answered_is_tried_again() {
    let (fresh, watching) = watch();
    let replies = [Reply::Silence, list(5, &[]), Reply::Silence, watching];
    let bench = Bench::start(Server::scripted(replies), Scope::All);
    assert!(bench.hears(Duration::from_secs(29)).await.is_empty());
    bench.hears(Duration::from_secs(5)).await;
    assert!(bench.informer.store().ready());
    fresh.unbounded_send(event("ADDED", &map("a", 6))).unwrap();
    assert_eq!(bench.hears(Duration::from_secs(15)).await, ["Applied(shop/a)"]);
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_with_growing_pauses_until_it_works() {
    let count = AtomicUsize::new(0);
    let server = Server::new(move |call| match count.fetch_add(1, Ordering::SeqCst) {
        0..6 => Reply::no(500, "etcdserver: request timed out"),
        _ if is_watch(call) => Reply::Silence,
        _ => list(5, &[]),
    });
    let bench = Bench::start(server, Scope::All);
    bench.hears(Duration::from_secs(3)).await;
    assert_eq!(bench.waits_for(), "etcdserver: request timed out (500)");
    let early = bench.server.calls().len();
    assert!((3..6).contains(&early), "{early} tries in three seconds");
    bench.hears(Duration::from_secs(45)).await;
    assert!(bench.informer.store().ready());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_closes_every_watch_at_once_is_not_hammered() {
    let server = Server::new(|call| if is_watch(call) { watch().1 } else { list(5, &[]) });
    let bench = Bench::start(server, Scope::All);
    bench.hears(Duration::from_mins(1)).await;
    let calls = bench.server.calls().len();
    assert!(calls < 100, "{calls} calls in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_waited_for_by_name() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let installed = arrived.clone();
    let server = Server::new(move |call| match installed.load(Ordering::SeqCst) {
        0 => Reply::no(404, "404 page not found"),
        _ if is_watch(call) => Reply::Silence,
        _ => list(5, &[]),
    });
    let mut informers = Informers::new(server.client(), TestClock::shared(), Metrics::new("1", "c"));
    let informer = informers.add::<widget::Widget>(Scope::All, keep_all);
    tokio::spawn(informers.run(CancellationToken::new()));
    assert!(
        timeout(Duration::from_mins(1), informer.synced().ready())
            .await
            .is_err()
    );
    let why = "waiting for CustomResourceDefinition widgets.test.example.com".to_owned();
    assert_eq!(informer.synced().state(), State::Waiting(why));
    arrived.store(1, Ordering::SeqCst);
    timeout(Duration::from_secs(20), informer.synced().ready())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_its_own_watch_and_all_must_be_filled() {
    let server = Server::new(|call| {
        if call.uri.starts_with("/api/v1/namespaces/closed/") {
            Reply::no(403, "not yours")
        } else if is_watch(call) {
            Reply::Silence
        } else {
            list(5, &[map("a", 1)])
        }
    });
    let namespaces = Scope::Namespaces(["shop".to_owned(), "closed".to_owned()].into());
    let bench = Bench::start(server, namespaces.labelled("app=etcd"));
    assert_eq!(bench.hears(Duration::from_secs(1)).await, ["Applied(shop/a)"]);
    assert_eq!(
        bench.waits_for(),
        "waiting for permission to list and watch configmaps: not yours"
    );
    let calls = bench.server.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.uri.contains("labelSelector=app%3Detcd")),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages_and_is_taken_in_at_once() {
    let first = json!({"metadata": {"continue": "more", "resourceVersion": "5"}, "items": [map("a", 1)]});
    let server = Server::scripted([Reply::ok(first), list(5, &[map("b", 2)])]);
    let bench = Bench::start(server, Scope::All);
    assert_eq!(bench.hears_soon().await, ["Applied(shop/a)", "Applied(shop/b)"]);
    assert!(bench.server.calls()[1].uri.contains("continue=more"));
}

#[tokio::test(start_paused = true)]
async fn a_late_sink_is_told_what_everybody_else_knows() {
    let server = Server::scripted([list(5, &[map("a", 1), bad("x", 2)])]);
    let bench = Bench::start(server, Scope::All);
    bench.hears_soon().await;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = heard.clone();
    bench
        .informer
        .sink(move |change| note.lock().unwrap().push(format!("{change:?}")));
    assert_eq!(*heard.lock().unwrap(), ["Applied(shop/a)", "Malformed(shop/x)"]);
}

mod widget {
    //! A kind whose definition may be missing.

    use std::borrow::Cow;

    use k8s_openapi::NamespaceResourceScope;
    use kube::Resource;
    use kube::core::ObjectMeta;
    use serde::Deserialize;

    #[derive(Clone, Debug, Deserialize)]
    pub(super) struct Widget {
        metadata: ObjectMeta,
    }

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
