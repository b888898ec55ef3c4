//! Which members are believed, by real handshakes: what Go's verifier accepts, and never anything else.

mod fake;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_etcd::client::{Client, verify_as_client};
use etcd_operator_etcd::endpoint::{Endpoint, Identity, Limits, Tls};
use etcd_operator_etcd::error::{Cause, Class, Error, OwnCertificateFault, TlsError, TlsFault};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Far longer than any limit here.
const SOON: Duration = Duration::from_secs(20);
const NAME: &str = "c-0.c.ns.svc";
const VERSIONS: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n{\"etcdserver\":\"3.6.16\",\"etcdcluster\":\"3.5.0\"}";

/// A certificate and its key, as PEM.
#[derive(Clone)]
struct Pair {
    certificate: String,
    key: String,
}

/// A certificate that is its own CA.
fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let mut params = params("c");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    Pair {
        certificate: params.self_signed(&key).expect("a certificate").pem(),
        key: key.serialize_pem(),
    }
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![format!("*.{}", &NAME[4..])]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// A CA and what it has signed.
fn signed(change: impl FnOnce(&mut CertificateParams)) -> (String, Pair) {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "CA");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let pem = authority.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(authority, key);
    let mut params = params("leaf");
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    let leaf = params.signed_by(&key, &issuer).expect("a certificate");
    let leaf = Pair {
        certificate: leaf.pem(),
        key: key.serialize_pem(),
    };
    (pem, leaf)
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

/// With a CA it asks for a client certificate of that one.
fn acceptor(own: &Pair, clients: Option<&str>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(authority)).expect("a CA");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            config.with_client_cert_verifier(verifier.expect("a verifier"))
        }
        None => config.with_no_client_auth(),
    };
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("a key");
    let mut config = config
        .with_single_cert(vec![certificate(&own.certificate)], key)
        .expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server that ends the handshake, and then answers: HTTP/1 with the cluster version 3.5.0, and gRPC with its status.
async fn server(own: &Pair, clients: Option<&str>) -> SocketAddr {
    let acceptor = acceptor(own, clients);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A refused client hangs up first, so that the alert is not lost with what it has sent.
                match acceptor.accept(tcp).into_fallible().await {
                    Ok(mut stream) if stream.get_ref().1.alpn_protocol().is_none() => {
                        let _ = stream.read(&mut [0; 512]).await;
                        let _ = stream.write_all(VERSIONS).await;
                        let _ = stream.shutdown().await;
                    }
                    Ok(stream) => fake::answer(stream).await,
                    Err((_, mut tcp)) => drop(tcp.read_to_end(&mut Vec::new()).await),
                }
            });
        }
    });
    address
}

fn endpoint(address: SocketAddr, bundle: &str, identity: Option<&Pair>) -> Endpoint {
    Endpoint {
        url: format!("https://{address}").parse().expect("a URL"),
        tls: Some(Tls {
            authority: bundle.as_bytes().to_vec(),
            identity: identity.map(|pair| Identity {
                certificate: pair.certificate.as_bytes().to_vec(),
                key: pair.key.as_bytes().to_vec(),
            }),
            server_name: Some(NAME.to_owned()),
        }),
        limits: Limits {
            connect: SOON,
            call: SOON,
        },
    }
}

async fn connects(own: &Pair, bundle: &str) -> Result<Client, Error> {
    let address = server(own, None).await;
    Client::connect(&endpoint(address, bundle, None)).await
}

async fn accepted(own: &Pair, bundle: &str) {
    connects(own, bundle).await.expect("a connection");
}

/// The verifier's words.
async fn refused(own: &Pair, bundle: &str) -> String {
    let error = connects(own, bundle).await.expect_err("a refusal");
    assert_eq!(error.class(), Class::Tls, "{error}");
    assert!(!error.may_have_been_done());
    let Cause::Tls(TlsError { fault, text }) = error.cause else {
        panic!("{error}");
    };
    assert_eq!(fault, TlsFault::MemberCertificate, "{text}");
    text
}

