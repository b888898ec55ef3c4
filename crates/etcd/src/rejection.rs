//! What etcd says when it does not do what it is asked, as types. Pure: etcd's texts are stable from 3.2 to 3.7 while
//! its codes are not, so the text decides.

use tonic::Code;

/// What etcd answered when it rejected a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Not all voters were connected for five seconds: a normal wait before a change of members.
    #[error("not all members have been connected to one another for five seconds")]
    Unhealthy,
    /// Too few members have started to take another one.
    #[error("too few members have started")]
    NotEnoughStarted,
    /// A learner is still behind: a normal wait before a promote.
    #[error("the learner is not yet in sync with the leader")]
    LearnerNotReady,
    /// No further learner until one is promoted or removed.
    #[error("there are as many learners as there may be")]
    TooManyLearners,
    /// A promote of a voter.
    #[error("the member is no learner")]
    NotALearner,
    /// No member with this ID.
    #[error("there is no such member")]
    MemberNotFound,
    /// A member with this ID.
    #[error("there is a member with this ID")]
    MemberExists,
    /// A member with this peer URL.
    #[error("there is a member with this peer URL")]
    PeerUrlExists,
    /// Peer URLs that etcd does not take.
    #[error("the peer URLs are not valid")]
    BadUrls,
    /// Asked of a member that does not lead.
    #[error("this member is not the leader")]
    NotLeader,
    /// Leadership for a member that cannot have it.
    #[error("the member cannot be given leadership")]
    BadTransferee,
    /// Asked of a learner, which serves next to nothing.
    #[error("this member is a learner and does not serve that")]
    NotForLearners,
    /// No leader at present.
    #[error("there is no leader")]
    NoLeader,
    /// The leader changed meanwhile; it may have been done.
    #[error("the leader changed meanwhile")]
    LeaderChanged,
    /// It took etcd too long; it may have been done.
    #[error("it took etcd too long: {0}")]
    TimedOut(String),
    /// The member is ending; it may have been done.
    #[error("the member is stopping")]
    Stopped,
    /// Too much is asked at present.
    #[error("too many requests")]
    TooManyRequests,
    /// The database is as large as it may be.
    #[error("the database is as large as its quota")]
    NoSpace,
    /// Data of members differ.
    #[error("the data of members differ")]
    Corrupt,
    /// The revision is gone.
    #[error("the revision has been compacted")]
    Compacted,
    /// The revision has not come yet.
    #[error("the revision is in the future")]
    FutureRevision,
    /// No or a wrong identity, or too few rights.
    #[error("not authorised: {0}")]
    Unauthorised(String),
    /// A login while authentication is disabled.
    #[error("authentication is not enabled")]
    AuthenticationDisabled,
    /// The member does not know the token of the login any more: it may have restarted since.
    #[error("the login has expired")]
    LoginExpired,
    /// A downgrade while one is enabled.
    #[error("a downgrade is enabled already")]
    DowngradeEnabled,
    /// The end of a downgrade while none is enabled.
    #[error("no downgrade is enabled")]
    NoDowngrade,
    /// A downgrade to another version than the minor below that of the cluster.
    #[error("etcd cannot be downgraded to this version now")]
    BadDowngradeTarget,
    /// This version cannot do it.
    #[error("this version of etcd cannot do that")]
    Unsupported,
    /// Anything else, in etcd's words.
    #[error("{message} ({code:?})")]
    Other {
        /// The code of the answer.
        code: Code,
        /// The text of the answer.
        message: String,
    },
}

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
pub(crate) fn read(code: Code, message: &str) -> Rejection {
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
        _ => Rejection::Other {
            code,
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
                    code: Code::Unavailable,
                    message: "something new".to_owned(),
                },
            ),
        ] {
            assert_eq!(read(code, message), rejection, "{message}");
        }
    }
}
