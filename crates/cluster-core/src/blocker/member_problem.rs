//! In which state a member, its pod or its volume blocks a step. The text is a predicate: the member's name comes before it.

use std::fmt;

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD, ANNOTATION_REPLACE};
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::refusal::bounded;
use etcd_operator_etcd_types::id::{MemberId, RaftIndex, RaftTerm};

use super::{BlockerReason, FieldHint};
use crate::observed_state::{CallFailure, End, StartDelay, Unschedulable};

/// At most this much text of Kubernetes is shown: in a status the hint after it must have room.
const MAX_CHARS: usize = 300;

/// The guard's explanation of its verdict on a volume; the name of the verdict if it gave none.
pub fn describe_verdict(detail: &str, verdict: &Verdict) -> String {
    if detail.is_empty() {
        format!("{verdict:?}")
    } else {
        detail.to_owned()
    }
}

/// The state of a member that blocks a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProblem {
    /// It has no pod.
    NoPod {
        /// The StatefulSet that should create it.
        set: String,
    },
    /// The scheduler finds no node for its pod.
    Unschedulable {
        /// What the scheduler says.
        cause: Unschedulable,
        /// Where to correct it.
        hints: Vec<FieldHint>,
    },
    /// Its pod is being deleted.
    PodTerminating,
    /// Its pod is not ready.
    PodNotReady,
    /// Its etcd container has not been started.
    NotStartedContainer {
        /// Why not.
        delay: StartDelay,
        /// Where to correct it.
        hint: Option<FieldHint>,
    },
    /// Its etcd container has ended.
    ContainerEnded {
        /// The exit code.
        code: i32,
        /// Its last words.
        line: String,
        /// Where to correct it.
        hint: Option<FieldHint>,
    },
    /// Its image holds another minor version of etcd than the pod template names.
    ImageVersionDiffers {
        /// The image; none if the pod names none.
        image: Option<String>,
        /// The version in it.
        found: String,
        /// The version that the pod template names.
        named: String,
        /// Whether etcd of that version runs; otherwise the guard in the pod has not started it.
        runs: bool,
    },
    /// etcd ends at once, because it does not accept its flags.
    InvalidFlags(End),
    /// Its pod runs and does not answer.
    NoAnswer {
        /// The failed call.
        failure: CallFailure,
        /// How its container ended before, with an error.
        previous_end: Option<(End, Option<FieldHint>)>,
    },
    /// Its pod runs, and the operator and its etcd get no further than TLS.
    TlsFailed {
        /// The failed call.
        failure: CallFailure,
        /// Where to correct it.
        hint: Option<FieldHint>,
    },
    /// The process in its pod reports for another pod or incarnation.
    ReportMismatch,
    /// The process in its pod has not reported yet.
    NoReport,
    /// etcd runs in its pod, where a report of the volume is needed.
    EtcdRuns,
    /// Its volume holds data where an empty one is needed.
    VolumeNotEmpty {
        /// What the guard in the pod reports.
        detail: String,
        /// How the user can decide what becomes of the data.
        consent: VolumeConsent,
    },
    /// Its volume is older than the EtcdCluster.
    VolumeOlderThanCluster {
        /// The UID of its PersistentVolumeClaim.
        claim: String,
    },
    /// Its volume holds data of another cluster, or of another member.
    ForeignData {
        /// What the guard in the pod reports.
        detail: String,
        /// The member of this cluster whose data they are; none for data of another cluster.
        owner: Option<String>,
    },
    /// Its volume holds data of a newer incarnation than the status names.
    NewerIncarnation {
        /// The incarnation of the data.
        found: i64,
        /// The incarnation in the status.
        expected: i64,
    },
    /// Its volume cannot be read.
    VolumeUnreadable {
        /// What the guard in the pod reports.
        detail: String,
        /// How the user can have it replaced.
        consent: VolumeConsent,
    },
    /// Its volume or its data seem to be wrong, and no voter was ever healthy with the pod template that it runs with.
    TemplateNotServed {
        /// What the guard in the pod reports, or the log line with which etcd ended.
        finding: String,
        /// The spec hash of its pod; none if the pod names none.
        spec_hash: Option<String>,
        /// The ID by which the user can have it replaced; none while no voter returns the membership.
        replaceable: Option<MemberId>,
    },
    /// Its volume holds data that a restore has prepared.
    HoldsPreparedData,
    /// What its volume holds, while no voter returns the membership.
    VolumeReport {
        /// What the guard in the pod reports.
        detail: String,
        /// The UID of a PersistentVolumeClaim that the user can declare to be its own.
        adoptable_claim: Option<String>,
    },
    /// The volume is not the one that was kept for it.
    KeptVolumeRejected(KeptVolumeFault),
    /// Its PersistentVolumeClaim has been deleted while it runs.
    ClaimDeleted {
        /// The name of the claim.
        claim: String,
    },
    /// Its PersistentVolumeClaim is being deleted and held by finalizers.
    VolumeInUse {
        /// The finalizers.
        finalizers: Vec<String>,
    },
    /// It has a permit and has not started.
    PermitUnused,
    /// It responds and follows no leader.
    NoLeader,
    /// It responds and is behind the others.
    Lagging {
        /// Its Raft index.
        index: RaftIndex,
    },
    /// It responds, and there is no quorum.
    WithoutQuorum {
        /// Its Raft term.
        term: RaftTerm,
        /// Its Raft index.
        index: RaftIndex,
    },
    /// It has no address of this cluster.
    NotOfThisCluster {
        /// Its ID.
        id: MemberId,
    },
    /// It must be healthy before a member with a higher ordinal is removed.
    MustRecoverFirst,
    /// It is a voter that does not respond or lags behind.
    Unhealthy {
        /// Why only the user can help, if so: the member that the problem is about, and the problem.
        cause: Option<Box<super::Blocker>>,
    },
    /// It is the only voter.
    OnlyVoter,
    /// It was added and has never started.
    NotStarted,
    /// It is a learner.
    Learner,
    /// Its old pod may still run.
    StopUnconfirmed {
        /// Its node.
        node: Option<String>,
    },
    /// Its pod was created without the container that fetches the backup.
    FetchContainerMissing,
    /// It fetches the backup.
    Fetching {
        /// Bytes received, of how many.
        progress: Option<(u64, u64)>,
    },
    /// It fetches the backup again after a failure.
    FetchRetry {
        /// The failure.
        failure: String,
    },
    /// It cannot fetch the backup.
    FetchFailed {
        /// The failure.
        failure: String,
    },
    /// It has fetched the backup and waits to restore it.
    RestorePending {
        /// The failure of the last attempt.
        failure: Option<String>,
    },
    /// It restores the backup.
    Restoring,
    /// It cannot restore the backup.
    RestoreFailed {
        /// The failure.
        failure: String,
    },
    /// It has restored another cluster than the others.
    RestoredOtherCluster,
    /// It was not prepared before the commit of the restore.
    RestoreMissed,
    /// Its volume must not be touched by a restore.
    VolumeNotRestorable {
        /// What the guard in the pod reports.
        detail: String,
        /// Whether the data belong to another cluster.
        is_foreign: bool,
    },
}