#[tokio::test]
async fn a_certificate_that_its_ca_has_signed_is_accepted() {
    let (authority, leaf) = signed(|_| ());
    accepted(&leaf, &authority).await;
    let (other, _) = signed(|_| ());
    accepted(&leaf, &format!("{other}{authority}")).await;
    let words = refused(&leaf, &other).await;
    assert!(
        words.contains("BadSignature") || words.contains("UnknownIssuer"),
        "{words}"
    );
}

#[tokio::test]
async fn a_ca_certificate_in_the_bundle_is_accepted_as_a_members_own() {
    let own = self_signed(|_| ());
    accepted(&own, &own.certificate).await;
    let (authority, _) = signed(|_| ());
    accepted(&own, &format!("{authority}{}", own.certificate)).await;
    let server = self_signed(|params| {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
    });
    accepted(&server, &server.certificate).await;
    let any = self_signed(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any]);
    accepted(&any, &any.certificate).await;
    // Signed by a CA that the bundle does not have.
    let (_, leaf) = signed(|_| ());
    accepted(&leaf, &leaf.certificate).await;
}

#[tokio::test]
async fn a_ca_certificate_that_is_not_in_the_bundle_is_refused_as_a_members_own() {
    let own = self_signed(|_| ());
    let namesake = self_signed(|_| ());
    let words = refused(&own, &namesake.certificate).await;
    let told = "it is a CA, and not itself among the trusted CA certificates (CaUsedAsEndEntity)";
    assert!(words.contains(told), "{words}");
    // A CA that one of the bundle has signed is not in the bundle.
    let (authority, intermediate) = signed(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let words = refused(&intermediate, &authority).await;
    assert!(words.contains(told), "{words}");
}

#[tokio::test]
async fn a_ca_certificate_in_the_bundle_is_refused_for_anything_else_that_is_wrong_with_it() {
    let expired = self_signed(|params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let words = refused(&expired, &expired.certificate).await;
    assert!(words.contains("expired"), "{words}");
    let early = self_signed(|params| {
        params.not_before = date_time_ymd(4000, 1, 1);
        params.not_after = date_time_ymd(4001, 1, 1);
    });
    let words = refused(&early, &early.certificate).await;
    assert!(words.contains("not valid"), "{words}");
    let misnamed = self_signed(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName(
            "c-1.c.ns.svc".try_into().expect("a name"),
        )];
    });
    let words = refused(&misnamed, &misnamed.certificate).await;
    assert!(words.contains(NAME) && words.contains("c-1.c.ns.svc"), "{words}");
    let client = self_signed(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let words = refused(&client, &client.certificate).await;
    assert!(words.contains("InvalidPurpose"), "{words}");
}

#[tokio::test]
async fn an_ordinary_certificate_is_refused_for_its_dates_and_names() {
    let (authority, expired) = signed(|params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let words = refused(&expired, &authority).await;
    assert!(words.contains("expired"), "{words}");
    // Nor does it help to put it into the bundle.
    let words = refused(&expired, &expired.certificate).await;
    assert!(words.contains("expired"), "{words}");
    let (authority, misnamed) = signed(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName(
            "c-1.c.ns.svc".try_into().expect("a name"),
        )];
    });
    assert!(refused(&misnamed, &authority).await.contains(NAME));
    assert!(refused(&misnamed, &misnamed.certificate).await.contains(NAME));
}

