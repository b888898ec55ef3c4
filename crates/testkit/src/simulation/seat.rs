//! Where an operator sits: a client of the API server, a way to members and to their reports, all behind one gate, over a
//! network with faults of its own, and under the eyes of the ledger.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use etcd_operator_api::contract::Report;
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::client::Body;
use serde_json::Value;
use tower::Service as _;

use super::tally::name;
use crate::etcd::{Caller, Dialer, Etcds};
use crate::fake::{FakeService, Fault, Matching, Query, Route, Rules, Sent, Target, Verb, parse};
use crate::gate::{Gate, Side};
use crate::ledger::{Ledger, Promise, Request as Judged};
use crate::machine::{Machine, Unreported};
use crate::timeline::Timeline;

/// The label of operators, for the network.
pub const OPERATOR: &str = "operator";
/// What a request takes there, and an answer back.
const HOP: Duration = Duration::from_micros(700);

type Answer = Response<UnsyncBoxBody<Bytes, std::convert::Infallible>>;

/// One operator's seat, from its start to its death.
#[derive(Clone, Debug)]
pub struct Seat {
    service: Watched,
    etcds: Etcds,
    machine: Machine,
    gate: Gate,
}

/// The API server as an operator reaches it.
#[derive(Clone)]
struct Watched {
    inner: FakeService,
    gate: Gate,
    ledger: Ledger,
    faults: Arc<Mutex<Rules>>,
    readers: Readers,
    timeline: Timeline,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

/// Faults between operators and the API server. They outlive a seat.
#[derive(Clone, Default)]
pub(crate) struct ApiFaults(Arc<Mutex<Rules>>);

type Reader = Box<dyn Fn(&Value) + Send + Sync>;

/// Those who read what operators write into statuses.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<Vec<Reader>>>);

impl Readers {
    pub(crate) fn add(&self, reader: Reader) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    }

    fn show(&self, status: &Value) {
        for reader in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            reader(status);
        }
    }
}

impl ApiFaults {
    pub(crate) fn add(&self, matching: Matching, fault: Fault, times: u32) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(matching, fault, times);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Seat {
    pub(crate) fn new(
        inner: FakeService,
        etcds: &Etcds,
        machine: &Machine,
        ledger: &Ledger,
        (faults, readers): (&ApiFaults, &Readers),
        gate: Gate,
    ) -> Self {
        Self {
            service: Watched {
                inner,
                gate: gate.clone(),
                ledger: ledger.clone(),
                faults: Arc::clone(&faults.0),
                readers: readers.clone(),
                timeline: etcds.timeline(),
            },
            etcds: etcds.clone(),
            machine: machine.clone(),
            gate,
        }
    }

    /// A client of the API server.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service.clone(), "default")
    }

    /// A way to members.
    pub fn dialer(&self) -> Dialer {
        let caller = Caller {
            labels: vec![OPERATOR.to_owned()],
            gate: self.gate.clone(),
            is_judged: true,
        };
        self.etcds.dialer(caller)
    }