/// How the user decides what becomes of the data on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeConsent {
    /// Nothing to decide yet.
    None,
    /// Annotate the EtcdCluster with the UID of the PersistentVolumeClaim to delete the data; none if the UID is unknown.
    Discard(Option<String>),
    /// Annotate it to start from the data, or to delete them.
    AdoptOrDiscard(Option<String>),
    /// Annotate it with the ID of the member to replace it.
    Replace(MemberId),
}

/// Why a volume is not accepted as one that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptVolumeFault {
    /// The guard found something else.
    NotKept(Verdict),
    /// It has no identity file.
    NoIdentity,
    /// It belongs to another member.
    OfMember(String),
    /// It is a copy.
    Copy {
        /// The part of the fingerprint that differs.
        kind: String,
    },
    /// It has no write-ahead log.
    NoWal,
    /// A member on it has an address that cannot be parsed.
    InvalidUrl(String),
    /// A member on it has an address of another cluster.
    ForeignAddress(Vec<String>),
    /// Its member is not in its own membership.
    NotAMember,
}

impl MemberProblem {
    /// The case as a word.
    pub fn reason(&self) -> BlockerReason {
        match self {
            Self::NoPod { .. } => BlockerReason::PodMissing,
            Self::Unschedulable { .. } => BlockerReason::PodUnschedulable,
            Self::PodTerminating => BlockerReason::PodTerminating,
            Self::PodNotReady => BlockerReason::PodNotReady,
            Self::NotStartedContainer { .. } => BlockerReason::ContainerNotStarted,
            Self::ContainerEnded { .. } => BlockerReason::ContainerEnded,
            Self::ImageVersionDiffers { .. } => BlockerReason::ImageVersionDiffers,
            Self::InvalidFlags(_) => BlockerReason::InvalidFlags,
            Self::NoAnswer { .. } => BlockerReason::MemberUnreachable,
            Self::TlsFailed { .. } => BlockerReason::TlsFailed,
            Self::ReportMismatch | Self::NoReport | Self::EtcdRuns => BlockerReason::ReportMissing,
            Self::VolumeNotEmpty { .. } => BlockerReason::VolumeNotEmpty,
            Self::VolumeOlderThanCluster { .. } => BlockerReason::VolumeOlderThanCluster,
            Self::ForeignData { .. } => BlockerReason::ForeignData,
            Self::NewerIncarnation { .. } => BlockerReason::NewerIncarnation,
            Self::VolumeUnreadable { .. } => BlockerReason::VolumeUnreadable,
            Self::TemplateNotServed { .. } => BlockerReason::TemplateNotServed,
            Self::HoldsPreparedData => BlockerReason::HoldsPreparedData,
            Self::VolumeReport { .. } => BlockerReason::WaitsForPermit,
            Self::KeptVolumeRejected(_) => BlockerReason::KeptVolumeRejected,
            Self::ClaimDeleted { .. } => BlockerReason::ClaimDeleted,
            Self::VolumeInUse { .. } => BlockerReason::VolumeInUse,
            Self::PermitUnused => BlockerReason::PermitUnused,
            Self::NoLeader => BlockerReason::NoLeader,
            Self::Lagging { .. } => BlockerReason::MemberLagging,
            Self::WithoutQuorum { .. } => BlockerReason::NoQuorum,
            Self::NotOfThisCluster { .. } => BlockerReason::UnmanagedMember,
            Self::MustRecoverFirst | Self::Unhealthy { .. } => BlockerReason::MemberUnhealthy,
            Self::OnlyVoter => BlockerReason::OnlyVoter,
            Self::NotStarted => BlockerReason::MemberNotStarted,
            Self::Learner => BlockerReason::LearnerNotPromoted,
            Self::StopUnconfirmed { .. } => BlockerReason::StopUnconfirmed,
            Self::FetchContainerMissing => BlockerReason::FetchContainerMissing,
            Self::Fetching { .. } | Self::FetchRetry { .. } => BlockerReason::FetchRunning,
            Self::FetchFailed { .. } => BlockerReason::FetchFailed,
            Self::RestorePending { .. } | Self::Restoring => BlockerReason::RestoreRunning,
            Self::RestoreFailed { .. } => BlockerReason::RestoreFailed,
            Self::RestoredOtherCluster => BlockerReason::RestoredClustersDiffer,
            Self::RestoreMissed => BlockerReason::RestoreMissed,
            Self::VolumeNotRestorable { .. } => BlockerReason::VolumeNotRestorable,
        }
    }

