//! Connections to members by TLS, for HTTP/2 and for HTTP/1: the configuration, the connector, and the error of TLS for which a
//! connection failed.
//!
//! HTTP/2 passes on only the text of an error below it. So the connector keeps the error itself.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::verifier::{self, MemberVerifier};
use crate::endpoint::{Identity, Tls};
use crate::error::{Cause, TlsError, TlsFault};
use crate::url::ClientUrl;

/// The name of HTTP/2 in a handshake.
const HTTP2: &[u8] = b"h2";

/// Connects to one member by TLS.
#[derive(Clone)]
pub struct Connector {
    address: String,
    server_name: ServerName<'static>,
    /// It offers HTTP/2 alone.
    config: Arc<ClientConfig>,
    failure: TlsFailure,
}

impl Connector {
    /// Prepares TLS to this member without connecting. An error if there is no `tls`, if its certificates or key cannot
    /// be used, or if the name to verify cannot be that of a server.
    pub fn new(url: &ClientUrl, tls: Option<&Tls>, failure: TlsFailure) -> Result<Self, String> {
        let host = url.host();
        let name = tls.and_then(|tls| tls.server_name.as_deref());
        let name = name.unwrap_or_else(|| host.trim_start_matches('[').trim_end_matches(']'));
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|error| format!("'{name}' cannot be the name of a server: {error}"))?;
        let tls = tls.ok_or("there is no CA certificate to verify the member by")?;
        Ok(Self {
            address: format!("{host}:{}", url.port()),
            server_name,
            config: Arc::new(client_config(tls)?),
            failure,
        })
    }

    /// Opens a connection for HTTP/2. An error if the server does not agree to HTTP/2.
    pub async fn connect(self) -> io::Result<TokioIo<Connection>> {
        let connection = self.open().await?;
        if connection.stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::other("the server does not speak HTTP/2"));
        }
        Ok(TokioIo::new(connection))
    }

    /// Opens a connection for HTTP/1, with the same certificates. An error of TLS is recorded in `failure`, apart from those of
    /// the channel.
    pub async fn connect_http1(&self, failure: TlsFailure) -> io::Result<Connection> {
        let mut config = ClientConfig::clone(&self.config);
        // Without a protocol in the handshake every server speaks HTTP/1.
        config.alpn_protocols.clear();
        let connector = Self {
            config: Arc::new(config),
            failure,
            ..self.clone()
        };
        connector.open().await
    }

    /// Connects and does the handshake, without a limit of time.
    async fn open(self) -> io::Result<Connection> {
        let tcp = TcpStream::connect(&self.address).await?;
        tcp.set_nodelay(true)?;
        let stream = TlsConnector::from(self.config)
            .connect(self.server_name, tcp)
            .await;
        let stream = stream.inspect_err(|error| self.failure.record(error))?;
        Ok(Connection {
            stream,
            has_answered: false,
            failure: self.failure,
        })
    }
}

/// The configuration of TLS: the CA certificates to verify the member by, and the client certificate if there is one.
fn client_config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bundle = certificates(&tls.authority).map_err(|error| format!("the CA certificates: {error}"))?;
    let verifier = MemberVerifier::new(bundle, Arc::clone(&provider))
        .map_err(|error| format!("the CA certificates: {error}"))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        // It adds one case to what webpki trusts.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &tls.identity {
        Some(Identity { certificate, key }) => {
            let failed = |error: &dyn std::fmt::Display| format!("the client certificate: {error}");
            let chain = certificates(certificate).map_err(|error| failed(&error))?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("the key of the client certificate: {error}"))?;
            config
                .with_client_auth_cert(chain, key)
                .map_err(|error| failed(&error))?
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

