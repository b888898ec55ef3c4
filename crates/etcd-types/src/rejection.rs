//! What etcd says when it does not do what it is asked, as types.

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
    /// The answer is larger than the caller allows, or something else is out of range that no text tells.
    #[error("{0} (OutOfRange)")]
    OutOfRange(String),
    /// Anything else, in etcd's words.
    #[error("{message} ({code})")]
    Other {
        /// The name of the answer's gRPC code, for people.
        code: String,
        /// The text of the answer.
        message: String,
    },
}
