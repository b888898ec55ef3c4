//! Reports of waiting processes over the network: one small request, bounded in time and size.

use std::net::IpAddr;
use std::time::Duration;

use etcd_operator_api::contract::{self, Document, FetchProgress, Report};
use etcd_operator_api::names::METRICS_PORT;
use etcd_operator_etcd::port::Answer;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::ports::Reports;
use crate::world::Asked;

/// How long a pod has to answer: it is near, and it does nothing else.
const LIMIT: Duration = Duration::from_secs(2);
/// The largest report that is read.
const LARGEST: usize = 64 * 1024;
/// Where a waiting process shows it.
const REPORT: &str = "/etcd-operator/report";
/// Where a download tells how far it is.
const FETCH: &str = "/etcd-operator/fetch";

/// Reads reports over the network of the pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network;

impl Reports for Network {
    fn ask(&self, at: IpAddr) -> Answer<'_, Asked<Report>> {
        Box::pin(document(at, REPORT))
    }

    fn progress(&self, at: IpAddr) -> Answer<'_, Asked<FetchProgress>> {
        Box::pin(document(at, FETCH))
    }
}

/// The document at this path, if whoever is there has one.
async fn document<D: Document>(at: IpAddr, path: &str) -> Asked<D> {
    let place = std::net::SocketAddr::from((at, METRICS_PORT));
    match tokio::time::timeout(LIMIT, fetch(place, path)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => Asked::Silent(format!("http://{place}{path}: {why}")),
        Err(_) => Asked::Silent(format!("http://{place}{path}: no answer within {LIMIT:?}")),
    }
}

async fn fetch<D: Document>(place: std::net::SocketAddr, path: &str) -> Result<Asked<D>, Trouble> {
    let stream = TcpStream::connect(place).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(hyper::header::HOST, place.to_string())
        .header(hyper::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        match response.status() {
            StatusCode::OK => {}
            // etcd itself listens there once it runs, and knows no such path.
            StatusCode::NOT_FOUND => return Ok(Asked::Elsewhere),
            other => return Err(Trouble::Status(other)),
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| Trouble::Body(error.to_string()))?.to_bytes();
        Ok(Asked::Answer(contract::read(&body)?))
    };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            ended = &mut connection, if is_open => {
                ended?;
                is_open = false;
            }
        }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    #[error("the answer is {0}")]
    Status(StatusCode),
    #[error("{0}")]
    Body(String),
    #[error("{0}")]
    Report(#[from] contract::DocumentError),
}