#[tokio::test]
async fn a_certificate_in_the_bundle_needs_its_key() {
    let own = self_signed(|_| ());
    let thief = Pair {
        key: self_signed(|_| ()).key,
        ..own.clone()
    };
    // The library refuses to serve with another's key, so the server shows the certificate by other means.
    let key = PrivateKeyDer::from_pem_slice(thief.key.as_bytes()).expect("a key");
    let signing = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
    let certified = rustls::sign::CertifiedKey::new(vec![certificate(&own.certificate)], signing);
    let provider = rustls::crypto::ring::default_provider();
    let mut config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.expect("a connection");
        drop(acceptor.accept(tcp).await);
    });
    let error = Client::connect(&endpoint(address, &own.certificate, None))
        .await
        .expect_err("a thief");
    assert!(error.to_string().contains("BadSignature"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_that_the_member_refuses_is_told_as_such() {
    let (authority, leaf) = signed(|_| ());
    let (_, stranger) = signed(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let address = server(&leaf, Some(&authority)).await;
    for identity in [None, Some(&stranger)] {
        let endpoint = endpoint(address, &authority, identity);
        let error = match Client::connect(&endpoint).await {
            Ok(client) => client.status().await.expect_err("it is refused"),
            Err(error) => error,
        };
        assert!(error.to_string().contains("the member refuses"), "{error}");
        let Cause::Tls(TlsError { fault, .. }) = error.cause else {
            panic!("{error}");
        };
        assert_eq!(fault, TlsFault::ClientCertificate);
    }
}

#[tokio::test]
async fn the_cluster_version_is_asked_for_with_the_same_certificates() {
    let (authority, leaf) = signed(|_| ());
    let address = server(&leaf, Some(&authority)).await;
    let endpoint = endpoint(address, &authority, Some(&leaf));
    let client = Client::connect(&endpoint).await.expect("a connection");
    let told = client.cluster_version().await.expect("an answer");
    assert_eq!(told, Some("3.5.0".parse().expect("a version")));
    let own = self_signed(|_| ());
    let client = connects(&own, &own.certificate).await.expect("a connection");
    assert!(client.cluster_version().await.expect("an answer").is_some());
}

#[tokio::test]
async fn a_member_that_has_changed_its_certificates_is_not_asked_for_the_cluster_version() {
    let (authority, leaf) = signed(|_| ());
    let (_, stranger) = signed(|_| ());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let first = acceptor(&leaf, None);
    let second = acceptor(&stranger, None);
    tokio::spawn(async move {
        let mut streams = Vec::new();
        for acceptor in [first, second] {
            let (tcp, _) = listener.accept().await.expect("a connection");
            streams.push(acceptor.accept(tcp).await);
        }
    });
    let client = Client::connect(&endpoint(address, &authority, None))
        .await
        .expect("a connection");
    let error = client.cluster_version().await.expect_err("a stranger");
    assert_eq!((error.call, error.class()), ("Version", Class::Tls), "{error}");
}

#[tokio::test]
async fn a_bundle_without_certificates_is_told_before_anything_is_sent() {
    let address = server(&self_signed(|_| ()), None).await;
    for bundle in ["", "no PEM"] {
        let error = Client::connect(&endpoint(address, bundle, None))
            .await
            .expect_err("no CA");
        assert!(matches!(error.cause, Cause::Setup(_)), "{error}");
        assert!(error.to_string().contains("CA certificates"), "{error}");
    }
}

#[test]
fn members_accept_the_certificate_of_one_of_them_if_their_ca_bundle_verifies_it_for_clients() {
    let fault = |own: &Pair, bundle: &str| {
        // In 2026: the certificates of these tests are valid for centuries.
        let now = Duration::from_secs(1_790_000_000);
        let verified = verify_as_client(own.certificate.as_bytes(), bundle.as_bytes(), now);
        verified.err().map(|error| error.fault)
    };
    let (clients, _) = signed(|_| ());
    let (servers, any) = signed(|_| ());
    // Two CAs: one for servers, and one for clients.
    assert_eq!(fault(&any, &clients), Some(OwnCertificateFault::Issuer));
    assert_eq!(fault(&any, &format!("{clients}{servers}")), None);
    let (authority, server) = signed(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(fault(&server, &authority), Some(OwnCertificateFault::Purpose));
    // Self-signed certificates with CA:TRUE.
    let own = self_signed(|_| ());
    assert_eq!(fault(&own, &own.certificate), None);
    assert_eq!(
        fault(&own, &self_signed(|_| ()).certificate),
        Some(OwnCertificateFault::Issuer)
    );
    let server = self_signed(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    assert_eq!(
        fault(&server, &server.certificate),
        Some(OwnCertificateFault::Purpose)
    );
    // What etcd or the next call tells is not told twice.
    let (authority, expired) = signed(|params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    assert_eq!(fault(&expired, &authority), None);
    assert_eq!(fault(&any, "no PEM"), None);
}
