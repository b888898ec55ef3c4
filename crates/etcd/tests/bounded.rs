//! A member that is not there, does not answer or hangs up: every call ends, and says whether it may have been done.

mod fake;

use std::net::SocketAddr;
use std::time::Duration;

use etcd_operator_etcd::client::Client;
use etcd_operator_etcd::endpoint::{Endpoint, Identity, Limits, Tls};
use etcd_operator_etcd::error::{Cause, Class, Error};
use etcd_operator_etcd::id::{MemberId, Revision};
use etcd_operator_etcd::membership::{Membership, Unknown};
use etcd_operator_etcd::port::Port as _;
use etcd_operator_etcd::status::{Alarm, AlarmKind};
use etcd_operator_etcd::version::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Far longer than any limit here.
const SOON: Duration = Duration::from_secs(20);

fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint {
        limits: Limits {
            connect: Duration::from_millis(500),
            call: Duration::from_millis(200),
        },
        ..Endpoint::plain(format!("http://{address}").parse().expect("a URL"))
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

async fn client(listener: &TcpListener, endpoint: &Endpoint) -> (Client, TcpStream) {
    let (client, accepted) = tokio::join!(Client::connect(endpoint), listener.accept());
    (client.expect("a connection"), accepted.expect("a connection").0)
}

async fn in_time<T>(call: impl Future<Output = Result<T, Error>>) -> Error {
    let outcome = timeout(SOON, call).await.expect("the call ends");
    outcome.err().expect("an error")
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_asked() {
    let (listener, address) = listen().await;
    drop(listener);
    let error = in_time(Client::connect(&endpoint(address))).await;
    assert!(matches!(error.cause, Cause::ConnectionRefused(_)), "{error}");
    assert!(!error.may_have_been_done());
}

#[tokio::test]
async fn a_member_that_never_answers_costs_one_limit() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    let id = MemberId::new(7).expect("an ID");
    let error = in_time(client.remove(id)).await;
    assert_eq!(error.cause, Cause::NoAnswer(Duration::from_millis(200)));
    assert!(error.may_have_been_done());
    assert_eq!(error.class(), Class::Transient);
}

#[tokio::test]
async fn an_alarm_of_a_newer_etcd_is_never_disarmed_as_another_one() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    let alarm = Alarm {
        member: MemberId::new(7),
        kind: AlarmKind::Other(3),
    };
    let error = in_time(client.disarm(alarm)).await;
    assert_eq!(error.cause, Cause::UnknownAlarm(3));
    assert!(!error.may_have_been_done());
    assert_eq!(error.class(), Class::Unsupported);
}

#[tokio::test]
async fn a_call_with_a_limit_of_its_own_waits_that_long() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    let error = in_time(client.defragment(Duration::from_millis(300))).await;
    assert_eq!(error.cause, Cause::NoAnswer(Duration::from_millis(300)));
}

/// etcd ends connections that are pinged more often than `--grpc-keepalive-min-time`, which users may set.
#[tokio::test]
async fn a_member_is_not_pinged_while_it_works_on_a_call() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    tokio::time::pause();
    let hour = Duration::from_hours(1);
    // An unanswered ping would end the connection first.
    let error = client.defragment(hour).await.expect_err("no answer");
    assert_eq!(error.cause, Cause::NoAnswer(hour));
}

#[tokio::test]
async fn a_member_that_hangs_up_may_have_done_it() {
    let (listener, address) = listen().await;
    let mut endpoint = endpoint(address);
    endpoint.limits.call = SOON;
    let (client, stream) = client(&listener, &endpoint).await;
    drop(listener);
    let (error, ()) = tokio::join!(in_time(client.alarms()), hang_up(stream));
    assert!(matches!(error.cause, Cause::Lost(_)), "{error}");
    assert!(error.may_have_been_done());
    assert_eq!(error.class(), Class::Transient);
}

/// Says that it is a server, waits for a question, and is gone.
async fn hang_up(mut stream: TcpStream) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&SETTINGS).await.expect("sent");
    let mut taken = Vec::new();
    let mut part = [0; 4096];
    while !has_question(&taken) {
        let count = stream.read(&mut part).await.expect("a question");
        assert_ne!(count, 0, "the client hung up first");
        taken.extend_from_slice(&part[..count]);
    }
}

