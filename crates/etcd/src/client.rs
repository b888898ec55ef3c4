//! The connection to one member, and the calls over it. It is never balanced over several members, because callers need to
//! know which member answered. It is made once: the process that answered a call answers the next one too, or that call fails.
//! Every call has a deadline. Dropping the client closes the connection.

mod answers;
mod http;
mod keys;
mod login;
mod maintenance;
mod members;
mod own_certificate;
pub mod peer_http;
mod rejection_texts;
mod stream;
mod tls;
mod verifier;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::iter;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tonic::{Code, ConnectError};
use tower::Service;

pub use keys::{Key, Page};
pub use login::User;
pub use members::Added;
pub use own_certificate::verify_as_client;
pub use stream::Snapshot;

use crate::endpoint::{Endpoint, Limits};
use crate::error::{Cause, Error};
use crate::url::ClientUrl;
use tls::{Connector, TlsFailure};

/// What may be on its way unread: little enough to hold, and enough that a snapshot does not wait for every round trip.
const WINDOW: u32 = 2 << 20;
/// What generated clients put before the reason why a channel takes no request. The reason is text, not a source.
const NOT_READY: &str = "Service was not ready: ";

/// Why a call is not sent once the connection has ended.
const ENDED: &str = "the connection to the member has ended";

/// The connection to one member, which all clones share. Once it has broken, every further call fails: it never reaches
/// another process.
#[derive(Clone)]
pub struct Client {
    /// Boxed, because it takes kilobytes, and so does each future that owns one.
    etcd: Box<etcd_client::Client>,
    url: ClientUrl,
    limits: Limits,
    /// None where the URL says http.
    connector: Option<Connector>,
    tls_failure: TlsFailure,
}

/// Without the client inside, which holds the password and the token after a login.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to the member. An error if there is no connection within the limit, or its TLS fails; the member was
    /// asked nothing then.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, Error> {
        let failed = |cause| Error {
            endpoint: endpoint.url.clone(),
            call: "Connect",
            cause,
        };
        let tls_failure = TlsFailure::default();
        let setup = |why| failed(Cause::Setup(why));
        let connector = if endpoint.url.is_secure() {
            let connector = Connector::new(&endpoint.url, endpoint.tls.as_ref(), tls_failure.clone());
            Some(connector.map_err(setup)?)
        } else {
            None
        };
        let prepared = prepare(endpoint).map_err(setup)?;
        // Boxed for the same reason as the client.
        let connected = Box::pin(async {
            if let Some(connector) = connector.clone() {
                return prepared.connect_with_connector(once(connector.connect())).await;
            }
            let address = format!("{}:{}", endpoint.url.host(), endpoint.url.port());
            let connect = async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(TokioIo::new(stream))
            };
            prepared.connect_with_connector(once(connect)).await
        });
        let limit = endpoint.limits.connect;
        let channel = match tokio::time::timeout(limit, connected).await {
            Ok(Ok(channel)) => etcd_client::Channel::Tonic(channel),
            Ok(Err(error)) => {
                return Err(failed(tls_failure.explain(no_connection(&error))));
            }
            Err(_) => return Err(failed(Cause::Unreachable(format!("not within {limit:?}")))),
        };
        // Without a user this sends nothing.
        let etcd = Box::pin(etcd_client::Client::from_channel(channel, None))
            .await
            .map_err(|error| failed(cause(&error)))?;
        Ok(Self {
            etcd: Box::new(etcd),
            url: endpoint.url.clone(),
            limits: endpoint.limits,
            connector,
            tls_failure,
        })
    }

    /// Whom it asks.
    pub fn url(&self) -> &ClientUrl {
        &self.url
    }

    /// Awaits the answer to a call within the limit that calls have.
    fn call<A>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<A, etcd_client::Error>>,
    ) -> impl Future<Output = Result<A, Error>> {
        self.call_within(call, answer, self.limits.call)
    }

    /// Awaits the answer to a call within a limit of its own. After the limit the member may still do what it was asked
    /// for.
    fn call_within<A>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<A, etcd_client::Error>>,
        limit: Duration,
    ) -> impl Future<Output = Result<A, Error>> {
        // Boxed for the same reason as the client.
        let answer = tokio::time::timeout(limit, Box::pin(answer));
        async move {
            match answer.await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(self.failed(call, cause(&error))),
                Err(_) => Err(self.failed(call, Cause::NoAnswer(limit))),
            }
        }
    }

    fn failed(&self, call: &'static str, cause: Cause) -> Error {
        Error {
            endpoint: self.url.clone(),
            call,
            cause: self.tls_failure.explain(cause),
        }
    }

    fn malformed(&self, call: &'static str, what: String) -> Error {
        self.failed(call, Cause::Malformed(what))
    }
}

