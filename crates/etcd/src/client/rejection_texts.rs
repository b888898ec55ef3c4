//! What etcd's rejections mean. Pure: etcd's texts are stable from 3.2 to 3.7 while its codes are not, so the text decides.

use tonic::Code;

use crate::rejection::Rejection;

/// The texts, as far as one means one thing.
const TEXTS: &[(&str, Rejection)] = &[
    ("unhealthy cluster", Rejection::Unhealthy),
    (
        "re-configuration failed due to not enough started members",
        Rejection::NotEnoughStarted,
    ),
    (
        "can only promote a learner member which is in sync with leader",
        Rejection::LearnerNotReady,
    ),
    ("can only promote a learner member", Rejection::NotALearner),
    ("too many learner members in cluster", Rejection::TooManyLearners),
    ("member not found", Rejection::MemberNotFound),
    ("member ID already exist", Rejection::MemberExists),
    ("Peer URLs already exists", Rejection::PeerUrlExists),
    ("given member URLs are invalid", Rejection::BadUrls),
    ("not leader", Rejection::NotLeader),
    ("bad leader transferee", Rejection::BadTransferee),
    ("rpc not supported for learner", Rejection::NotForLearners),
    ("no leader", Rejection::NoLeader),
    ("leader changed", Rejection::LeaderChanged),
    ("server stopped", Rejection::Stopped),
    ("too many requests", Rejection::TooManyRequests),
    ("mvcc: database space exceeded", Rejection::NoSpace),
    ("corrupt cluster", Rejection::Corrupt),
    ("mvcc: required revision has been compacted", Rejection::Compacted),
    (
        "mvcc: required revision is a future revision",
        Rejection::FutureRevision,
    ),
    (
        "cluster has a downgrade job in progress",
        Rejection::DowngradeEnabled,
    ),
    ("no inflight downgrade job", Rejection::NoDowngrade),
    ("invalid downgrade target version", Rejection::BadDowngradeTarget),
    ("not capable", Rejection::Unsupported),
    ("authentication is not enabled", Rejection::AuthenticationDisabled),
    ("invalid auth token", Rejection::LoginExpired),
    ("revision of auth store is old", Rejection::LoginExpired),
];

/// What identity or rights are about.
const AUTH: &[&str] = &[
    "user name is empty",
    "permission denied",
    "authentication failed, invalid user ID or password",
];

/// What an answer of etcd means: by its text, or by its code if the text is unknown.
pub fn read(code: Code, message: &str) -> Rejection {
    let text = message.strip_prefix("etcdserver: ").unwrap_or(message);
    if let Some((_, rejection)) = TEXTS.iter().find(|(known, _)| *known == text) {
        return rejection.clone();
    }
    if text.starts_with("request timed out") || code == Code::DeadlineExceeded {
        return Rejection::TimedOut(text.to_owned());
    }
    let is_about_auth =
        AUTH.contains(&text) || matches!(code, Code::PermissionDenied | Code::Unauthenticated);
    if is_about_auth {
        return Rejection::Unauthorised(text.to_owned());
    }
    match code {
        Code::Unimplemented => Rejection::Unsupported,
        Code::DataLoss => Rejection::Corrupt,
        Code::OutOfRange => Rejection::OutOfRange(message.to_owned()),
        _ => Rejection::Other {
            code: format!("{code:?}"),
            message: message.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_etcd_means_one_thing_whatever_its_code() {
        for (text, rejection) in TEXTS {
            for code in [Code::Unavailable, Code::FailedPrecondition, Code::Unknown] {
                assert_eq!(read(code, &format!("etcdserver: {text}")), *rejection);
            }
        }
        for text in AUTH {
            let read = read(Code::InvalidArgument, &format!("etcdserver: {text}"));
            assert!(matches!(read, Rejection::Unauthorised(_)), "{text}");
        }
    }

    #[test]
    fn a_learner_that_is_behind_is_not_taken_for_a_voter() {
        let message = "etcdserver: can only promote a learner member which is in sync with leader";
        assert_eq!(
            read(Code::FailedPrecondition, message),
            Rejection::LearnerNotReady
        );
    }

    #[test]
    fn a_code_decides_where_the_text_is_unknown() {
        for (code, message, rejection) in [
            (
                Code::Unimplemented,
                "unknown method HashKV",
                Rejection::Unsupported,
            ),
            (Code::DataLoss, "something new", Rejection::Corrupt),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to connection lost",
                Rejection::TimedOut("request timed out, possibly due to connection lost".to_owned()),
            ),
            (
                Code::Unavailable,
                "something new",
                Rejection::Other {
                    code: "Unavailable".to_owned(),
                    message: "something new".to_owned(),
                },
            ),
        ] {
            assert_eq!(read(code, message), rejection, "{message}");
        }
    }
}