/// Whether there is a frame with headers behind the preface of HTTP/2.
fn has_question(taken: &[u8]) -> bool {
    let mut rest = taken.get(24..).unwrap_or_default();
    while let [high, middle, low, kind, ..] = *rest {
        if kind == 1 {
            return true;
        }
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

#[tokio::test]
async fn an_answer_of_more_bytes_than_asked_for_is_not_read() {
    let (listener, address) = listen().await;
    let (client, channel) = client(&listener, &endpoint(address)).await;
    tokio::spawn(fake::answer(channel));
    let error = in_time(client.page(None, Revision(1), 100, 8)).await;
    assert_eq!(error.cause, Cause::TooLarge(8));
}

#[tokio::test]
async fn membership_is_unknown_where_no_read_comes_back() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    match timeout(SOON, client.membership()).await.expect("an end") {
        Membership::Unknown(Unknown::Failed(error)) => {
            assert_eq!(
                error.call, "Range",
                "nothing is listed before a linearizable read"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_connection_that_has_ended_is_not_made_again() {
    let (listener, address) = listen().await;
    let (client, stream) = client(&listener, &endpoint(address)).await;
    drop(stream);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let id = MemberId::new(7).expect("an ID");
    let error = in_time(client.remove(id)).await;
    assert!(matches!(error.cause, Cause::Unreachable(_)), "{error}");
    assert!(!error.may_have_been_done());
    let again = timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(
        again.is_err(),
        "another process may listen by now, and would be asked"
    );
}

#[tokio::test]
async fn a_dropped_client_leaves_no_connection() {
    let (listener, address) = listen().await;
    let (client, mut stream) = client(&listener, &endpoint(address)).await;
    drop(client);
    let mut rest = Vec::new();
    let ended = timeout(SOON, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection stays");
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_told_before_anything_is_sent() {
    let (_listener, address) = listen().await;
    let endpoint = Endpoint {
        url: format!("https://{address}").parse().expect("a URL"),
        tls: Some(Tls {
            authority: Vec::new(),
            identity: Some(Identity {
                certificate: b"no certificate".to_vec(),
                key: b"no key".to_vec(),
            }),
            server_name: None,
        }),
        ..endpoint(address)
    };
    let error = in_time(Client::connect(&endpoint)).await;
    assert!(matches!(error.cause, Cause::Setup(_)), "{error}");
    assert!(!error.may_have_been_done());
}

/// Answers one request by HTTP with this, and calls over the connection of the client.
async fn answered(answer: Vec<u8>) -> Result<Option<Version>, Error> {
    let (listener, address) = listen().await;
    let (client, channel) = client(&listener, &endpoint(address)).await;
    tokio::spawn(fake::answer(channel));
    page_answered(&client, &listener, answer).await
}

/// Answers one request by HTTP with this, and hangs up.
async fn page_answered(
    client: &Client,
    listener: &TcpListener,
    answer: Vec<u8>,
) -> Result<Option<Version>, Error> {
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.expect("a request"));
        }
        assert!(request.starts_with(b"GET /version HTTP/1.0\r\n"), "{request:?}");
        // A client that has read enough hangs up.
        let _ = stream.write_all(&answer).await;
    };
    let (told, ()) = timeout(SOON, async { tokio::join!(client.cluster_version(), serve) })
        .await
        .expect("the call ends");
    told
}

fn page(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn the_cluster_version_is_told_decided_or_not() {
    let told = answered(page("200 OK", r#"{"etcdserver":"3.6.16","etcdcluster":"3.5.0"}"#)).await;
    assert_eq!(
        told.expect("an answer"),
        Some("3.5.0".parse().expect("a version"))
    );
    let told = answered(page(
        "200 OK",
        r#"{"etcdserver":"3.6.16","etcdcluster":"not_decided"}"#,
    ))
    .await;
    assert_eq!(told.expect("an answer"), None);
}

#[tokio::test]
async fn the_cluster_version_of_another_process_is_none_of_the_member() {
    let (listener, address) = listen().await;
    let (client, channel) = client(&listener, &endpoint(address)).await;
    drop(channel);
    let next = page("200 OK", r#"{"etcdserver":"3.6.16","etcdcluster":"3.6.0"}"#);
    let error = page_answered(&client, &listener, next)
        .await
        .expect_err("the member is gone");
    assert!(!matches!(error.cause, Cause::Malformed(_)), "{error}");
    let other = answered(page("200 OK", r#"{"etcdserver":"3.5.24","etcdcluster":"3.5.0"}"#)).await;
    let error = other.expect_err("the member runs another version");
    assert_eq!(error.call, "Version", "{error}");
    assert!(matches!(error.cause, Cause::Malformed(_)), "{error}");
}

#[tokio::test]
async fn what_is_no_cluster_version_is_an_error_of_its_class() {
    for (answer, is_lost) in [
        (Vec::new(), true),
        (b"HTTP/1.0 200 OK\r\n".to_vec(), true),
        (page("503 Service Unavailable", ""), false),
        (page("200 OK", "404 page not found"), false),
        (page("200 OK", &"x".repeat(1 << 20)), false),
    ] {
        let error = answered(answer).await.expect_err("no version");
        assert_eq!(
            (error.call, error.class()),
            ("Version", Class::Transient),
            "{error}"
        );
        assert_eq!(matches!(error.cause, Cause::Lost(_)), is_lost, "{error}");
        assert_eq!(matches!(error.cause, Cause::Malformed(_)), !is_lost, "{error}");
    }
}

#[tokio::test]
async fn a_member_that_never_tells_the_cluster_version_costs_one_limit() {
    let (listener, address) = listen().await;
    let (client, _stream) = client(&listener, &endpoint(address)).await;
    let error = in_time(client.cluster_version()).await;
    assert_eq!(error.cause, Cause::NoAnswer(Duration::from_millis(200)));
    drop(listener);
    let error = in_time(client.cluster_version()).await;
    assert!(matches!(error.cause, Cause::ConnectionRefused(_)), "{error}");
}
