//! Kubernetes Events, published in the background on a best-effort basis.
//!
//! Publishing neither fails nor blocks. A repeated Event increments the count of its series. Events above the rate limit
//! of an object or the capacity of the channel are dropped and counted.

mod aggregate;

use std::fmt;

use etcd_operator_api::severity::Severity;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, Request};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::apply::send_permitted;
use crate::clock::SharedClock;
use crate::fence::Leadership;
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use aggregate::{Aggregator, Verdict};

/// The API server rejects a longer note.
const MAX_NOTE_BYTES: usize = 1024;

/// Capacity of the channel between recorders and publisher.
const CHANNEL_CAPACITY: usize = 256;

/// An Event to publish.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object the Event is about.
    pub regarding: ObjectReference,
    /// Type of the Event.
    pub severity: Severity,
    /// Reason of the Event: one `CamelCase` word that never changes.
    pub reason: &'static str,
    /// Action of the operator: one `CamelCase` word.
    pub action: &'static str,
    /// Message of the Event, in a sentence.
    pub note: String,
}

/// The handle through which controllers publish Events; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    channel: mpsc::Sender<Notice>,
    metrics: Metrics,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Publishes an Event, or drops it if the channel is full.
    pub fn publish(&self, notice: Notice) {
        if self.channel.try_send(notice).is_err() {
            self.metrics.event_dropped();
        }
    }
}

/// Sends the Events of all recorders to the API server.
pub struct Publisher {
    client: Client,
    instance: String,
    leadership: Leadership,
    clock: SharedClock,
    metrics: Metrics,
    channel: mpsc::Receiver<Notice>,
    aggregator: Aggregator,
    jitter: Jitter,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({})", self.instance)
    }
}

/// `reportingController` of all Events.
const CONTROLLER: &str = "etcd.database.coreos.com/etcd-operator";

/// Creates a recorder and its publisher. `instance` identifies this process in Events.
pub fn channel(
    client: Client,
    instance: impl Into<String>,
    leadership: Leadership,
    clock: SharedClock,
    metrics: Metrics,
) -> (Recorder, Publisher) {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let recorder = Recorder {
        channel: sender,
        metrics: metrics.clone(),
    };
    let publisher = Publisher {
        client,
        instance: instance.into(),
        leadership,
        clock,
        metrics,
        channel: receiver,
        aggregator: Aggregator::default(),
        jitter: Jitter::default(),
    };
    (recorder, publisher)
}

