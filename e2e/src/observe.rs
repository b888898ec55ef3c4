//! Following what happens in a cluster by watching, with a limit to patience. When it runs out, the error tells what
//! was seen last.
//!
//! Only what an API server shows is waited for here; for all else there is [`crate::deadline`].

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Error, Result};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

/// A watch that broke is tried again after this: an API server that is away is part of many scenarios.
const AGAIN: Duration = Duration::from_millis(300);

/// Watches one object until it is as `wanted`; none means that it is not there.
pub async fn object<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    within: Duration,
    wanted: impl FnMut(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut wanted = wanted;
    follow(watcher::watch_object(api, name).boxed(), what, within, |found| {
        wanted(found.as_ref())
    })
    .await
}

/// Watches the events of a namespace, those that are there already included, until one is `wanted`.
pub async fn event(
    client: Client,
    namespace: &str,
    what: &str,
    within: Duration,
    wanted: impl FnMut(&Event) -> bool,
) -> Result<Event> {
    let mut wanted = wanted;
    let events = Api::<Event>::namespaced(client, namespace);
    let watch = watcher(events, watcher::Config::default()).applied_objects();
    follow(watch.boxed(), what, within, |event| wanted(event)).await
}

async fn follow<T: Serialize>(
    mut watch: BoxStream<'_, watcher::Result<T>>,
    what: &str,
    within: Duration,
    mut wanted: impl FnMut(&T) -> bool,
) -> Result<T> {
    let limit = Instant::now() + within;
    let mut last = None;
    let mut trouble = None;
    loop {
        match timeout_at(limit, watch.next()).await {
            Ok(Some(Ok(found))) if wanted(&found) => return Ok(found),
            Ok(Some(Ok(found))) => last = Some(found),
            Ok(Some(Err(error))) => {
                trouble = Some(error);
                sleep(AGAIN).await;
            }
            Ok(None) | Err(_) => return Err(out_of_patience(what, within, last, trouble)),
        }
    }
}

fn out_of_patience<T: Serialize>(
    what: &str,
    within: Duration,
    last: Option<T>,
    trouble: Option<watcher::Error>,
) -> Error {
    let seen = last.map(|last| serde_json::to_value(last).unwrap_or_default());
    let seen = match &seen {
        None => "nothing was seen".to_owned(),
        Some(Value::Null) => "it was not there".to_owned(),
        Some(seen) => format!("last seen: {}", telling(seen)),
    };
    let trouble = trouble.map_or(String::new(), |error| format!("; the watch broke: {error}"));
    Error::msg(format!(
        "{what}: not within {} s; {seen}{trouble}",
        within.as_secs_f32()
    ))
}

/// The status of an object, or all of what has none.
fn telling(object: &Value) -> &Value {
    object
        .get("status")
        .filter(|status| !status.is_null())
        .unwrap_or(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_is_wanted_ends_the_wait_and_what_comes_before_does_not() {
        let seen = futures::stream::iter([1, 2, 3].map(Ok)).boxed();
        let found = follow(seen, "three", Duration::from_secs(5), |n| *n == 3).await;
        assert_eq!(found.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn out_of_patience_it_tells_what_was_seen_last() {
        let seen = futures::stream::iter([Ok(json!({ "status": { "phase": "Pending" } }))])
            .chain(futures::stream::pending())
            .boxed();
        let error = follow(seen, "the pod runs", Duration::from_secs(2), |_| false).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "the pod runs: not within 2 s; last seen: {\"phase\":\"Pending\"}"
        );
        let nothing = futures::stream::iter([Ok(Value::Null)])
            .chain(futures::stream::pending())
            .boxed();
        let error = follow(nothing, "the pod runs", Duration::from_secs(2), |_| false).await;
        assert!(error.unwrap_err().to_string().ends_with("it was not there"));
    }
}
