//! The HTTP server of the manager: `/healthz`, `/readyz`, `/metrics`. It is read-only and serves no secrets.
//!
//! Every connection serves one request and has a timeout, and the number of connections is limited. Slow clients
//! therefore cannot exhaust the memory of the process.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::fence::Leadership;
use crate::gate::{self, Gate};
use crate::liveness::Liveness;
use crate::metrics::{Format, Metrics, MetricsPage};

/// How long open connections may continue after a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a connection, including request and response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Most concurrent connections. A further one closes the oldest, which is the most likely to be stalled.
const MAX_CONNECTIONS: usize = 64;

/// Most bytes of a request that are buffered.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// Delay after a failed accept, for example for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The state behind the pages.
#[derive(Clone, Debug)]
pub struct Health {
    gates: Arc<[Gate]>,
    leadership: Leadership,
    liveness: Liveness,
    metrics: MetricsPage,
}

impl Health {
    /// Reports ready when all gates are ready. A standby is ready too, because its stores are synced.
    pub fn new(gates: Vec<Gate>, leadership: Leadership, liveness: Liveness, metrics: Metrics) -> Self {
        Self {
            gates: gates.into(),
            metrics: MetricsPage::new(metrics, leadership.clock()),
            leadership,
            liveness,
        }
    }

    /// Whether the process is ready, and a page with one line per gate and one for the lease.
    pub fn readiness(&self) -> (bool, String) {
        let mut ready = true;
        let mut page = String::new();
        for gate in self.gates.iter() {
            let line = match gate.state() {
                gate::State::Ready => format!("ok {}", gate.name()),
                gate::State::Waiting(why) => {
                    ready = false;
                    format!("waiting {}: {why}", gate.name())
                }
            };
            writeln!(page, "{line}").expect("writing into a string does not fail");
        }
        let (is_leader, problem) = (self.leadership.is_leader(), self.leadership.lease_problem());
        // A standby that cannot reach the lease could not take over. A leader works as long as its leadership lasts.
        ready &= is_leader || problem.is_none();
        let line = match (is_leader, problem) {
            (true, None) => "ok lease: leading".to_owned(),
            (true, Some(problem)) => format!("ok lease: leading, but the lease {problem}"),
            (false, None) => "ok lease: standing by".to_owned(),
            (false, Some(problem)) => format!("waiting lease: {problem}"),
        };
        writeln!(page, "{line}").expect("writing into a string does not fail");
        (ready, page)
    }

    /// Whether every loop makes progress, and a page that names those that do not. Waiting for the API server is progress.
    pub fn liveness(&self) -> (bool, String) {
        let overdue = self.liveness.overdue();
        if overdue.is_empty() {
            return (true, "ok\n".to_owned());
        }
        (false, overdue.join("\n") + "\n")
    }

    fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn healthz(State(health): State<Health>) -> impl IntoResponse {
    probe_response(health.liveness())
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    probe_response(health.readiness())
}

fn probe_response((is_ok, page): (bool, String)) -> (StatusCode, String) {
    let status = if is_ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, page)
}

async fn metrics(State(health): State<Health>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let format = Format::negotiate(accept);
    match health.metrics.text(format).await {
        Ok(page) => ([(header::CONTENT_TYPE, format.content_type())], page.to_string()).into_response(),
        Err(error) => {
            warn!("the metrics could not be computed: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Binds a listener. `0.0.0.0` binds the IPv6 wildcard address, which accepts IPv4 too, because on an IPv6-only node the
/// kubelet probes only the IPv6 address. Falls back to IPv4.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() == Ipv4Addr::UNSPECIFIED {
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, address.port())).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    TcpListener::bind(address).await
}

/// A bound server that does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    connection_timeout: Duration,
}

