//! Why this project has informers of its own: what kube's shared streams do with deletes.
//!
//! When a test here fails, kube has been mended: use its shared streams and delete our informer.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use kube::runtime::watcher::{Error, Event};
use kube::runtime::{WatchStreamExt, reflector};
use tokio::time::timeout;

fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            namespace: Some("shop".into()),
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

/// A subscriber hears of an apply, but never of the delete that follows: a pod that is gone would wake nobody.
#[tokio::test(start_paused = true)]
async fn a_subscriber_of_a_shared_stream_is_never_told_of_a_delete() {
    let (_, writer) = reflector::store_shared::<Pod>(16);
    let mut subscriber = pin!(writer.subscribe().unwrap());
    let events = [Event::Init, Event::InitDone, Event::Apply(pod("a"))].map(Ok::<_, Error>);
    let deletes = [Event::Delete(pod("a"))].map(Ok::<_, Error>);

    // Step by step, so that the apply is heard before the delete comes.
    let mut root = pin!(
        stream::iter(events)
            .chain(stream::iter(deletes))
            .reflect_shared(writer)
    );
    for _ in 0..3 {
        root.next().await.unwrap().unwrap();
    }
    assert_eq!(
        subscriber.next().await.unwrap().metadata.name.as_deref(),
        Some("a")
    );
    assert!(matches!(root.next().await, Some(Ok(Event::Delete(_)))));
    let told = timeout(Duration::from_hours(1), subscriber.next()).await;
    assert!(told.is_err(), "kube tells subscribers of deletes now: {told:?}");
}

/// Pods that come and go before a subscriber looks leave it asleep for good, and when its buffer is full the root
/// stream stops too: every store fed by it would stand still.
#[tokio::test(start_paused = true)]
async fn objects_that_come_and_go_quickly_stop_the_root_stream_for_good() {
    const ROUNDS: usize = 12;
    let (_, writer) = reflector::store_shared::<Pod>(4);
    let subscriber = writer.subscribe().unwrap();
    let rounds = (0..ROUNDS).flat_map(|n| {
        let name = format!("p{n}");
        [Event::Apply(pod(&name)), Event::Delete(pod(&name))]
    });
    let events: Vec<_> = [Event::Init, Event::InitDone].into_iter().chain(rounds).collect();
    let all = events.len();
    let mut root = pin!(stream::iter(events.into_iter().map(Ok::<_, Error>)).reflect_shared(writer));

    // Four pods come and go before the subscriber is polled for the first time.
    let mut passed = 0;
    while passed < 10 {
        root.next().await.unwrap().unwrap();
        passed += 1;
    }
    let heard = tokio::spawn(async move {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let listen = subscriber.for_each(|_| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(())
        });
        let _: Result<(), _> = timeout(Duration::from_hours(2), listen).await;
        Ok::<_, Infallible>(count.into_inner())
    });
    while let Ok(Some(event)) = timeout(Duration::from_hours(1), root.next()).await {
        event.unwrap();
        passed += 1;
    }
    assert!(passed < all, "kube's root stream went through all {all} events");
    assert_eq!(
        heard.await.unwrap().unwrap(),
        0,
        "the subscriber slept through everything"
    );
}
