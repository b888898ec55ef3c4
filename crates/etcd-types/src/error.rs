//! What can go wrong with a call to a member: whether to try again, and whether it may have been done all the same.

use std::time::Duration;

use crate::rejection::Rejection;
use crate::url::ClientUrl;

/// A call to a member that did not succeed: which call, at which member, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call} at {endpoint}: {cause}")]
pub struct Error {
    /// Who was asked.
    pub endpoint: ClientUrl,
    /// For what.
    pub call: &'static str,
    /// What went wrong.
    pub cause: Cause,
}

/// Why a call did not succeed: it was not sent, etcd rejected it, or there is no valid answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Certificates, keys or names that cannot be used.
    #[error("the connection cannot be set up: {0}")]
    Setup(String),
    /// No connection: nothing was asked.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The peer refused the connection: the network works, and no process listens there (yet). Nothing was asked.
    #[error("no connection: {0}")]
    ConnectionRefused(String),
    /// TLS failed before the member was asked anything.
    #[error("TLS failed: {0}")]
    Tls(TlsError),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Lost(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// Etcd said no.
    #[error(transparent)]
    Rejected(Rejection),
    /// The version of the member cannot do it, so that it was not asked.
    #[error("etcd {version} cannot do that: {why}")]
    Unsupported {
        /// The member's version.
        version: String,
        /// What would happen.
        why: &'static str,
    },
    /// An alarm that only a newer etcd has, so that the member was not asked to end it.
    #[error("alarm {0} is not known to this operator: disarm it with etcdctl alarm disarm")]
    UnknownAlarm(i32),
    /// An answer of more bytes than this, which was not read.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// An answer that etcd never gives.
    #[error("invalid response: {0}")]
    Malformed(String),
}

/// Why TLS to a member failed: what has to be corrected, and the text of the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsError {
    /// What has to be corrected.
    pub fault: TlsFault,
    /// The error of TLS in its own words.
    pub text: String,
}

/// What has to be corrected for a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The member's certificate, or the CA certificates that it is verified by: this side does not accept it.
    MemberCertificate,
    /// The client certificate, or the CA certificates that the member verifies it by: the member does not accept it.
    ClientCertificate,
    /// Anything else: the member may not speak TLS at all.
    Handshake,
}

/// Why members do not accept the certificate of one of them as that of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct OwnCertificateError {
    /// What has to be corrected.
    pub fault: OwnCertificateFault,
    /// The verifier's own words.
    pub text: String,
}

/// What has to be corrected where members do not accept the certificate of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCertificateFault {
    /// No CA of the bundle has signed the certificate.
    Issuer,
    /// The certificate does not allow client authentication.
    Purpose,
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Try again, here or elsewhere.
    Transient,
    /// A normal wait: try again later, without alarm.
    Waiting,
    /// Asked again it is refused again.
    Refused,
    /// TLS fails: try again after certificates were corrected.
    Tls,
    /// Identity or rights are missing.
    Unauthorised,
    /// Data is damaged.
    Corrupt,
    /// The database is full.
    NoSpace,
    /// This version cannot do it.
    Unsupported,
}

impl Error {
    /// What the caller can do about it. Whether the call took effect is another question: [`Self::may_have_been_done`].
    pub fn class(&self) -> Class {
        self.cause.class()
    }

    /// Whether etcd may have done what was asked although the call failed: reading the state again tells. `false` means
    /// that the request was not sent, or that etcd rejected it without effect.
    pub fn may_have_been_done(&self) -> bool {
        match &self.cause {
            Cause::Lost(_) | Cause::NoAnswer(_) | Cause::TooLarge(_) | Cause::Malformed(_) => true,
            Cause::Setup(_)
            | Cause::Unreachable(_)
            | Cause::ConnectionRefused(_)
            | Cause::Tls(_)
            | Cause::Unsupported { .. }
            | Cause::UnknownAlarm(_) => false,
            Cause::Rejected(rejection) => matches!(
                rejection,
                Rejection::LeaderChanged
                    | Rejection::TimedOut(_)
                    | Rejection::Stopped
                    | Rejection::OutOfRange(_)
                    | Rejection::Other { .. }
            ),
        }
    }