/// Makes a connection once. A channel would connect again by itself, and another process may listen at the address by then.
fn once<C, F>(
    connect: F,
) -> impl Service<Uri, Response = C, Error = io::Error, Future = impl Future<Output = io::Result<C>> + Send>
where
    F: Future<Output = io::Result<C>> + Send,
{
    let mut connect = Some(connect);
    tower::service_fn(move |_| {
        let connect = connect.take();
        async {
            match connect {
                Some(connect) => connect.await,
                None => Err(io::Error::new(io::ErrorKind::NotConnected, ENDED)),
            }
        }
    })
}

/// The settings of the channel; [`Connector`] adds TLS. No pings are sent: members end connections that are pinged more
/// often than `--grpc-keepalive-min-time`, which users may set. A member that is gone is noticed by the deadline of the
/// call.
fn prepare(endpoint: &Endpoint) -> Result<tonic::transport::Endpoint, String> {
    let prepared = tonic::transport::Endpoint::from_shared(endpoint.url.to_string())
        .map_err(|error| with_sources(&error.to_string(), error.source()))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    Ok(prepared)
}

/// What a failed call means: etcd refused it, it was never sent, or its answer never came.
fn cause(error: &etcd_client::Error) -> Cause {
    let status = match error {
        etcd_client::Error::GRpcStatus(status) => status,
        etcd_client::Error::TransportError(error) => return no_connection(error),
        // A token that no header can carry, and what no call of ours can cause.
        other => return Cause::Malformed(other.to_string()),
    };
    let not_ready = status.message().strip_prefix(NOT_READY);
    match (not_ready, status.source()) {
        (Some(why), None) if status.code() == Code::Unknown => Cause::Unreachable(why.to_owned()),
        (_, Some(source)) if chain(source).any(<dyn StdError>::is::<ConnectError>) => no_connection(source),
        // Its own text shows its parts as Rust writes them.
        (_, Some(source)) => Cause::Lost(with_sources(status.message(), Some(source))),
        (_, None) => Cause::Rejected(rejection_texts::read(status.code(), status.message())),
    }
}

/// Why there is no connection.
fn no_connection(error: &(dyn StdError + 'static)) -> Cause {
    let text = with_sources(&error.to_string(), error.source());
    let mut system_errors = chain(error).filter_map(|error| error.downcast_ref::<io::Error>());
    if system_errors.any(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        Cause::ConnectionRefused(text)
    } else {
        Cause::Unreachable(text)
    }
}

/// An error and its sources, the outermost first.
fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// The text of an error with those of its sources, because the outermost one says little.
fn with_sources(message: &str, source: Option<&(dyn StdError + 'static)>) -> String {
    let mut text = message.to_owned();
    for error in source.into_iter().flat_map(chain) {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn a_request_whose_connection_never_came_about_was_not_sent() {
        let failed = |kind: io::ErrorKind| {
            let error = ConnectError(io::Error::from(kind).into());
            cause(&Status::from_error(error.into()).into())
        };
        let refused = failed(io::ErrorKind::ConnectionRefused);
        assert!(matches!(refused, Cause::ConnectionRefused(_)), "{refused}");
        let other = failed(io::ErrorKind::HostUnreachable);
        assert!(matches!(other, Cause::Unreachable(_)), "{other}");
    }

    #[test]
    fn a_channel_that_takes_no_request_was_asked_nothing() {
        let status = Status::unknown("Service was not ready: transport error");
        assert_eq!(
            cause(&status.into()),
            Cause::Unreachable("transport error".to_owned())
        );
    }

    #[test]
    fn a_status_with_a_source_is_a_lost_connection_and_one_without_is_the_word_of_etcd() {
        let broken = Status::from_error(Box::new(std::io::Error::other("reset")));
        assert_eq!(cause(&broken.into()), Cause::Lost("reset".to_owned()));
        let refused = Status::unavailable("etcdserver: leader changed");
        assert_eq!(
            cause(&refused.into()),
            Cause::Rejected(crate::rejection::Rejection::LeaderChanged)
        );
    }
}
