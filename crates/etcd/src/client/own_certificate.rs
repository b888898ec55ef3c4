//! Whether members accept the certificate of one of them as that of a client: a member that joins shows it to the others.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, Error};

use super::tls::certificates;
use super::verifier::{CLIENT_AUTH, is_about_issuer, is_for, root_store};
use crate::error::{OwnCertificateError, OwnCertificateFault};

/// Verifies a member's certificate as that of a client, by the CA certificates by which members verify clients. Both are PEM.
/// The time is counted from 1970.
///
/// Says nothing of certificates that cannot be parsed or are not valid now: etcd does not start with the former, and every
/// call to a member shows the latter.
pub fn verify_as_client(
    certificate: &[u8],
    authority: &[u8],
    now: Duration,
) -> Result<(), OwnCertificateError> {
    let (Ok(chain), Ok(bundle)) = (certificates(certificate), certificates(authority)) else {
        return Ok(());
    };
    let Some((certificate, intermediates)) = chain.split_first() else {
        return Ok(());
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(root_store(&bundle));
    let Ok(webpki) = WebPkiClientVerifier::builder_with_provider(roots, provider).build() else {
        return Ok(());
    };
    let now = UnixTime::since_unix_epoch(now);
    let Err(error) = webpki.verify_client_cert(certificate, intermediates, now) else {
        return Ok(());
    };
    let is_bundled = bundle.contains(certificate);
    let fault = if is_purpose(&error) {
        OwnCertificateFault::Purpose
    } else if is_bundled && is_about_issuer(&error) {
        // Go's verifier accepts it, if it is for clients.
        if is_for(certificate, CLIENT_AUTH) {
            return Ok(());
        }
        OwnCertificateFault::Purpose
    } else if is_about_issuer(&error) || is_bad_signature(&error) {
        OwnCertificateFault::Issuer
    } else {
        return Ok(());
    };
    Err(OwnCertificateError {
        fault,
        text: error.to_string(),
    })
}

/// Whether the certificate lists purposes, and client authentication is none of them.
fn is_purpose(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
        )
    )
}

/// Whether the bundle has a CA with the name of the issuer and another key.
fn is_bad_signature(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::BadSignature))
}
