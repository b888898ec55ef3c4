//! Connections that fail, as classes: what a chain of errors of any client really says. And the one HTTP client of the
//! ports that do not bring their own.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use crate::error::{Class, Fault};
use crate::secret::{BadConfig, Censor};
use crate::trust::Trust;

/// How long reaching a store may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// An HTTP client: no retries, no redirects (a signature holds for one address only).
pub(crate) fn client(trust: &Trust) -> Result<reqwest::Client, BadConfig> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(trust.rustls()?)
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent("etcd-operator")
        .http1_only()
        .build()
        .map_err(|error| BadConfig::new("the HTTP client", last(&error)))
}

/// What a failed connection means.
pub(crate) fn fault(error: &(dyn StdError + 'static), censor: &Censor) -> Fault {
    let mut class = Class::Transient;
    for error in chain(error) {
        if let Some(found) = class_of(error) {
            class = found;
        }
    }
    Fault::new(class, censor.clean(&last(error)))
}

/// What one error of a chain says of its own accord.
fn class_of(error: &(dyn StdError + 'static)) -> Option<Class> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(match tls {
            rustls::Error::InvalidCertificate(_) => Class::TlsUntrusted,
            // An endpoint that speaks plain HTTP where TLS was asked for.
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

/// All errors of a chain, also those that an IO error wraps and does not name as its source.
pub(crate) fn chain<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
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

/// The words of the innermost error: the outer ones only say that there is one.
pub(crate) fn last(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map_or_else(String::new, ToString::to_string)
}

/// Whether any error of the chain holds this word.
pub(crate) fn mentions(error: &(dyn StdError + 'static), word: &str) -> bool {
    chain(error).iter().any(|error| error.to_string().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_wrapped_in_others_are_found() {
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        let wrapped = std::io::Error::other(refused);
        assert_eq!(fault(&wrapped, &Censor::default()).class, Class::Unreachable);
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = std::io::Error::new(ErrorKind::InvalidData, untrusted);
        assert_eq!(fault(&wrapped, &Censor::default()).class, Class::TlsUntrusted);
        let broken = std::io::Error::from(ErrorKind::ConnectionReset);
        assert_eq!(fault(&broken, &Censor::default()).class, Class::Transient);
    }
}
