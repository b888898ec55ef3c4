//! Invalid responses of the API server, and objects that it should have rejected.

use super::*;

/// More calls than any test here allows. In paused time, a loop without a delay would otherwise never end.
const MAX_CALLS: usize = 1000;

fn bounded(answer: impl Fn(&Call) -> Reply + Send + 'static) -> Server {
    let count = AtomicUsize::new(0);
    Server::new(move |call| match count.fetch_add(1, Ordering::SeqCst) {
        0..MAX_CALLS => answer(call),
        _ => Reply::NoAnswer,
    })
}

/// A valid object with a field nested beyond the recursion limit of the parser.
fn deep(name: &str, version: u64) -> Value {
    let mut nested = json!({});
    for _ in 0..300 {
        nested = json!({ "f:a": nested });
    }
    let mut object = map(name, version);
    object["metadata"]["managedFields"] = json!([{ "fieldsV1": nested }]);
    object
}

#[tokio::test(start_paused = true)]
async fn a_deeply_nested_object_is_reported_and_does_not_disturb_the_watch() {
    let (lines, watch_reply) = watch();
    let server = Server::scripted([list(5, &[deep("x", 1), map("a", 2)]), watch_reply]);
    let fixture = Fixture::start(server, Scope::All);
    assert_eq!(
        fixture.changes_soon().await,
        ["Malformed(shop/x)", "Applied(shop/a)"]
    );
    let bad = fixture
        .informer
        .store()
        .malformed(&ObjectKey::new("shop", "x"))
        .unwrap();
    assert_eq!(bad.resource_version.as_deref(), Some("1"));
    assert!(
        bad.error.starts_with("metadata.managedFields[0].fieldsV1.") && bad.error.contains("too deeply"),
        "{}",
        bad.error
    );
    assert!(bad.error.len() < 200, "{}", bad.error);
    lines.unbounded_send(event("MODIFIED", &deep("a", 6))).unwrap();
    lines.unbounded_send(event("ADDED", &map("b", 7))).unwrap();
    lines.unbounded_send(event("DELETED", &deep("x", 8))).unwrap();
    assert_eq!(
        fixture.changes_soon().await,
        ["Malformed(shop/a)", "Applied(shop/b)", "MalformedDeleted(shop/x)"]
    );
    assert_eq!(fixture.server.calls().len(), 2, "the watch was not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_after_every_list_is_retried_with_back_off() {
    for code in [410, 404] {
        let server = bounded(move |call| {
            if is_watch(call) {
                Reply::error(code, "no")
            } else {
                list(5, &[])
            }
        });
        let fixture = Fixture::start(server, Scope::All);
        fixture.changes_within(Duration::from_mins(1)).await;
        let calls = fixture.server.calls().len();
        assert!((6..40).contains(&calls), "{calls} calls in a minute of {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_repeats_pages_is_aborted() {
    let page = AtomicUsize::new(0);
    let server = bounded(move |_| {
        let token = ["x", "y"][page.fetch_add(1, Ordering::SeqCst) % 2];
        Reply::ok(json!({"metadata": {"resourceVersion": "5", "continue": token}, "items": []}))
    });
    let fixture = Fixture::start(server, Scope::All);
    fixture.changes_within(Duration::from_secs(10)).await;
    assert_eq!(fixture.waiting_reason(), "the API server repeats pages of a list");
    let calls = fixture.server.calls().len();
    assert!(calls < 40, "{calls} calls in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn an_oversized_page_is_requested_again_with_fewer_objects() {
    let server = bounded(|call| {
        if is_watch(call) {
            return Reply::NoAnswer;
        }
        // The last object alone exceeds the size limit of a page.
        let huge = |name: &str, megabytes: usize| {
            let mut object = map(name, 1);
            object["data"]["v"] = json!("x".repeat(megabytes << 20));
            object
        };
        let page = |more: &str, items: &[Value]| {
            let metadata = json!({"resourceVersion": "5", "continue": more});
            Reply::ok(json!({"metadata": metadata, "items": items}))
        };
        let last = call.uri.contains("continue=last");
        match (limit(call), last) {
            (1, true) => page("", &[huge("last", 17)]),
            (_, true) => page("", &[huge("last", 17), map("after", 1)]),
            (31, false) => page("last", &[map("a", 1), map("b", 1)]),
            (_, false) => page("", &[huge("a", 9), huge("b", 9)]),
        }
    });
    let fixture = Fixture::start(server, Scope::All);
    let changes = fixture.changes_within(Duration::from_secs(1)).await;
    assert_eq!(
        changes,
        ["Applied(shop/a)", "Applied(shop/b)", "Malformed(shop/last)"]
    );
    let lists = fixture.server.calls();
    let limits: Vec<u32> = lists.iter().filter(|call| !is_watch(call)).map(limit).collect();
    // The page with 31 objects was small, so the next one is requested with twice as many.
    assert_eq!(limits, [250, 31, 62, 7, 1]);
}
