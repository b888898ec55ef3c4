//! What a waiting process answers: that it lives, that it is not ready, and its report. It hears no more than the first
//! line of a request, serves few at a time and none for long, and changes nothing for anybody.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_api::contract;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::state::{Source, State};

/// Where the report is.
pub const REPORT: &str = "/etcd-operator/report";
/// Where a download tells how far it is.
pub const FETCH: &str = "/etcd-operator/fetch";

/// For one request and its answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Of a request.
const LONGEST: usize = 4096;
/// Requests at a time; others wait to be accepted.
const AT_ONCE: usize = 16;
/// When no connection can be accepted, how long until the next try.
const PAUSE: Duration = Duration::from_millis(200);

/// The state of a waiting process, which the tasks that serve and decide share.
pub type Shared = Arc<Mutex<State>>;

/// Locks the state for one action, also if another task panicked while it held the lock.
pub fn with<T>(state: &Shared, act: impl FnOnce(&mut State) -> T) -> T {
    // Whoever held it before changed one field or none: there is no half-made state.
    act(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Listens on all addresses, of IPv4 and IPv6 where the node has both. A port that is in use is an error.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    }
}

/// Accepts members' connections and ends them, without a word: any answer would mean something to an etcd.
pub async fn turn_away(listener: TcpListener) {
    loop {
        if listener.accept().await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Answers requests for the report.
pub async fn answer(listener: TcpListener, state: Shared, source: Source) {
    let report = move || with(&state, |state| contract::write(&state.report(source)));
    answer_with(listener, REPORT, report).await;
}

/// Serves the document at this path, without an end. `/livez` succeeds, and `/readyz` and `/health` fail, as nothing
/// here serves clients.
pub async fn answer_with(
    listener: TcpListener,
    path: &'static str,
    document: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) {
    let document = Arc::new(document);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let document = Arc::clone(&document);
        tokio::spawn(async move {
            // Whoever asks slowly or goes away gets no answer; that is all that can go wrong.
            let _ = tokio::time::timeout(LIMIT, answer_one(stream, path, &*document)).await;
            drop(place);
        });
    }
}

/// Answers one request, of which at most 4 KiB are read.
async fn answer_one(mut stream: TcpStream, path: &str, document: &impl Fn() -> Vec<u8>) -> io::Result<()> {
    let mut request = Vec::with_capacity(512);
    while !is_whole(&request) {
        if request.len() >= LONGEST {
            return stream.write_all(&page(431, "text/plain", b"too long\n")).await;
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let answer = respond(&request, path, document);
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

/// Whether the headers of a request have ended; a body is not read.
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n") || request.windows(2).any(|two| two == b"\n\n")
}

/// The answer to a request, by its first line alone.
fn respond(request: &[u8], wanted: &str, document: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", path) if path == wanted => page(200, "application/json", &document()),
        ("GET", "/livez") => page(200, "text/plain", b"ok\n"),
        ("GET", "/readyz" | "/health") => page(503, "text/plain", b"waiting for a permit to start\n"),
        ("GET", _) => page(404, "text/plain", b"not found\n"),
        _ => page(405, "text/plain", b"only GET\n"),
    }
}

fn page(status: u16, kind: &str, body: &[u8]) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(request: &str) -> String {
        String::from_utf8(respond(request.as_bytes(), REPORT, || b"{\"report\":1}".to_vec())).expect("text")
    }

    #[test]
    fn it_lives_is_not_ready_and_reports() {
        for (path, status, body) in [
            (REPORT, "200 OK", "{\"report\":1}"),
            ("/etcd-operator/report?x", "200 OK", "{\"report\":1}"),
            ("/livez", "200 OK", "ok\n"),
            (
                "/readyz",
                "503 Service Unavailable",
                "waiting for a permit to start\n",
            ),
            (
                "/health",
                "503 Service Unavailable",
                "waiting for a permit to start\n",
            ),
            ("/metrics", "404 Not Found", "not found\n"),
            ("*", "404 Not Found", "not found\n"),
        ] {
            let said = said(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(
                said.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{path}: {said}"
            );
            assert!(
                said.ends_with(&format!(
                    "Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn a_download_tells_how_far_it_is_and_nothing_of_a_report() {
        let listener = listen(0).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(answer_with(listener, FETCH, || b"{\"bytes\":7}".to_vec()));
        let ask = async |path: &str| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .expect("connected");
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("asked");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer
        };
        let told = ask(FETCH).await;
        assert!(
            told.starts_with("HTTP/1.1 200 OK") && told.ends_with("{\"bytes\":7}"),
            "{told}"
        );
        assert!(ask(REPORT).await.starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn nothing_but_a_question_is_understood() {
        for request in [
            "POST /livez HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
            "PUT\r\n\r\n",
            "\u{16}\u{3}\n\n",
        ] {
            assert!(said(request).starts_with("HTTP/1.1 405 "), "{request:?}");
        }
        assert!(!is_whole(b"GET / HTTP/1.1\r\nHost: a\r\n"));
    }
}
