//! Which certificates of members are trusted. What webpki trusts, and the one case more that Go's verifier trusts, by which
//! etcd's own clients and peers decide: a certificate that is itself in the bundle of CA certificates.
//!
//! Such a bundle is common: a self-signed certificate with `CA:TRUE` that is its own CA. etcd serves with it, and webpki
//! refuses it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Verifies the certificates of members by a bundle of CA certificates, as Go does: by their issuer, or because the
/// bundle has the certificate itself.
#[derive(Debug)]
pub struct MemberVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl MemberVerifier {
    /// Trusts these certificates. Some of a bundle may be too old to parse and are skipped; an error if none is left.
    pub fn new(
        bundle: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, rustls::client::VerifierBuilderError> {
        let roots = root_store(&bundle).into();
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self { webpki, bundle })
    }

    /// Accepts a certificate that webpki refused with this error, if the bundle has the certificate itself and only its
    /// issuer was the problem. It must be for servers and have the name. Otherwise returns an error.
    ///
    /// webpki checks the validity period before the issuer, so such an error means that the certificate is valid now.
    fn verify_bundled(
        &self,
        certificate: &CertificateDer<'_>,
        server_name: &ServerName<'_>,
        error: Error,
    ) -> Result<ServerCertVerified, Error> {
        let is_bundled = self.bundle.iter().any(|trusted| trusted == certificate);
        if !(is_bundled && is_about_issuer(&error)) {
            return Err(error);
        }
        // Of a CA, webpki does not look at the purposes any more.
        if !is_for(certificate, SERVER_AUTH) {
            return Err(Error::InvalidCertificate(CertificateError::InvalidPurpose));
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.webpki
            .verify_server_cert(certificate, intermediates, server_name, ocsp_response, now)
            .or_else(|error| self.verify_bundled(certificate, server_name, error))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// The certificates of a bundle that can be parsed; the others are left out.
pub(super) fn root_store(bundle: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    roots
}

/// Whether webpki found no way to a CA, and nothing else: the certificate is a CA itself, or its issuer is not in the
/// bundle.
pub(super) fn is_about_issuer(error: &Error) -> bool {
    *error == Error::InvalidCertificate(CertificateError::UnknownIssuer) || is_about_ca(error)
}

/// Whether webpki refuses the certificate because it is a CA.
pub(super) fn is_about_ca(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// The extension that lists the purposes of a key: 2.5.29.37.
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// Any purpose: 2.5.29.37.0.
const ANY: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
/// Servers: 1.3.6.1.5.5.7.3.1.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
/// Clients: 1.3.6.1.5.5.7.3.2.
pub(super) const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

const OCTET_STRING: u8 = 0x04;
/// Where the extensions of a certificate are.
const EXTENSIONS: u8 = 0xa3;

/// Whether the extended key usage of a certificate allows this purpose: it lists the purpose, or any, or there is no
/// list. webpki must have parsed the certificate before.
pub(super) fn is_for(certificate: &[u8], wanted: &[u8]) -> bool {
    let Some(extension) = extended_key_usage(certificate) else {
        return true;
    };
    let mut purposes = Der(extension);
    purposes.any(|(_, purpose)| purpose == wanted || purpose == ANY)
}

/// The purposes that a certificate lists, as DER; `None` if it has no such extension.
fn extended_key_usage(certificate: &[u8]) -> Option<&[u8]> {
    let (_, signed) = Der(certificate).next()?;
    let (_, content) = Der(signed).next()?;
    let (_, extensions) = Der(content).find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, extensions) = Der(extensions).next()?;
    let value = Der(extensions).find_map(|(_, extension)| {
        let mut fields = Der(extension);
        let (_, id) = fields.next()?;
        let (_, value) = fields.find(|(tag, _)| *tag == OCTET_STRING)?;
        (id == EXTENDED_KEY_USAGE).then_some(value)
    })?;
    Der(value).next().map(|(_, purposes)| purposes)
}

/// Iterates over DER values: tag and content of each. It ends at the first one that is not whole.
struct Der<'d>(&'d [u8]);

impl<'d> Iterator for Der<'d> {
    type Item = (u8, &'d [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = length
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}
