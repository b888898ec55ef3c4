//! Answers that no API server should give, and objects it should not have taken.

use super::*;

/// More calls than any of these tests allows: a loop without a pause ends here, for paused time would not.
const FAR_TOO_MANY: usize = 1000;

fn bounded(answer: impl Fn(&Call) -> Reply + Send + 'static) -> Server {
    let count = AtomicUsize::new(0);
    Server::new(move |call| match count.fetch_add(1, Ordering::SeqCst) {
        0..FAR_TOO_MANY => answer(call),
        _ => Reply::Silence,
    })
}

/// An object that is fine but for something in it nested deeper than a parser may follow.
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
async fn an_object_nested_too_deeply_is_reported_by_name_and_blocks_nothing() {
    let (lines, watching) = watch();
    let server = Server::scripted([list(5, &[deep("x", 1), map("a", 2)]), watching]);
    let bench = Bench::start(server, Scope::All);
    assert_eq!(bench.hears_soon().await, ["Malformed(shop/x)", "Applied(shop/a)"]);
    let bad = bench
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
        bench.hears_soon().await,
        ["Malformed(shop/a)", "Applied(shop/b)", "Gone(shop/x)"]
    );
    assert_eq!(bench.server.calls().len(), 2, "the watch was not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_after_every_good_list_does_not_list_without_a_pause() {
    for code in [410, 404] {
        let server = bounded(move |call| {
            if is_watch(call) {
                Reply::no(code, "no")
            } else {
                list(5, &[])
            }
        });
        let bench = Bench::start(server, Scope::All);
        bench.hears(Duration::from_mins(1)).await;
        let calls = bench.server.calls().len();
        assert!((6..40).contains(&calls), "{calls} calls in a minute of {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_round_in_circles_is_given_up() {
    let page = AtomicUsize::new(0);
    let server = bounded(move |_| {
        let token = ["x", "y"][page.fetch_add(1, Ordering::SeqCst) % 2];
        Reply::ok(json!({"metadata": {"resourceVersion": "5", "continue": token}, "items": []}))
    });
    let bench = Bench::start(server, Scope::All);
    bench.hears(Duration::from_secs(10)).await;
    assert_eq!(
        bench.waits_for(),
        "the API server sends the same page of a list again"
    );
    let calls = bench.server.calls().len();
    assert!(calls < 40, "{calls} calls in ten seconds");
}

/// How many objects a call asks for.
fn limit(call: &Call) -> u32 {
    let limit = call.uri.split("limit=").nth(1).unwrap_or_default();
    let digits = limit.split('&').next().unwrap_or_default();
    digits.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_page_larger_than_is_read_is_asked_for_in_smaller_ones() {
    let server = bounded(|call| {
        if is_watch(call) {
            return Reply::Silence;
        }
        // Every object is a megabyte; the last one alone is larger than any page may be.
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
            (62, false) => page("last", &[map("a", 1), map("b", 1)]),
            (_, false) => page("", &[huge("a", 9), huge("b", 9)]),
        }
    });
    let bench = Bench::start(server, Scope::All);
    let heard = bench.hears(Duration::from_secs(1)).await;
    assert_eq!(
        heard,
        ["Applied(shop/a)", "Applied(shop/b)", "Malformed(shop/last)"]
    );
    let lists = bench.server.calls();
    let limits: Vec<u32> = lists.iter().filter(|call| !is_watch(call)).map(limit).collect();
    assert_eq!(limits, [500, 62, 62, 7, 1]);
}