    /// Whether it explains by itself why a member does not serve. A member that merely has not started yet does not.
    pub fn is_root_cause(&self) -> bool {
        match self {
            Self::Unschedulable { .. }
            | Self::ContainerEnded { .. }
            | Self::ImageVersionDiffers { .. }
            | Self::TlsFailed { .. }
            | Self::VolumeNotEmpty { .. }
            | Self::VolumeOlderThanCluster { .. }
            | Self::ForeignData { .. }
            | Self::NewerIncarnation { .. }
            | Self::TemplateNotServed { .. }
            | Self::VolumeUnreadable { .. } => true,
            Self::NotStartedContainer { delay, hint } => hint.is_some() || !delay.is_transient(),
            Self::Unhealthy { cause: Some(cause) } => cause.is_root_cause(),
            _ => false,
        }
    }
}

impl fmt::Display for MemberProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPod { set } => write!(
                f,
                "has no pod yet; if none comes, `kubectl describe statefulset {set}` says why, or `kubectl get pods` shows an old pod that is still being deleted"
            ),
            Self::Unschedulable { cause, hints } => {
                write!(f, "finds no node: {}", bounded(&cause.text, MAX_CHARS))?;
                hints.iter().try_for_each(|hint| write!(f, "; {hint}"))
            }
            Self::PodTerminating => f.write_str("is being deleted"),
            Self::PodNotReady => f.write_str("is not ready yet"),
            Self::NotStartedContainer { delay, hint } => {
                let delay = bounded(&delay.to_string(), MAX_CHARS);
                write!(f, "is not started yet: {delay}")?;
                hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
            }
            Self::ContainerEnded { code, line, hint } => {
                write!(f, "has ended with code {code}: {line}")?;
                let separator = if line.is_empty() { "" } else { "; " };
                hint.iter().try_for_each(|hint| write!(f, "{separator}{hint}"))
            }
            Self::ImageVersionDiffers {
                image,
                found,
                named,
                runs,
            } => {
                let image = image.as_deref().unwrap_or("unknown");
                if *runs {
                    write!(f, "runs etcd {found}, which its image {image} holds")?;
                } else {
                    write!(f, "does not start etcd {found}, which its image {image} holds")?;
                }
                write!(
                    f,
                    ": the pod template names {named}; correct spec.image, spec.repository or spec.version"
                )
            }
            Self::InvalidFlags(end) => write!(
                f,
                "cannot start: etcd ended with code {}: {}; {}",
                end.code,
                end.line,
                FieldHint::ExtraArgs
            ),
            Self::NoAnswer {
                failure,
                previous_end,
            } => {
                write!(f, "does not answer: {failure}")?;
                let Some((end, hint)) = previous_end else {
                    return Ok(());
                };
                write!(f, "; before that its container ended with code {}", end.code)?;
                if !end.line.is_empty() {
                    write!(f, ": {}", end.line)?;
                }
                hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
            }
            Self::ReportMismatch => f.write_str("reports for another pod or another incarnation of the data"),
            Self::NoReport => f.write_str("has not reported yet"),
            Self::EtcdRuns => f.write_str("runs etcd, which does not report what is on the volume"),
            Self::TlsFailed { failure, hint } => {
                let failure = bounded(&failure.text, MAX_CHARS);
                write!(f, "cannot be reached by TLS: {failure}")?;
                hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
            }
            Self::VolumeNotEmpty { detail, consent } => {
                write!(f, "found a disk that is not empty: {detail}{consent}")
            }
            Self::VolumeOlderThanCluster { claim } => write!(
                f,
                "has a volume that is older than this EtcdCluster (PersistentVolumeClaim UID {claim}): to use it, annotate the EtcdCluster with {ANNOTATION_DISCARD} and that UID"
            ),
            Self::ForeignData {
                detail,
                owner: Some(owner),
            } => write!(
                f,
                "found data of member {owner} of this cluster on its volume ({detail}), which may be the only copy that {owner} has: exchange the volumes back, so that each PersistentVolumeClaim is bound to the volume of its own member"
            ),
            Self::ForeignData { detail, owner: None } => write!(
                f,
                "found data of another cluster on its volume ({detail}): to delete them, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID of the PersistentVolumeClaim"
            ),
            Self::NewerIncarnation { found, expected } => write!(
                f,
                "holds data of incarnation {found}, which is newer than {expected}: the status of this EtcdCluster may have been lost"
            ),
            Self::VolumeUnreadable { detail, consent } => {
                write!(f, "cannot read its volume: {detail}{consent}")
            }
            Self::TemplateNotServed {
                finding,
                spec_hash,
                replaceable,
            } => {
                let hash = spec_hash.as_deref().unwrap_or("unknown");
                write!(
                    f,
                    "cannot use its volume ({}), and no voter has served with its pod template yet (spec hash {hash}): if the spec is wrong (image, version, user or pod.patch), correct it",
                    bounded(finding, MAX_CHARS)
                )?;
                match replaceable {
                    Some(id) => write!(
                        f,
                        "; if the volume is, annotate this EtcdCluster with {ANNOTATION_REPLACE} and the ID {id}"
                    ),
                    None => f.write_str("; if the volume is, attach the right one or restore a backup"),
                }
            }
            Self::HoldsPreparedData => f.write_str("holds data that a restore has prepared"),
            Self::VolumeReport {
                detail,
                adoptable_claim,
            } => {
                write!(f, "says of its disk: {detail}")?;
                adoptable_claim.iter().try_for_each(|claim| {
                    write!(
                        f,
                        "; if the volume of the PersistentVolumeClaim {claim} is the one that it has always had, and no copy of it, annotate this EtcdCluster with {ANNOTATION_ADOPT} and that UID"
                    )
                })
            }
            Self::KeptVolumeRejected(fault) => fault.fmt(f),
            Self::ClaimDeleted { claim } => write!(
                f,
                "will lose its data with its pod: its PersistentVolumeClaim {claim} has been deleted"
            ),
            Self::VolumeInUse { finalizers } => write!(
                f,
                "keeps its PersistentVolumeClaim, which is being deleted and held by {}",
                finalizers.join(", ")
            ),
            Self::PermitUnused => f.write_str("has its permit and has not started yet"),
            Self::NoLeader => f.write_str("answers and follows no leader"),
            Self::Lagging { index } => write!(f, "answers and is behind, at index {index}"),
            Self::WithoutQuorum { term, index } => write!(f, "answers, at term {term} and index {index}"),
            Self::NotOfThisCluster { id } => write!(
                f,
                "has no address of this cluster and counts for its quorum: unless you added it on purpose, remove it (etcdctl member remove {id})"
            ),
            Self::MustRecoverFirst => f.write_str(
                "must be healthy first; if it cannot recover, delete its PersistentVolumeClaim and its pod, and the operator replaces it",
            ),
            Self::Unhealthy { cause } => {
                f.write_str("is no healthy voter: it does not answer or is behind")?;
                cause.iter().try_for_each(|cause| write!(f, ": {cause}"))
            }
            Self::OnlyVoter => f.write_str("is the only voter"),
            Self::NotStarted => f.write_str("has not started yet"),
            Self::Learner => f.write_str("is still a learner"),
            Self::StopUnconfirmed { node } => write!(
                f,
                "has an old pod that is not confirmed stopped; it is on {}",
                node.as_deref().unwrap_or("no node")
            ),
            Self::FetchContainerMissing => {
                f.write_str("has a pod without the container that fetches the backup, and is re-created")
            }
            Self::Fetching {
                progress: Some((bytes, total)),
            } => write!(f, "fetches the backup, {} of {}", Bytes(*bytes), Bytes(*total)),
            Self::Fetching { progress: None } => f.write_str("fetches the backup"),
            Self::FetchRetry { failure } => write!(f, "fetches again after: {failure}"),
            Self::FetchFailed { failure } => write!(f, "cannot fetch the backup: {failure}"),
            Self::RestorePending { failure } => {
                f.write_str("is to restore it")?;
                failure.iter().try_for_each(|failure| write!(f, " again after: {failure}"))
            }
            Self::Restoring => f.write_str("restores beside its old data"),
            Self::RestoreFailed { failure } => write!(f, "cannot restore the backup: {failure}"),
            Self::RestoredOtherCluster => f.write_str("has restored another cluster"),
            Self::RestoreMissed => f.write_str(
                "was not prepared in time: it is replaced once the other members serve",
            ),
            Self::VolumeNotRestorable {
                detail,
                is_foreign: true,
            } => write!(
                f,
                "has a volume with data of another cluster (to give them up, delete its PersistentVolumeClaim and its pod): {detail}"
            ),
            Self::VolumeNotRestorable {
                detail,
                is_foreign: false,
            } => write!(f, "has a volume that no restore may touch: {detail}"),
        }
    }
}

