//! The connection to one member, and one call over it. It is never spread over several members: whose answer one gets
//! is the point. Every call is bounded; dropping the client closes the connection.

mod keys;
mod login;
mod maintenance;
mod members;
mod stream;

use std::error::Error as _;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity as TonicIdentity};
use tonic::{Request, Status as Answer};
use tonic_prost::ProstCodec;

pub use keys::{Key, Page};
pub use login::User;
pub use members::Added;
pub use stream::{Piece, Snapshot};

use crate::endpoint::{Endpoint, Limits, Tls};
use crate::error::{Cause, Error};
use crate::rejection;
use crate::url::ClientUrl;

/// Members end connections that are pinged more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(3);
/// What may be on its way unread: little enough to hold, and enough that a snapshot does not wait for every round trip.
const WINDOW: u32 = 2 << 20;
/// The largest answer, but for calls that say otherwise.
const LARGEST: usize = 4 << 20;

/// The connection to one member.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    url: ClientUrl,
    limits: Limits,
    /// Who asks; it does not show.
    token: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects; what cannot be reached within the limit is an error, and has been asked nothing.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, Error> {
        let failed = |cause| Error {
            endpoint: endpoint.url.clone(),
            call: "Connect",
            cause,
        };
        let prepared = prepare(endpoint).map_err(|error| failed(Cause::Setup(whole(&error))))?;
        let limit = endpoint.limits.connect;
        match tokio::time::timeout(limit, prepared.connect()).await {
            Ok(Ok(channel)) => Ok(Self {
                channel,
                url: endpoint.url.clone(),
                limits: endpoint.limits,
                token: None,
            }),
            Ok(Err(error)) => Err(failed(Cause::Unreachable(whole(&error)))),
            Err(_) => Err(failed(Cause::Unreachable(format!("not within {limit:?}")))),
        }
    }

    /// Whom it asks.
    pub fn url(&self) -> &ClientUrl {
        &self.url
    }

    async fn call<Q, A>(&self, call: Call, question: Q) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.call_within(call, question, self.limits.call).await
    }

    async fn call_within<Q, A>(&self, call: Call, question: Q, limit: Duration) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.call_for(call, question, limit, LARGEST).await
    }

    /// The same for an answer of at most so many bytes.
    async fn call_for<Q, A>(
        &self,
        call: Call,
        question: Q,
        limit: Duration,
        largest: usize,
    ) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(largest);
        let asked = async {
            grpc.ready()
                .await
                .map_err(|error| Cause::Unreachable(whole(&error)))?;
            let path = PathAndQuery::from_static(call.path);
            grpc.unary(self.request(question), path, ProstCodec::<Q, A>::default())
                .await
                .map_err(|answer| cause(&answer))
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(cause)) => Err(self.failed(call, cause)),
            Err(_) => Err(self.failed(call, Cause::NoAnswer(limit))),
        }
    }

    fn request<Q>(&self, question: Q) -> Request<Q> {
        let mut request = Request::new(question);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    fn failed(&self, call: Call, cause: Cause) -> Error {
        Error {
            endpoint: self.url.clone(),
            call: call.name(),
            cause,
        }
    }

    fn malformed(&self, call: Call, what: String) -> Error {
        self.failed(call, Cause::Malformed(what))
    }
}

/// A call of the protocol.
#[derive(Clone, Copy, Debug)]
struct Call {
    path: &'static str,
}

impl Call {
    const RANGE: Self = Self {
        path: "/etcdserverpb.KV/Range",
    };

    const fn cluster(path: &'static str) -> Self {
        Self { path }
    }

    fn name(self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

fn prepare(endpoint: &Endpoint) -> Result<tonic::transport::Endpoint, tonic::transport::Error> {
    let prepared = tonic::transport::Endpoint::from_shared(endpoint.url.to_string())?
        .connect_timeout(endpoint.limits.connect)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    match &endpoint.tls {
        Some(tls) if endpoint.url.is_secure() => prepared.tls_config(tls_config(tls)),
        // Without an authority nothing that the member shows is trusted, and the connection fails saying so.
        None if endpoint.url.is_secure() => prepared.tls_config(ClientTlsConfig::new()),
        _ => Ok(prepared),
    }
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority));
    if let Some(identity) = &tls.identity {
        config = config.identity(TonicIdentity::from_pem(&identity.certificate, &identity.key));
    }
    match &tls.server_name {
        Some(name) => config.domain_name(name),
        None => config,
    }
}

/// What an answer that is none means: etcd's word, or the connection's.
fn cause(answer: &Answer) -> Cause {
    match answer.source() {
        Some(_) => Cause::Lost(whole(answer)),
        None => Cause::Rejected(rejection::read(answer.code(), answer.message())),
    }
}

/// An error with everything that led to it: the outermost says little.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        inner = error.source();
    }
    text
}