    /// What the process at an address reports.
    pub async fn report(&self, address: &str) -> Result<Report, Unreported> {
        self.gate.pass("Report", Side::Before).await;
        tokio::time::sleep(HOP).await;
        let report = self.machine.report(address, &[OPERATOR.to_owned()]);
        if report == Err(Unreported::Unreachable) {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.gate.pass("Report", Side::After).await;
        report
    }

    /// The time of the wall's clock where it sits.
    pub fn wall(&self) -> jiff::Timestamp {
        self.machine.wall()
    }

    /// Says that the operator did something that no promise allows.
    pub fn accuse(&self, promise: Promise, what: impl Into<String>) {
        self.service.ledger.accuse(promise, what.into());
    }

    /// Notes what the operator says of itself.
    pub fn remark(&self, what: impl std::fmt::Display) {
        self.service.timeline.note(OPERATOR, what);
    }

    /// The gate everything of it goes through.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl tower::Service<Request<Body>> for Watched {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.pass(request).await })
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the network")
}

impl Watched {
    async fn pass(mut self, request: Request<Body>) -> Result<Answer, io::Error> {
        let (mut parts, body) = request.into_parts();
        let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let route = match parse(&parts.method, parts.uri.path(), &query) {
            Target::Resource(route) => Some(route),
            Target::Other(_) => None,
        };
        if route.as_ref().is_some_and(|route| route.verb == Verb::Watch) {
            self.gate.while_open().await;
            let request = Request::from_parts(parts, Body::from(bytes));
            return Ok(guarded(self.inner.call(request).await?, self.gate));
        }
        let sent: Option<Arc<Value>> = serde_json::from_slice(&bytes).ok().map(Arc::new);
        // It is read once.
        if let Some(sent) = &sent {
            parts.extensions.insert(Sent(Arc::clone(sent)));
        }
        let sent = sent.unwrap_or_default();
        let call = name(route.as_ref(), &sent);
        self.gate.pass(&call, Side::Before).await;
        let fault = match &route {
            Some(route) => self.fault(route, &sent).await?,
            None => None,
        };
        tokio::time::sleep(HOP).await;
        let again = (fault == Some(Fault::Duplicate)).then(|| (parts.clone(), bytes.clone()));
        if let Some(Fault::Status(code)) = fault {
            let answer = Response::builder().status(code);
            let body = refusal(code);
            return Ok(answer.body(body).expect("a status is well formed"));
        }
        if let Some(route) = route.filter(|route| route.verb.writes()) {
            self.judge(&route, sent);
        }
        let mut answer = self
            .inner
            .call(Request::from_parts(parts, Body::from(bytes)))
            .await?;
        if let Some((parts, bytes)) = again {
            answer = self
                .inner
                .call(Request::from_parts(parts, Body::from(bytes)))
                .await?;
        }
        tokio::time::sleep(HOP).await;
        self.gate.pass(&call, Side::After).await;
        if fault == Some(Fault::LoseAnswer) {
            return Err(broken());
        }
        Ok(answer)
    }

    async fn fault(&self, route: &Route, sent: &Value) -> Result<Option<Fault>, io::Error> {
        // After a list that failed an operator waits for a time that no seed decides.
        if route.verb == Verb::List {
            return Ok(None);
        }
        let name = if route.name.is_empty() {
            sent["metadata"]["name"].as_str().unwrap_or_default()
        } else {
            &route.name
        };
        let (delay, fault) = {
            let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.take(route, name)
        };
        if let Some(fault) = &fault {
            let what = format!("{:?} {} {name}: {fault:?}", route.verb, route.plural);
            self.timeline.note(OPERATOR, what);
        }
        tokio::time::sleep(delay).await;
        match fault {
            Some(Fault::LoseRequest) => Err(broken()),
            Some(Fault::TooManyRequests(_)) => Ok(Some(Fault::Status(429))),
            Some(Fault::Refuse(code, _)) => Ok(Some(Fault::Status(code))),
            fault => Ok(fault),
        }
    }

    fn judge(&self, route: &Route, body: Arc<Value>) {
        let resource = if route.subresource.is_empty() {
            route.plural.clone()
        } else {
            format!("{}/{}", route.plural, route.subresource)
        };
        let is_of_members =
            ["pods", "persistentvolumeclaims", "statefulsets"].contains(&route.plural.as_str());
        // Patches are told where something comes of them.
        if is_of_members && matches!(route.verb, Verb::Create | Verb::Delete) {
            self.timeline.note(
                OPERATOR,
                format_args!("{:?} {resource} {}", route.verb, route.name),
            );
        }
        if resource == "etcdclusters/status" {
            self.readers.show(&body["status"]);
        }
        self.ledger.judge_request(&Judged {
            verb: route.verb,
            resource,
            namespace: route.namespace.clone(),
            name: route.name.clone(),
            body,
        });
    }
}

fn refusal(code: u16) -> UnsyncBoxBody<Bytes, std::convert::Infallible> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "InternalError",
        "message": "the server has a fault", "code": code,
    });
    http_body_util::Full::new(Bytes::from(status.to_string())).boxed_unsync()
}

/// A watch of which a caller that is stopped hears nothing.
fn guarded(answer: Answer, gate: Gate) -> Answer {
    let (parts, body) = answer.into_parts();
    let frames = stream::unfold((BodyStream::new(body), gate), |(mut frames, gate)| async move {
        let frame = frames.next().await?;
        gate.while_open().await;
        Some((frame, (frames, gate)))
    });
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}