    /// The rejection, if etcd answered with one; `None` if there was no valid answer or no call.
    pub fn rejection(&self) -> Option<&Rejection> {
        match &self.cause {
            Cause::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }
}

impl Cause {
    fn class(&self) -> Class {
        match self {
            Self::Unreachable(_)
            | Self::ConnectionRefused(_)
            | Self::Lost(_)
            | Self::NoAnswer(_)
            | Self::Malformed(_) => Class::Transient,
            Self::Setup(_) | Self::Tls(_) => Class::Tls,
            Self::TooLarge(_) => Class::Refused,
            Self::Unsupported { .. } | Self::UnknownAlarm(_) => Class::Unsupported,
            Self::Rejected(rejection) => class_of(rejection),
        }
    }
}

/// The class of a rejection. One with an unknown text is transient.
fn class_of(rejection: &Rejection) -> Class {
    match rejection {
        Rejection::Unhealthy
        | Rejection::NotEnoughStarted
        | Rejection::LearnerNotReady
        | Rejection::TooManyLearners => Class::Waiting,
        Rejection::NoLeader
        | Rejection::LoginExpired
        | Rejection::LeaderChanged
        | Rejection::TimedOut(_)
        | Rejection::Stopped
        | Rejection::TooManyRequests
        | Rejection::FutureRevision
        | Rejection::OutOfRange(_)
        | Rejection::Other { .. } => Class::Transient,
        Rejection::NotALearner
        | Rejection::MemberNotFound
        | Rejection::MemberExists
        | Rejection::PeerUrlExists
        | Rejection::BadUrls
        | Rejection::NotLeader
        | Rejection::BadTransferee
        | Rejection::NotForLearners
        | Rejection::AuthenticationDisabled
        | Rejection::DowngradeEnabled
        | Rejection::NoDowngrade
        | Rejection::BadDowngradeTarget
        | Rejection::Compacted => Class::Refused,
        Rejection::Unauthorised(_) => Class::Unauthorised,
        Rejection::Corrupt => Class::Corrupt,
        Rejection::NoSpace => Class::NoSpace,
        Rejection::Unsupported => Class::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(cause: Cause) -> Error {
        Error {
            endpoint: "http://a:1".parse().expect("a URL"),
            call: "MemberAdd",
            cause,
        }
    }

    #[test]
    fn what_was_never_sent_or_was_refused_was_not_done() {
        for cause in [
            Cause::Unreachable("no route to host".to_owned()),
            Cause::ConnectionRefused("connection refused".to_owned()),
            Cause::Setup("no key".to_owned()),
            Cause::Tls(TlsError {
                fault: TlsFault::MemberCertificate,
                text: "unknown issuer".to_owned(),
            }),
            Cause::Rejected(Rejection::Unhealthy),
            Cause::Rejected(Rejection::PeerUrlExists),
            Cause::Rejected(Rejection::NoLeader),
        ] {
            assert!(!error(cause.clone()).may_have_been_done(), "{cause}");
        }
        for cause in [
            Cause::Lost("reset".to_owned()),
            Cause::TooLarge(1 << 20),
            Cause::NoAnswer(Duration::from_secs(5)),
            Cause::Rejected(Rejection::TimedOut("request timed out".to_owned())),
            Cause::Rejected(Rejection::LeaderChanged),
        ] {
            assert!(error(cause.clone()).may_have_been_done(), "{cause}");
        }
    }

    #[test]
    fn waits_are_told_from_faults() {
        let class = |rejection| error(Cause::Rejected(rejection)).class();
        assert_eq!(class(Rejection::Unhealthy), Class::Waiting);
        assert_eq!(class(Rejection::LearnerNotReady), Class::Waiting);
        assert_eq!(class(Rejection::PeerUrlExists), Class::Refused);
        assert_eq!(class(Rejection::NoSpace), Class::NoSpace);
        assert_eq!(class(Rejection::Corrupt), Class::Corrupt);
        assert_eq!(error(Cause::NoAnswer(Duration::ZERO)).class(), Class::Transient);
    }

    #[test]
    fn an_error_names_who_was_asked_for_what() {
        assert_eq!(
            error(Cause::Rejected(Rejection::MemberNotFound)).to_string(),
            "MemberAdd at http://a:1: there is no such member"
        );
    }
}
