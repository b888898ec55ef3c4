//! Calls to members that failed: a class that plans decide by, and the error text for people.

use std::fmt;

use etcd_operator_etcd::error::Error;
use etcd_operator_etcd::rejection::Rejection;

use super::external_text;

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
    /// Anything else, such as no answer in time.
    Other,
}

impl CallFailure {
    /// A failed call to a server that is not etcd. Recognizes a refused connection by the text of the operating system.
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        let class = if external_text::is_connection_refused(&text) {
            CallClass::ConnectionRefused
        } else {
            CallClass::Other
        };
        Self { class, text }
    }
}

impl From<&Error> for CallFailure {
    fn from(error: &Error) -> Self {
        let failure = Self::from_text(error.to_string());
        match error.rejection() {
            Some(Rejection::Unauthorised(_)) => Self {
                class: CallClass::Unauthenticated,
                ..failure
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
    use etcd_operator_etcd::error::Cause;

    use super::*;

    fn class(cause: Cause) -> CallClass {
        let error = Error {
            endpoint: "http://a:2379".parse().expect("a URL"),
            call: "Status",
            cause,
        };
        CallFailure::from(&error).class
    }

    #[test]
    fn errors_of_etcd_calls_are_classified_by_cause_and_by_the_operating_systems_text() {
        let refused = "tcp connect error: Connection refused (os error 111)";
        let unauthorised = Rejection::Unauthorised("etcdserver: user name is empty".to_owned());
        assert_eq!(class(Cause::Rejected(unauthorised)), CallClass::Unauthenticated);
        assert_eq!(
            class(Cause::Unreachable(refused.to_owned())),
            CallClass::ConnectionRefused
        );
        assert_eq!(
            class(Cause::Unreachable("no route to host".to_owned())),
            CallClass::Other
        );
    }
}
