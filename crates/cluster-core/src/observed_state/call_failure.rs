//! Calls to members that failed: a class that plans decide by, and the error text for people.

use std::fmt;

use etcd_operator_etcd_types::error::{Cause, Error, TlsError, TlsFault};
use etcd_operator_etcd_types::rejection::Rejection;

/// A call that returned no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// What plans decide by.
    pub class: CallClass,
    /// The error, for people.
    pub text: String,
}

/// The class of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// The peer refused the connection: the network works, and the process does not listen (yet).
    ConnectionRefused,
    /// etcd requires authentication, and the operator has no user there.
    Unauthenticated,
    /// The operator has no certificates that it could connect with.
    NoTransport,
    /// TLS failed: what has to be corrected.
    Tls(TlsFault),
    /// Anything else, such as no answer in time.
    Other,
}

impl CallFailure {
    /// A failed call of which nothing is known but its error text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            class: CallClass::Other,
            text: text.into(),
        }
    }

    /// A call that could not be made, because the peer refused the connection.
    pub fn connection_refused(text: impl Into<String>) -> Self {
        Self {
            class: CallClass::ConnectionRefused,
            text: text.into(),
        }
    }

    /// A call that cannot be made, because the operator has no certificates for it.
    pub fn no_transport(text: impl Into<String>) -> Self {
        Self {
            class: CallClass::NoTransport,
            text: text.into(),
        }
    }
}

impl From<&Error> for CallFailure {
    fn from(error: &Error) -> Self {
        let failure = Self::from_text(error.to_string());
        // Which member fails for TLS is known elsewhere, and its address changes with its pod.
        match &error.cause {
            Cause::Rejected(Rejection::Unauthorised(_)) => Self {
                class: CallClass::Unauthenticated,
                ..failure
            },
            Cause::ConnectionRefused(_) => Self::connection_refused(error.to_string()),
            Cause::Setup(_) => Self::no_transport(error.cause.to_string()),
            Cause::Tls(TlsError { fault, .. }) => Self {
                class: CallClass::Tls(*fault),
                text: error.cause.to_string(),
            },
            _ => failure,
        }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cause: Cause) -> CallFailure {
        CallFailure::from(&Error {
            endpoint: "http://a:2379".parse().expect("a URL"),
            call: "Status",
            cause,
        })
    }

    fn class(cause: Cause) -> CallClass {
        failure(cause).class
    }

    #[test]
    fn a_call_that_failed_for_certificates_is_told_in_the_words_of_the_verifier_and_without_an_address() {
        let refused = failure(Cause::Tls(TlsError {
            fault: TlsFault::MemberCertificate,
            text: "invalid peer certificate: UnknownIssuer".to_owned(),
        }));
        assert_eq!(refused.class, CallClass::Tls(TlsFault::MemberCertificate));
        assert_eq!(
            refused.text,
            "TLS failed: invalid peer certificate: UnknownIssuer"
        );
        let unusable = failure(Cause::Setup("no PEM".to_owned()));
        assert_eq!(unusable.class, CallClass::NoTransport);
    }

    #[test]
    fn errors_of_etcd_calls_are_classified_by_cause_and_never_by_their_text() {
        let refused = "Connection refused (os error 111)";
        let unauthorised = Rejection::Unauthorised("etcdserver: user name is empty".to_owned());
        assert_eq!(class(Cause::Rejected(unauthorised)), CallClass::Unauthenticated);
        assert_eq!(
            class(Cause::ConnectionRefused(refused.to_owned())),
            CallClass::ConnectionRefused
        );
        for cause in [
            Cause::Unreachable("no route to host".to_owned()),
            Cause::Lost(
                "stream error received: refused stream before processing any application logic".to_owned(),
            ),
        ] {
            assert_eq!(class(cause.clone()), CallClass::Other, "{cause}");
        }
    }
}