impl Server {
    /// Binds the address, so that an address in use fails the start.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: listen(address).await?,
            connection_timeout: CONNECTION_TIMEOUT,
        })
    }

    /// The address of the listener.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`. Open connections then have two seconds to end.
    pub async fn run(self, health: Health, shutdown: CancellationToken) -> io::Result<()> {
        let Self {
            listener,
            connection_timeout,
        } = self;
        let service = TowerToHyperService::new(health.router());
        let mut connections = JoinSet::new();
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            if open.len() >= MAX_CONNECTIONS {
                open.retain(|connection| !connection.is_finished());
            }
            if open.len() >= MAX_CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let connection = http1::Builder::new()
                .keep_alive(false)
                .header_read_timeout(None)
                .max_buf_size(MAX_REQUEST_BYTES)
                .serve_connection(TokioIo::new(stream), service.clone());
            // The result of a connection does not matter to the server.
            open.push_back(
                connections.spawn(async move { drop(timeout(connection_timeout, connection).await) }),
            );
        }
        drop(listener);
        let remaining = async { while connections.join_next().await.is_some() {} };
        // A client that keeps its connection open does not block the shutdown.
        drop(timeout(SHUTDOWN_TIMEOUT, remaining).await);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        fetch_with(address, path, "").await
    }

    async fn fetch_with(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readyz_lists_pending_gates_and_a_standby_is_ready() {
        let pods = Gate::waiting("Pod", "not started");
        let clusters = Gate::waiting("EtcdCluster", "waiting for CustomResourceDefinition x");
        let (leadership, _tenure) = Leadership::standby(TestClock::shared());
        let health = Health::new(
            vec![pods.clone(), clusters.clone()],
            leadership,
            Liveness::new(TestClock::shared()),
            Metrics::new("1", "c"),
        );
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = server.address().unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(server.run(health, shutdown.clone()));

        pods.set(gate::State::Ready);
        let answer = fetch(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        let page =
            "ok Pod\nwaiting EtcdCluster: waiting for CustomResourceDefinition x\nok lease: standing by\n";
        assert!(answer.ends_with(page), "{answer}");
        clusters.set(gate::State::Ready);
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let metrics = fetch(address, "/metrics").await;
        assert!(
            metrics.contains("text/plain; version=0.0.4")
                && metrics.contains("\n# TYPE etcd_operator_events_dropped_total counter\n")
                && !metrics.contains("# EOF"),
            "{metrics}"
        );
        let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\n";
        let metrics = fetch_with(address, "/metrics", accept).await;
        assert!(
            metrics.contains("application/openmetrics-text; version=1.0.0")
                && metrics.contains("\n# TYPE etcd_operator_events_dropped counter\n")
                && metrics.ends_with("# EOF\n"),
            "{metrics}"
        );

        let idle = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        timeout(Duration::from_secs(10), running)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        drop(idle);
    }

    #[tokio::test]
    async fn unfinished_requests_time_out_and_do_not_block_others() {
        let (leadership, _tenure) = Leadership::standby(TestClock::shared());
        let health = Health::new(
            vec![],
            leadership,
            Liveness::new(TestClock::shared()),
            Metrics::new("1", "c"),
        );
        let server = Server {
            connection_timeout: Duration::from_millis(500),
            ..Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap()
        };
        let address = server.address().unwrap();
        tokio::spawn(server.run(health, CancellationToken::new()));
        let mut stalled = Vec::new();
        for _ in 0..MAX_CONNECTIONS * 2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(b"GET /readyz HTTP/1.1\r\nX-Long: ")
                .await
                .unwrap();
            stalled.push(stream);
        }
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        for mut stream in stalled {
            let mut answer = Vec::new();
            // The server may close or reset the connection.
            let ended = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "the unfinished request did not time out");
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        }
    }

    #[tokio::test]
    async fn healthz_fails_while_a_loop_hangs_and_names_it() {
        let clock = std::sync::Arc::new(crate::clock::ManualClock::default());
        let (leadership, _tenure) = Leadership::standby(clock.clone());
        let liveness = Liveness::new(clock.clone());
        let health = Health::new(vec![], leadership, liveness.clone(), Metrics::new("1", "c"));
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = server.address().unwrap();
        tokio::spawn(server.run(health, CancellationToken::new()));
        let hanging = liveness.start("the watch of Pod", Duration::from_mins(1));
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        clock.advance(Duration::from_secs(63));
        let answer = fetch(address, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(
            answer.ends_with("the watch of Pod hangs: overdue for 3 s\n"),
            "{answer}"
        );
        drop(hanging);
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn concurrent_scrapes_cost_one_computation_and_delay_no_probe() {
        let clock = std::sync::Arc::new(crate::clock::ManualClock::default());
        let (leadership, _tenure) = Leadership::standby(clock.clone());
        let metrics = Metrics::new("1", "c");
        let (started, mut has_started) = tokio::sync::mpsc::unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        metrics.register_computed("slow", "Slow", move || {
            started.send(()).unwrap();
            // Ends when the sender is dropped.
            let _ = released.lock().unwrap().recv();
            Vec::new()
        });
        let health = Health::new(vec![], leadership, Liveness::new(clock.clone()), metrics);
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = server.address().unwrap();
        tokio::spawn(server.run(health, CancellationToken::new()));
        let scrapes: Vec<_> = (0..20)
            .map(|_| tokio::spawn(fetch(address, "/metrics")))
            .collect();
        has_started.recv().await.unwrap();
        // This test has a single thread, so a computation on it would prevent this answer.
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        drop(release);
        for scrape in scrapes {
            assert!(
                scrape
                    .await
                    .unwrap()
                    .contains("\n# TYPE etcd_operator_slow gauge\n")
            );
        }
        assert!(has_started.try_recv().is_err(), "computed once");
        clock.advance(Duration::from_secs(1));
        fetch(address, "/metrics").await;
        assert!(has_started.try_recv().is_ok(), "computed again after a second");
    }
}
