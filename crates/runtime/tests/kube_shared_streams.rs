//! Shows why this project has its own informers: kube's shared streams lose deletes and can stall.
//!
//! If a test here fails, kube was fixed: use its shared streams and delete our informer.
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

/// A subscriber receives an apply but never the following delete, so that a deleted pod would wake no controller.
#[tokio::test(start_paused = true)]
async fn a_subscriber_of_a_shared_stream_receives_no_deletes() {
    let (_, writer) = reflector::store_shared::<Pod>(16);
    let mut subscriber = pin!(writer.subscribe().unwrap());
    let events = [Event::Init, Event::InitDone, Event::Apply(pod("a"))].map(Ok::<_, Error>);
    let deletes = [Event::Delete(pod("a"))].map(Ok::<_, Error>);

    // Step by step, so that the subscriber receives the apply before the delete.
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
    let received = timeout(Duration::from_hours(1), subscriber.next()).await;
    assert!(
        received.is_err(),
        "kube sends deletes to subscribers now: {received:?}"
    );
}

/// Pods that are created and deleted before a subscriber is polled leave it asleep permanently. Once its buffer is full, the
/// root stream stops too, and with it every store that it feeds.
#[tokio::test(start_paused = true)]
async fn short_lived_objects_stop_the_root_stream_permanently() {
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

    // Four pods are created and deleted before the subscriber is polled for the first time.
    let mut passed = 0;
    while passed < 10 {
        root.next().await.unwrap().unwrap();
        passed += 1;
    }
    let received = tokio::spawn(async move {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let count_events = subscriber.for_each(|_| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(())
        });
        let _: Result<(), _> = timeout(Duration::from_hours(2), count_events).await;
        Ok::<_, Infallible>(count.into_inner())
    });
    while let Ok(Some(event)) = timeout(Duration::from_hours(1), root.next()).await {
        event.unwrap();
        passed += 1;
    }
    assert!(passed < all, "kube's root stream processed all {all} events");
    assert_eq!(
        received.await.unwrap().unwrap(),
        0,
        "the subscriber was never woken"
    );
}