/// The certificates in a PEM file.
pub(super) fn certificates(
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// The error of TLS that ended the connection of a channel, if it was one. The channel and all clones of its client
/// share it.
#[derive(Clone, Debug, Default)]
pub struct TlsFailure(Arc<Mutex<Option<TlsError>>>);

impl TlsFailure {
    /// The recorded error of TLS instead of a cause that says only that there is no connection or that it broke. Any
    /// other cause stays, and every cause while no error is recorded.
    pub fn explain(&self, cause: Cause) -> Cause {
        if !matches!(cause, Cause::Unreachable(_) | Cause::Lost(_)) {
            return cause;
        }
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        error.map_or(cause, Cause::Tls)
    }

    /// Records the error of TLS inside an IO error. Other IO errors leave what is recorded.
    fn record(&self, error: &io::Error) {
        let tls = error
            .get_ref()
            .and_then(|error| error.downcast_ref::<rustls::Error>());
        if let Some(tls) = tls {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls_error(tls));
        }
    }
}

/// Why a certificate is not trusted that is a CA.
const NOT_BUNDLED: &str = "invalid peer certificate: it is a CA, and not itself among the trusted CA certificates (CaUsedAsEndEntity)";

fn tls_error(error: &rustls::Error) -> TlsError {
    let fault = match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            TlsFault::MemberCertificate
        }
        rustls::Error::AlertReceived(alert) if is_about_certificate(*alert) => TlsFault::ClientCertificate,
        _ => TlsFault::Handshake,
    };
    let text = match error {
        rustls::Error::AlertReceived(_) => format!("the member refuses the connection: {error}"),
        // rustls shows the name of the error and its wrappers.
        _ if verifier::is_about_ca(error) => NOT_BUNDLED.to_owned(),
        _ => error.to_string(),
    };
    TlsError { fault, text }
}

/// Whether a member sends this alert because of the client certificate, or because there is none.
fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::CertificateRequired
    )
}

/// A connection. It records an error of TLS up to the first byte from the member: with TLS 1.3 a member refuses a client
/// certificate after the handshake has ended for the client. By then it has done nothing that it was asked for.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    has_answered: bool,
    failure: TlsFailure,
}

impl Connection {
    /// Passes on the result of a write. A member that refuses a client certificate says so and closes the connection,
    /// so that the write fails, and HTTP/2 then reads no more. So a failed write before the first answer is followed by
    /// a read here, and fails when that has ended.
    fn wrote<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if self.has_answered || !matches!(polled, Poll::Ready(Err(_))) {
            return polled;
        }
        let mut bytes = [0; 1024];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => self.failure.record(&error),
            Poll::Ready(Ok(())) => self.has_answered = !buffer.filled().is_empty(),
        }
        polled
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &polled {
            Poll::Ready(Ok(())) => self.has_answered |= buffer.filled().len() > filled,
            Poll::Ready(Err(error)) if !self.has_answered => self.failure.record(error),
            Poll::Ready(Err(_)) | Poll::Pending => {}
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.wrote(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wrote(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const NAME: &str = "c-0.c.ns.svc";

    /// A member that accepts clients with certificates of this CA, which is its own certificate as well.
    fn acceptor(authority: &CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).expect("a CA");
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![authority.clone()], key)
            .expect("a configuration");
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn the_alert_of_a_member_is_recorded_also_if_a_write_fails_before_a_read() {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let tls = Tls {
            authority: own.pem().into_bytes(),
            identity: None,
            server_name: Some(NAME.to_owned()),
        };
        let acceptor = acceptor(own.der(), &key);
        let member = tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.expect("a connection");
            let (_, tcp) = acceptor
                .accept(tcp)
                .into_fallible()
                .await
                .expect_err("no certificate");
            // The connection is reset, as by a member that has not read all that came.
            tcp.set_zero_linger().expect("an option of the socket");
        });
        let failure = TlsFailure::default();
        let url = url.parse().expect("a URL");
        let connector = Connector::new(&url, Some(&tls), failure.clone()).expect("a connector");
        let mut connection = connector.open().await.expect("the handshake ends for the client");
        member.await.expect("it has hung up");
        let error = connection
            .write_all(b"a question")
            .await
            .expect_err("a reset connection");
        let cause = failure.explain(Cause::Lost(error.to_string()));
        let Cause::Tls(TlsError { fault, .. }) = cause else {
            panic!("{cause}");
        };
        assert_eq!(fault, TlsFault::ClientCertificate);
    }
}
