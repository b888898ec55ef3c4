//! The HTTP client of the backends that bring none of their own, and the classification of connection errors.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use crate::error::{Class, Fault};
use crate::secret::{InvalidConfig, Redactor};
use crate::trust::TrustedRoots;

/// The timeout for establishing a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Whether a client uses the proxy that the environment names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    FromEnvironment,
    /// For metadata services: behind a proxy is another machine's service, or none.
    None,
}

/// Creates an HTTP client. It does not retry, and it does not follow redirects: a signature is valid for one
/// address only.
pub(crate) fn http_client(trust: &TrustedRoots, proxy: Proxy) -> Result<reqwest::Client, InvalidConfig> {
    let builder = reqwest::Client::builder();
    let builder = match proxy {
        Proxy::FromEnvironment => builder,
        Proxy::None => builder.no_proxy(),
    };
    builder
        .tls_backend_preconfigured(trust.to_rustls_config()?)
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent("etcd-operator")
        .http1_only()
        .build()
        .map_err(|error| InvalidConfig::new("the HTTP client", root_cause(&error)))
}

/// Whether others can read a request to this address in transit: it leaves the machine over plain HTTP.
pub(crate) fn is_readable_in_transit(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    uri.scheme_str() == Some("http") && !is_loopback
}

/// Converts a connection error to a fault. The innermost error that has a class decides.
pub(crate) fn connection_fault(error: &(dyn StdError + 'static), redactor: &Redactor) -> Fault {
    let mut class = Class::Transient;
    for error in error_chain(error) {
        if let Some(found) = class_of(error) {
            class = found;
        }
    }
    Fault::new(class, redactor.redact(&root_cause(error)))
}

/// The class of a single error of a chain, without its sources.
fn class_of(error: &(dyn StdError + 'static)) -> Option<Class> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(match tls {
            rustls::Error::InvalidCertificate(_) => Class::TlsUntrusted,
            // The endpoint speaks plain HTTP instead of TLS.
            rustls::Error::InvalidMessage(_) => Class::Unreachable,
            _ => Class::Transient,
        });
    }
    if let Some(io) = error.downcast_ref::<std::io::Error>() {
        return match io.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable => Some(Class::Unreachable),
            ErrorKind::TimedOut => Some(Class::TimedOut),
            _ => None,
        };
    }
    let text = error.to_string();
    if text.starts_with("dns error") || text.contains("failed to lookup address") {
        return Some(Class::Unreachable);
    }
    None
}

/// All errors of a chain, including errors wrapped in an I/O error that does not report them as its source.
pub(crate) fn error_chain<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut all: Vec<&'a (dyn StdError + 'static)> = vec![error];
    while let Some(last) = all.last().copied() {
        let wrapped = last
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
            .map(|inner| inner as &(dyn StdError + 'static));
        match wrapped.or_else(|| last.source()) {
            Some(next) if all.len() < 32 => all.push(next),
            _ => break,
        }
    }
    all
}

/// The text of the innermost error. The outer errors only state that there is one.
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    error_chain(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

/// Whether the text of any error of the chain contains `word`.
pub(crate) fn chain_contains(error: &(dyn StdError + 'static), word: &str) -> bool {
    error_chain(error)
        .iter()
        .any(|error| error.to_string().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_errors_are_classified() {
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        let wrapped = std::io::Error::other(refused);
        assert_eq!(
            connection_fault(&wrapped, &Redactor::default()).class,
            Class::Unreachable
        );
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = std::io::Error::new(ErrorKind::InvalidData, untrusted);
        assert_eq!(
            connection_fault(&wrapped, &Redactor::default()).class,
            Class::TlsUntrusted
        );
        let broken = std::io::Error::from(ErrorKind::ConnectionReset);
        assert_eq!(
            connection_fault(&broken, &Redactor::default()).class,
            Class::Transient
        );
    }
}
