//! Reports of waiting processes over the network: one small request, bounded in time and size.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use etcd_operator_api::contract::{self, Document, FetchProgress, Report};
use etcd_operator_api::names::METRICS_PORT;
use etcd_operator_cluster_core::observed_state::{CallFailure, QueryResult};
use etcd_operator_etcd::port::Answer;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::ports::Reports;

/// How long a pod has to answer: it is near, and it does nothing else.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The largest report that is read.
const MAX_BYTES: usize = 64 * 1024;
/// Where a waiting process shows it.
const REPORT_PATH: &str = "/etcd-operator/report";
/// Where a download tells how far it is.
const FETCH_PATH: &str = "/etcd-operator/fetch";

/// Reads reports by HTTP from the IPs of pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpReports;

impl Reports for HttpReports {
    fn read_report(&self, at: IpAddr) -> Answer<'_, QueryResult<Report>> {
        Box::pin(document(at, REPORT_PATH))
    }

    fn read_progress(&self, at: IpAddr) -> Answer<'_, QueryResult<FetchProgress>> {
        Box::pin(document(at, FETCH_PATH))
    }
}

/// Gets the document at a path, within the timeout.
async fn document<D: Document>(at: IpAddr, path: &str) -> QueryResult<D> {
    let address = std::net::SocketAddr::from((at, METRICS_PORT));
    match tokio::time::timeout(TIMEOUT, fetch(address, path)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let text = format!("http://{address}{path}: {error}");
            QueryResult::NoAnswer(match error {
                ReportError::Connection(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    CallFailure::connection_refused(text)
                }
                _ => CallFailure::from_text(text),
            })
        }
        Err(_) => QueryResult::NoAnswer(CallFailure::from_text(format!(
            "http://{address}{path}: no answer within {TIMEOUT:?}"
        ))),
    }
}

/// Gets the document at a path. A 404 is `OtherResponder`: once etcd runs, it listens on this port and knows no such path.
async fn fetch<D: Document>(
    address: std::net::SocketAddr,
    path: &str,
) -> Result<QueryResult<D>, ReportError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(hyper::header::HOST, address.to_string())
        .header(hyper::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(QueryResult::OtherResponder),
            other => return Err(ReportError::Status(other)),
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body
            .map_err(|error| ReportError::Body(error.to_string()))?
            .to_bytes();
        Ok(QueryResult::Answer(contract::read(&body)?))
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
enum ReportError {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use etcd_operator_cluster_core::observed_state::CallClass;

    #[tokio::test]
    async fn a_pod_that_refuses_the_connection_does_not_listen_yet() {
        // Nothing listens at this address of the loopback interface.
        let at = IpAddr::V4(Ipv4Addr::new(127, 87, 65, 43));
        let report = HttpReports.read_report(at).await;
        let class = report.failure().map(|failure| failure.class);
        assert_eq!(class, Some(CallClass::ConnectionRefused), "{report:?}");
    }
}