impl Publisher {
    /// Replaces the source of randomness for names of Events.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sends Events until `shutdown`, or until the last recorder is dropped.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let notice = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                notice = self.channel.recv() => notice,
            };
            let Some(mut notice) = notice else { return };
            truncate(&mut notice.note);
            // An unanswered call must not delay the shutdown of the process.
            let sent = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                sent = self.send(&notice) => sent,
            };
            if !sent {
                self.metrics.event_dropped();
            }
        }
    }

    /// Returns whether the Event was sent.
    async fn send(&mut self, notice: &Notice) -> bool {
        match self.aggregator.classify(notice, self.clock.elapsed()) {
            Verdict::Drop => false,
            Verdict::Create => self.create(notice).await,
            Verdict::Repeat { event, count } => match self.update_series(notice, &event, count).await {
                Some(sent) => sent,
                // The API server deletes Events after their TTL; then a new one is created.
                None => self.create(notice).await,
            },
        }
    }

    /// Creates an Event, with which a series may begin. Returns whether that succeeded.
    async fn create(&mut self, notice: &Notice) -> bool {
        let event = self.event(notice);
        let name = event.metadata.name.clone().unwrap_or_default();
        let Ok(body) = serde_json::to_vec(&event) else {
            return false;
        };
        let Ok(request) = requests(notice).create(&PostParams::default(), body) else {
            return false;
        };
        let sent = matches!(self.call(request).await, Some(Ok(_)));
        if sent {
            self.aggregator.record_created(notice, name, self.clock.elapsed());
        }
        sent
    }

    /// Increments the count of a series. Returns whether that succeeded, or `None` if the Event no longer exists.
    async fn update_series(&self, notice: &Notice, event: &str, count: i32) -> Option<bool> {
        let last = MicroTime(self.clock.now());
        let change = json!({"series": {"count": count, "lastObservedTime": last}});
        let request = requests(notice).patch(event, &PatchParams::default(), &Patch::Merge(change));
        match self.call(request.ok()?).await {
            Some(Err(kube::Error::Api(status))) if status.code == 404 => None,
            answer => Some(matches!(answer, Some(Ok(_)))),
        }
    }

    /// Sends one request. `None` if this process does not lead, or the API server does not answer.
    async fn call(&self, request: http::Request<Vec<u8>>) -> Option<Result<Value, kube::Error>> {
        let permit = self.leadership.permit().ok()?;
        let answer = send_permitted(permit, &self.client, request).await.ok()?;
        if let Some(Err(error)) = &answer {
            debug!("event not sent: {error}");
        }
        answer
    }

    fn event(&self, notice: &Notice) -> Event {
        let name = notice.regarding.name.as_deref().unwrap_or("unnamed");
        Event {
            metadata: ObjectMeta {
                namespace: Some(namespace(notice).to_owned()),
                name: Some(format!("{name}.{}{}", self.jitter.suffix(), self.jitter.suffix())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(self.clock.now())),
            type_: Some(notice.severity.event_type().to_owned()),
            reason: Some(notice.reason.to_owned()),
            action: Some(notice.action.to_owned()),
            note: Some(notice.note.clone()),
            regarding: Some(notice.regarding.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

fn namespace(notice: &Notice) -> &str {
    // By convention, Events about cluster-scoped objects belong to this namespace.
    notice.regarding.namespace.as_deref().unwrap_or("default")
}

fn requests(notice: &Notice) -> Request {
    Request::new(Event::url_path(&(), Some(namespace(notice))))
}

fn truncate(note: &mut String) {
    const ELLIPSIS: &str = "…";
    if note.len() > MAX_NOTE_BYTES {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use crate::fake::{Reply, Server};
    use std::time::Duration;
    use tokio::time::timeout;

    fn notice(name: &str, note: &str) -> Notice {
        Notice {
            regarding: ObjectReference {
                namespace: Some("shop".into()),
                name: Some(name.into()),
                uid: Some(format!("uid-{name}")),
                ..ObjectReference::default()
            },
            severity: Severity::Normal,
            reason: "MemberAdded",
            action: "AddMember",
            note: note.into(),
        }
    }

    struct Fixture {
        recorder: Recorder,
        server: Server,
        metrics: Metrics,
    }

    fn fixture(server: Server, leads: bool) -> Fixture {
        let (metrics, clock) = (Metrics::new("1", "c"), TestClock::shared());
        let leadership = if leads {
            Leadership::always(clock.clone())
        } else {
            Leadership::standby(clock.clone()).0
        };
        let (recorder, publisher) = channel(server.client(), "pod-1", leadership, clock, metrics.clone());
        tokio::spawn(publisher.run(CancellationToken::new()));
        Fixture {
            recorder,
            server,
            metrics,
        }
    }

    fn accepting_server() -> Server {
        Server::new(|call| Reply::ok(call.body.clone()))
    }

    async fn advance(time: Duration) {
        assert!(timeout(time, std::future::pending::<()>()).await.is_err());
    }

    impl Fixture {
        async fn calls(&self) -> Vec<String> {
            advance(Duration::from_millis(10)).await;
            self.server.calls().into_iter().map(|call| call.method).collect()
        }

        fn dropped(&self) -> String {
            let page = self.metrics.encode();
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("etcd_operator_events_dropped_total "));
            line.unwrap().to_owned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_names_its_object_and_its_reporter() {
        let fixture = fixture(accepting_server(), true);
        fixture
            .recorder
            .publish(notice("orders", "orders-3 joined as a learner"));
        assert_eq!(fixture.calls().await, ["POST"]);
        let call = &fixture.server.calls()[0];
        assert_eq!(call.uri, "/apis/events.k8s.io/v1/namespaces/shop/events?");
        assert_eq!(call.body["regarding"]["uid"], json!("uid-orders"));
        assert_eq!(call.body["reason"], json!("MemberAdded"));
        assert_eq!(call.body["reportingInstance"], json!("pod-1"));
        assert!(
            call.body["metadata"]["name"]
                .as_str()
                .unwrap()
                .starts_with("orders.")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_counted_in_a_series() {
        let fixture = fixture(accepting_server(), true);
        for _ in 0..3 {
            fixture.recorder.publish(notice("orders", "same"));
        }
        assert_eq!(fixture.calls().await, ["POST", "PATCH", "PATCH"]);
        let calls = fixture.server.calls();
        assert_eq!(calls[2].body["series"]["count"], json!(3));
        assert!(
            calls[2]
                .uri
                .contains(calls[0].body["metadata"]["name"].as_str().unwrap())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_whose_event_expired_starts_again() {
        let server = Server::new(|call| match call.method.as_str() {
            "PATCH" => Reply::error(404, "gone"),
            _ => Reply::ok(call.body.clone()),
        });
        let fixture = fixture(server, true);
        fixture.recorder.publish(notice("orders", "same"));
        fixture.recorder.publish(notice("orders", "same"));
        assert_eq!(fixture.calls().await, ["POST", "PATCH", "POST"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_applies_per_object() {
        let fixture = fixture(accepting_server(), true);
        for n in 0..50 {
            fixture.recorder.publish(notice("noisy", &n.to_string()));
        }
        fixture.recorder.publish(notice("quiet", "one"));
        assert_eq!(fixture.calls().await.len(), 31);
        assert_eq!(fixture.dropped(), "20");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unresponsive_api_server_only_causes_dropped_events() {
        let fixture = fixture(Server::scripted([]), true);
        advance(Duration::from_millis(1)).await;
        for n in 0..CHANNEL_CAPACITY + 10 {
            fixture.recorder.publish(notice(&format!("o{n}"), "x"));
        }
        assert_eq!(fixture.dropped(), "10");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_sends_no_events() {
        let fixture = fixture(accepting_server(), false);
        fixture.recorder.publish(notice("orders", "x"));
        assert!(fixture.calls().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_for_an_unanswered_event() {
        let clock = TestClock::shared();
        let server = Server::scripted([]);
        let leadership = Leadership::always(clock.clone());
        let (recorder, publisher) = channel(
            server.client(),
            "pod-1",
            leadership,
            clock,
            Metrics::new("1", "c"),
        );
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(publisher.run(shutdown.clone()));
        recorder.publish(notice("orders", "x"));
        advance(Duration::from_millis(10)).await;
        assert_eq!(server.calls().len(), 1);
        shutdown.cancel();
        timeout(Duration::from_millis(10), running)
            .await
            .expect("the publisher ends with the shutdown")
            .unwrap();
    }

    #[test]
    fn a_long_note_is_truncated_at_a_character_boundary() {
        let mut note = "ü".repeat(1000);
        truncate(&mut note);
        assert!(note.len() <= MAX_NOTE_BYTES && note.ends_with("ü…"));
    }
}
