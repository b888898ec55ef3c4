//! Events for people who ask `kubectl describe`: best effort, in the background, and never many.
//!
//! Publishing neither fails nor waits. What is said again within a while is counted in a series instead of repeated;
//! what exceeds the rate of an object or the room of the channel is dropped and counted.

mod aggregate;

use std::fmt;

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

/// The API server takes no longer note.
const LONGEST_NOTE: usize = 1024;

/// Events that may wait to be sent.
const ROOM: usize = 256;

/// Whether people should be alarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Things go as they should.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

impl Severity {
    const fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something worth telling about an object.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// How bad it is.
    pub severity: Severity,
    /// Why, in one `CamelCase` word that never changes.
    pub reason: &'static str,
    /// What was done, in one `CamelCase` word.
    pub action: &'static str,
    /// The story, in a sentence.
    pub note: String,
}

/// The handle controllers publish with; cheap to clone.
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
    /// Publishes about an object, if there is room.
    pub fn publish(&self, notice: Notice) {
        if self.channel.try_send(notice).is_err() {
            self.metrics.event_dropped();
        }
    }
}

/// The background half: sends what recorders publish.
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

/// The name events are reported under.
const CONTROLLER: &str = "etcd.database.coreos.com/etcd-operator";

/// Both halves; `instance` tells processes apart.
pub fn channel(
    client: Client,
    instance: impl Into<String>,
    leadership: Leadership,
    clock: SharedClock,
    metrics: Metrics,
) -> (Recorder, Publisher) {
    let (sender, receiver) = mpsc::channel(ROOM);
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
    /// Draws what tells events apart from another source than the machine's.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sends until `shutdown`, or until no recorder is left.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let notice = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                notice = self.channel.recv() => notice,
            };
            let Some(mut notice) = notice else { return };
            truncate(&mut notice.note);
            // A call that is not answered must not use up the time a process has for its stop.
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

    /// Whether it was sent.
    async fn send(&mut self, notice: &Notice) -> bool {
        match self.aggregator.judge(notice, self.clock.elapsed()) {
            Verdict::TooMany => false,
            Verdict::New => self.create(notice).await,
            Verdict::Again { event, count } => match self.count(notice, &event, count).await {
                Some(sent) => sent,
                // Events are removed after a while; then it is news once more.
                None => self.create(notice).await,
            },
        }
    }

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
            self.aggregator.sent(notice, name, self.clock.elapsed());
        }
        sent
    }

    /// Whether the series was counted on; `None` if its event is gone.
    async fn count(&self, notice: &Notice, event: &str, count: i32) -> Option<bool> {
        let last = MicroTime(self.clock.now());
        let change = json!({"series": {"count": count, "lastObservedTime": last}});
        let request = requests(notice).patch(event, &PatchParams::default(), &Patch::Merge(change));
        match self.call(request.ok()?).await {
            Some(Err(kube::Error::Api(status))) if status.code == 404 => None,
            answer => Some(matches!(answer, Some(Ok(_)))),
        }
    }

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
            type_: Some(notice.severity.word().to_owned()),
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
    // Events about cluster-scoped objects live here by convention.
    notice.regarding.namespace.as_deref().unwrap_or("default")
}

fn requests(notice: &Notice) -> Request {
    Request::new(Event::url_path(&(), Some(namespace(notice))))
}

fn truncate(note: &mut String) {
    const MARK: &str = "…";
    if note.len() > LONGEST_NOTE {
        note.truncate(note.floor_char_boundary(LONGEST_NOTE - MARK.len()));
        note.push_str(MARK);
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

    struct Bench {
        recorder: Recorder,
        server: Server,
        metrics: Metrics,
    }

    fn bench(server: Server, leads: bool) -> Bench {
        let (metrics, clock) = (Metrics::new("1", "c"), TestClock::shared());
        let leadership = if leads {
            Leadership::always(clock.clone())
        } else {
            Leadership::standby(clock.clone()).0
        };
        let (recorder, publisher) = channel(server.client(), "pod-1", leadership, clock, metrics.clone());
        tokio::spawn(publisher.run(CancellationToken::new()));
        Bench {
            recorder,
            server,
            metrics,
        }
    }

    fn ok() -> Server {
        Server::new(|call| Reply::ok(call.body.clone()))
    }

    async fn pass(time: Duration) {
        assert!(timeout(time, std::future::pending::<()>()).await.is_err());
    }

    impl Bench {
        async fn calls(&self) -> Vec<String> {
            pass(Duration::from_millis(10)).await;
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
        let bench = bench(ok(), true);
        bench
            .recorder
            .publish(notice("orders", "orders-3 joined as a learner"));
        assert_eq!(bench.calls().await, ["POST"]);
        let call = &bench.server.calls()[0];
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
    async fn what_is_said_again_is_counted_in_a_series() {
        let bench = bench(ok(), true);
        for _ in 0..3 {
            bench.recorder.publish(notice("orders", "same"));
        }
        assert_eq!(bench.calls().await, ["POST", "PATCH", "PATCH"]);
        let calls = bench.server.calls();
        assert_eq!(calls[2].body["series"]["count"], json!(3));
        assert!(
            calls[2]
                .uri
                .contains(calls[0].body["metadata"]["name"].as_str().unwrap())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_whose_event_is_gone_starts_anew() {
        let server = Server::new(|call| match call.method.as_str() {
            "PATCH" => Reply::no(404, "gone"),
            _ => Reply::ok(call.body.clone()),
        });
        let bench = bench(server, true);
        bench.recorder.publish(notice("orders", "same"));
        bench.recorder.publish(notice("orders", "same"));
        assert_eq!(bench.calls().await, ["POST", "PATCH", "POST"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_noisy_object_is_cut_off_and_others_are_not() {
        let bench = bench(ok(), true);
        for n in 0..50 {
            bench.recorder.publish(notice("noisy", &n.to_string()));
        }
        bench.recorder.publish(notice("quiet", "one"));
        assert_eq!(bench.calls().await.len(), 31);
        assert_eq!(bench.dropped(), "20");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_api_server_costs_events_and_nothing_else() {
        let bench = bench(Server::scripted([]), true);
        pass(Duration::from_millis(1)).await;
        for n in 0..ROOM + 10 {
            bench.recorder.publish(notice(&format!("o{n}"), "x"));
        }
        assert_eq!(bench.dropped(), "10");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_sends_no_events() {
        let bench = bench(ok(), false);
        bench.recorder.publish(notice("orders", "x"));
        assert!(bench.calls().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_does_not_wait_for_an_event_that_is_not_answered() {
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
        pass(Duration::from_millis(10)).await;
        assert_eq!(server.calls().len(), 1);
        shutdown.cancel();
        timeout(Duration::from_millis(10), running)
            .await
            .expect("the publisher ends with the shutdown")
            .unwrap();
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let mut note = "ü".repeat(1000);
        truncate(&mut note);
        assert!(note.len() <= LONGEST_NOTE && note.ends_with("ü…"));
    }
}