impl fmt::Display for VolumeConsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uid = |claim: &Option<String>| claim.clone().unwrap_or_else(|| "of its claim".to_owned());
        match self {
            Self::None => Ok(()),
            Self::Discard(Some(claim)) => write!(
                f,
                ". To delete what is on it, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID {claim}"
            ),
            Self::Discard(None) => write!(
                f,
                ". If it stays so, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID of the PersistentVolumeClaim: the member then gets another volume"
            ),
            Self::AdoptOrDiscard(claim) => write!(
                f,
                ". To start from kept volumes, annotate this EtcdCluster with {ANNOTATION_ADOPT} and the UIDs of their PersistentVolumeClaims; to delete what is on this one, with {ANNOTATION_DISCARD} and the UID {}",
                uid(claim)
            ),
            Self::Replace(id) => write!(
                f,
                ". If it stays so, annotate this EtcdCluster with {ANNOTATION_REPLACE} and the ID {id}: the member then gets another volume"
            ),
        }
    }
}

impl fmt::Display for KeptVolumeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKept(verdict) => write!(f, "found its disk to be {verdict:?} and no kept volume"),
            Self::NoIdentity => f.write_str("found no identity on the volume"),
            Self::OfMember(member) => write!(f, "found the volume of {member}"),
            Self::Copy { kind } => write!(
                f,
                "found a copy and not the volume that was kept: its {kind} differs"
            ),
            Self::NoWal => f.write_str("found no write-ahead log on the volume"),
            Self::InvalidUrl(error) => f.write_str(error),
            Self::ForeignAddress(urls) => write!(
                f,
                "holds a member at {}, which is no address of this cluster",
                urls.join(", ")
            ),
            Self::NotAMember => f.write_str("is not among the members on its own volume"),
        }
    }
}
