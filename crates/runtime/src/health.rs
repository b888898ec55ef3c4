//! The HTTP server of the manager: `/healthz`, `/readyz`, `/metrics`. Read only, and without secrets.
//!
//! A connection is good for one request, and short; there are never many. Nobody may hold memory of this process by
//! asking slowly.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::fence::Leadership;
use crate::gate::{self, Synced};
use crate::metrics::Metrics;

/// How long open connections may last after a shutdown.
const LINGER: Duration = Duration::from_secs(2);

/// How long a connection may last, its request and the answer included.
const LONGEST: Duration = Duration::from_secs(10);

/// Most connections at once. One more ends the oldest: it is the most likely to be stuck.
const CONNECTIONS: usize = 64;

/// Most bytes kept of a request.
const BUFFER: usize = 16 * 1024;

/// Pause after a connection that could not be taken, for want of file descriptors, say.
const RETRY: Duration = Duration::from_millis(100);

/// What the pages are made of.
#[derive(Clone, Debug)]
pub struct Health {
    gates: Arc<[Synced]>,
    leadership: Leadership,
    metrics: Metrics,
}

impl Health {
    /// Ready when all these gates are open. A standby is ready too: it is warm.
    pub fn new(gates: Vec<Synced>, leadership: Leadership, metrics: Metrics) -> Self {
        Self {
            gates: gates.into(),
            leadership,
            metrics,
        }
    }

    /// Whether everything is ready, and a line about each thing.
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
        let (leads, trouble) = (self.leadership.leads(), self.leadership.trouble());
        // A standby that cannot reach the lease could not take over; a leader does its work as long as it leads.
        ready &= leads || trouble.is_none();
        let line = match (leads, trouble) {
            (true, None) => "ok lease: leading".to_owned(),
            (true, Some(trouble)) => format!("ok lease: leading, but it {trouble}"),
            (false, None) => "ok lease: standing by".to_owned(),
            (false, Some(trouble)) => format!("waiting lease: {trouble}"),
        };
        writeln!(page, "{line}").expect("writing into a string does not fail");
        (ready, page)
    }

    fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    let (ready, page) = health.readiness();
    (
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        page,
    )
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], health.metrics.encode())
}

/// Listens there. All addresses are those of both kinds, where there are both: where there is only the newer one, the
/// kubelet asks at no other.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() == Ipv4Addr::UNSPECIFIED {
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, address.port())).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {}
            found => return found,
        }
    }
    TcpListener::bind(address).await
}

/// A server that is bound but not yet serving.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    longest: Duration,
}

impl Server {
    /// Binds, so that a taken address is an error at start.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: listen(address).await?,
            longest: LONGEST,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`.
    pub async fn run(self, health: Health, shutdown: CancellationToken) -> io::Result<()> {
        let Self { listener, longest } = self;
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
                sleep(RETRY).await;
                continue;
            };
            if open.len() >= CONNECTIONS {
                open.retain(|connection| !connection.is_finished());
            }
            if open.len() >= CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let connection = http1::Builder::new()
                .keep_alive(false)
                .header_read_timeout(None)
                .max_buf_size(BUFFER)
                .serve_connection(TokioIo::new(stream), service.clone());
            // How a connection ends concerns its client only.
            open.push_back(connections.spawn(async move { drop(timeout(longest, connection).await) }));
        }
        drop(listener);
        let rest = async { while connections.join_next().await.is_some() {} };
        // A client that keeps its connection open does not keep the process.
        drop(timeout(LINGER, rest).await);
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
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_says_what_it_waits_for_and_a_standby_is_ready() {
        let pods = Synced::waiting("Pod", "not started");
        let clusters = Synced::waiting("EtcdCluster", "waiting for CustomResourceDefinition x");
        let (leadership, _tenure) = Leadership::standby(TestClock::shared());
        let health = Health::new(
            vec![pods.clone(), clusters.clone()],
            leadership,
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
            metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"),
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
    async fn requests_that_never_end_are_cut_off_and_keep_nobody_out() {
        let (leadership, _tenure) = Leadership::standby(TestClock::shared());
        let health = Health::new(vec![], leadership, Metrics::new("1", "c"));
        let server = Server {
            longest: Duration::from_millis(500),
            ..Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap()
        };
        let address = server.address().unwrap();
        tokio::spawn(server.run(health, CancellationToken::new()));
        let mut stuck = Vec::new();
        for _ in 0..CONNECTIONS * 2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(b"GET /readyz HTTP/1.1\r\nX-Long: ")
                .await
                .unwrap();
            stuck.push(stream);
        }
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        for mut stream in stuck {
            let mut answer = Vec::new();
            // Closed or reset: either is an end.
            let ended = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "a request that never ends is still waited for");
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        }
    }
}
