//! What keeps the next step of a cluster from being taken: one type with the data of each case. Plans decide by the type, and
//! its text is output only.

mod backup_problem;
mod field_hint;
mod member_problem;
mod reason;

use std::fmt;

use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_BACKUP_NOW, ANNOTATION_REPLACE};
use etcd_operator_api::refusal::{Refusal, bounded};
use etcd_operator_etcd_types::error::OwnCertificateFault;
use etcd_operator_etcd_types::id::ClusterId;
use etcd_operator_etcd_types::policy::UpgradeRefusal;
use etcd_operator_etcd_types::status::AlarmKind;

use crate::observed_state::{Digest, ImageProblem, MembershipFailure, QueryResult, ServerCertificateFault};

pub use backup_problem::BackupProblem;
pub use field_hint::FieldHint;
pub use member_problem::{KeptVolumeFault, MemberProblem, VolumeConsent, describe_verdict};
pub use reason::{BlockerReason, EndsBy};

use backup_problem::MAX_ERROR_CHARS;

/// At most this much of a refused pod is shown: one that violates a Pod Security Standard is told in many words.
const MAX_REFUSAL_CHARS: usize = 700;

/// A fact that must change before the next step is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// A member is not in the state that the step needs.
    Member {
        /// Its name; where it has no ordinal of this cluster, its ID.
        name: String,
        /// Its state.
        problem: MemberProblem,
    },
    /// etcd has raised an alarm that stands.
    Alarm(AlarmKind),
    /// No copy of the data may be removed while the alarm CORRUPT stands.
    CorruptAlarmForbidsRemoval,
    /// The alarm CORRUPT accuses a member, and its data could not be confirmed to differ.
    CorruptUnconfirmed {
        /// The member.
        member: String,
        /// Why not.
        finding: CorruptFinding,
    },
    /// Without a member too few healthy voters would be left.
    RemovalBreaksQuorum {
        /// The member that is to be removed.
        member: String,
        /// Healthy voters without it.
        healthy: usize,
        /// Voters without it.
        voters: usize,
        /// Healthy voters that a quorum needs.
        needed: usize,
    },
    /// A healthy member must not be removed while there are fewer voters than the spec asks for.
    TooFewVoters {
        /// The member that is to be replaced.
        member: String,
        /// Voters now.
        voters: usize,
        /// Voters in the spec.
        wanted: usize,
    },
    /// Too few voters are healthy for a promotion.
    VotersUnhealthy {
        /// Healthy voters.
        healthy: usize,
        /// All voters.
        voters: usize,
    },
    /// Another volume is attached in the place of a member's own. The user can declare it to be the member's own.
    VolumeReplaced {
        /// The member.
        member: String,
        /// The UID of its PersistentVolumeClaim.
        claim: String,
    },
    /// An annotation names a volume that does not exist.
    UnknownVolume {
        /// The annotation.
        annotation: &'static str,
        /// The UID in it.
        uid: String,
    },
    /// Kept volumes hold data of this cluster and incarnation, and others hold different data.
    KeptVolumesDiffer {
        /// The members on these volumes.
        members: Vec<String>,
        /// etcd's ID of their cluster.
        cluster: String,
        /// Their incarnation.
        incarnation: i64,
    },
    /// The pod template does not have the incarnation of the kept volumes yet.
    TemplateIncarnation,
    /// The StatefulSet has not accepted the template that the next pod of this member needs.
    TemplateNotApplied {
        /// The member.
        member: String,
    },
    /// No way leads from the versions that run to the one in the spec.
    VersionNotReachable(UpgradeRefusal),
    /// etcd 3.4 cannot run beside 3.5 while authentication is enabled.
    AuthenticationEnabled,
    /// No member has told whether authentication is enabled, which must not be while members of 3.4 and 3.5 run together.
    AuthenticationUnknown,
    /// Members run other versions on their way to the one in the spec, and the spec names one image for all.
    OneImageForAllVersions {
        /// The image.
        image: String,
        /// The versions on the way.
        versions: Vec<String>,
    },
    /// A version on the way to the one in the spec does not have what the spec asks for.
    SettingUnknownOnTheWay {
        /// The version.
        version: String,
        /// What it does not have.
        refusal: Refusal,
    },
    /// The spec asks for a smaller quota than the databases need.
    QuotaTooSmall {
        /// The quota, in bytes.
        quota: u64,
        /// The largest database, in bytes.
        largest: u64,
    },
    /// The spec switches TLS on or off for members that run.
    EncryptionSwitched,
    /// Members keep their data in their pods, so none can be restarted.
    DataLivesWithPods,
    /// The API server refuses the pods of the changed template.
    PodRefused {
        /// Its words.
        message: String,
    },
    /// The etcd image of the changed template cannot be used.
    ImageNotUsable {
        /// The image.
        image: String,
        /// Why not.
        problem: ImageProblem,
        /// Why the last try told nothing, if it did not.
        retry_failure: Option<String>,
    },
    /// The backup that comes before another minor version is not verified.
    BackupFirst {
        /// The `EtcdBackup`.
        backup: String,
        /// Why not.
        problem: BackupProblem,
    },
    /// A voter did not return the membership.
    MembershipUnknown(MembershipFailure),
    /// Another etcd cluster responds at the addresses of this one.
    OtherClusterResponds(ClusterId),
    /// Members do not accept the certificate of one of them, so none can join the others.
    ServerCertificateRejected(ServerCertificateFault),
    /// Members have restored different clusters from one backup.
    RestoredClustersDiffer,
    /// A restore past its commit makes no progress.
    RestoreStalled {
        /// For how long.
        minutes: u64,
    },
}

/// Why the data of an accused member could not be confirmed to differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorruptFinding {
    /// No majority of voters has equal data.
    NoMajority(Vec<(String, QueryResult<Digest>)>),
    /// The member returned no hash.
    NotComparable(QueryResult<Digest>),
    /// The member has the data of the majority.
    SameAsMajority {
        /// Voters with other data.
        differing: Vec<String>,
    },
    /// The member is compacted at another revision than the majority.
    OtherCompaction,
}

impl Blocker {
    /// A member that is not in the state that the step needs.
    pub fn member(name: impl Into<String>, problem: MemberProblem) -> Self {
        Self::Member {
            name: name.into(),
            problem,
        }
    }

    /// The reason by which the status and the metrics name the blocker.
    pub fn reason(&self) -> BlockerReason {
        match self {
            Self::Member { problem, .. } => problem.reason(),
            Self::Alarm(_) => BlockerReason::Alarm,
            Self::CorruptAlarmForbidsRemoval | Self::CorruptUnconfirmed { .. } => BlockerReason::CorruptAlarm,
            Self::RemovalBreaksQuorum { .. } => BlockerReason::RemovalBreaksQuorum,
            Self::TooFewVoters { .. } => BlockerReason::TooFewVoters,
            Self::VotersUnhealthy { .. } => BlockerReason::VotersUnhealthy,
            Self::VolumeReplaced { .. } => BlockerReason::VolumeReplaced,
            Self::UnknownVolume { .. } => BlockerReason::UnknownVolume,
            Self::KeptVolumesDiffer { .. } => BlockerReason::KeptVolumesDiffer,
            Self::TemplateIncarnation => BlockerReason::TemplateIncarnation,
            Self::TemplateNotApplied { .. } => BlockerReason::TemplateNotApplied,
            Self::VersionNotReachable(_) => BlockerReason::VersionNotReachable,
            Self::AuthenticationEnabled => BlockerReason::AuthenticationEnabled,
            Self::AuthenticationUnknown => BlockerReason::AuthenticationUnknown,
            Self::OneImageForAllVersions { .. } => BlockerReason::OneImageForAllVersions,
            Self::SettingUnknownOnTheWay { .. } => BlockerReason::SettingUnknownOnTheWay,
            Self::QuotaTooSmall { .. } => BlockerReason::QuotaTooSmall,
            Self::EncryptionSwitched => BlockerReason::EncryptionSwitched,
            Self::DataLivesWithPods => BlockerReason::DataLivesWithPods,
            Self::PodRefused { .. } => BlockerReason::PodRefused,
            Self::ImageNotUsable { .. } => BlockerReason::ImageNotUsable,
            Self::BackupFirst { .. } => BlockerReason::BackupNotVerified,
            Self::MembershipUnknown(_) => BlockerReason::MembershipUnknown,
            Self::OtherClusterResponds(_) => BlockerReason::OtherClusterResponds,
            Self::ServerCertificateRejected(_) => BlockerReason::ServerCertificateRejected,
            Self::RestoredClustersDiffer => BlockerReason::RestoredClustersDiffer,
            Self::RestoreStalled { .. } => BlockerReason::RestoreStalled,
        }
    }

    /// The member that it is about. `None` if it is about the cluster or about several members.
    pub fn member_name(&self) -> Option<&str> {
        match self {
            Self::Member { name: member, .. }
            | Self::CorruptUnconfirmed { member, .. }
            | Self::RemovalBreaksQuorum { member, .. }
            | Self::TooFewVoters { member, .. }
            | Self::VolumeReplaced { member, .. }
            | Self::TemplateNotApplied { member } => Some(member),
            _ => None,
        }
    }

    /// Whether it ends only if the user acts. Of a container that has not started, that is so only where the kubelet
    /// says so.
    pub fn needs_user(&self) -> bool {
        match self {
            Self::Member {
                problem: MemberProblem::Unhealthy { cause: Some(cause) },
                ..
            } => cause.needs_user(),
            // The kubelet is still at work unless it says otherwise.
            Self::Member {
                problem: problem @ MemberProblem::NotStartedContainer { .. },
                ..
            } => problem.is_root_cause(),
            _ => self.reason().ends_by() == EndsBy::User,
        }
    }

    /// Whether it is a cause by itself, and not only a member that has not started yet.
    pub fn is_root_cause(&self) -> bool {
        match self {
            Self::Member { problem, .. } => problem.is_root_cause(),
            Self::ServerCertificateRejected(_) => true,
            _ => false,
        }
    }
}

/// Whether these blockers end only if the user acts. `true` also without any: a decision that is blocked without a
/// blocker says so in its text.
pub fn need_user(blockers: &[Blocker]) -> bool {
    blockers.is_empty() || blockers.iter().any(Blocker::needs_user)
}

/// The first blocker that is a cause by itself.
pub fn root_cause(blockers: &[Blocker]) -> Option<&Blocker> {
    blockers.iter().find(|blocker| blocker.is_root_cause())
}

/// The texts of these blockers, sorted: of the first `limit` different ones, each of at most `max_chars`. Members with
/// the same problem share one text.
pub fn describe_all(blockers: &[Blocker], limit: usize, max_chars: usize) -> Vec<String> {
    let mut groups: Vec<(&Blocker, Vec<&str>)> = Vec::new();
    for blocker in blockers {
        let same = groups
            .iter_mut()
            .find(|(first, _)| has_same_problem(first, blocker));
        match (same, blocker) {
            (Some((first, others)), Blocker::Member { name, .. }) if first.member_name() != Some(name) => {
                if !others.contains(&name.as_str()) {
                    others.push(name);
                }
            }
            (Some(_), _) => {}
            (None, _) => groups.push((blocker, Vec::new())),
        }
    }
    let mut texts: Vec<_> = groups
        .into_iter()
        .take(limit)
        .map(|(first, others)| {
            let text = bounded(&first.to_string(), max_chars);
            if others.is_empty() {
                text
            } else {
                format!("{text} (also {})", others.join(", "))
            }
        })
        .collect();
    texts.sort();
    texts
}

fn has_same_problem(one: &Blocker, other: &Blocker) -> bool {
    match (one, other) {
        (Blocker::Member { problem: one, .. }, Blocker::Member { problem: other, .. }) => one == other,
        _ => one == other,
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member { name, problem } => write!(f, "{name} {problem}"),
            Self::Alarm(kind) => write!(f, "the alarm {kind} stands"),
            Self::CorruptAlarmForbidsRemoval => f.write_str(
                "etcd reports that the data of members differ (alarm CORRUPT): no member is removed until the alarm is disarmed",
            ),
            Self::CorruptUnconfirmed { member, finding } => {
                write!(f, "etcd has raised the alarm CORRUPT for {member}, and {finding}")
            }
            Self::RemovalBreaksQuorum {
                member,
                healthy,
                voters,
                needed,
            } => write!(
                f,
                "without {member} only {healthy} of {voters} voters would be healthy, and a quorum needs {needed}"
            ),
            Self::TooFewVoters {
                member,
                voters,
                wanted,
            } => write!(
                f,
                "there are {voters} voters of {wanted}: another member joins before {member}, which is healthy, is removed"
            ),
            Self::VotersUnhealthy { healthy, voters } => {
                write!(f, "{healthy} of {voters} voters are healthy")
            }
            Self::VolumeReplaced { member, claim } => write!(
                f,
                "if the volume of the PersistentVolumeClaim {claim} is the one that {member} has always had, and no copy of it, annotate this EtcdCluster with {ANNOTATION_ADOPT} and that UID"
            ),
            Self::UnknownVolume { annotation, uid } => write!(
                f,
                "the annotation {annotation} names {uid}, which is the UID of none of its PersistentVolumeClaims"
            ),
            Self::KeptVolumesDiffer {
                members,
                cluster,
                incarnation,
            } => write!(
                f,
                "{} hold etcd cluster {cluster}, incarnation {incarnation}",
                members.join(", ")
            ),
            Self::TemplateIncarnation => {
                f.write_str("the pod template does not have the incarnation of the volumes yet")
            }
            Self::TemplateNotApplied { member } => write!(
                f,
                "the StatefulSet has not accepted the template that {member} is to be re-created from: see the condition Applied"
            ),
            Self::VersionNotReachable(refusal) => write!(f, "{refusal}"),
            Self::AuthenticationEnabled => f.write_str(
                "members of etcd 3.4 and 3.5 cannot run together while authentication is enabled: disable it with `etcdctl auth disable`, and enable it again after the upgrade",
            ),
            Self::AuthenticationUnknown => f.write_str(
                "members of etcd 3.4 and 3.5 cannot run together while authentication is enabled, and no member tells whether it is: look at the log of the members, and at NetworkPolicies and certificates",
            ),
            Self::OneImageForAllVersions { image, versions } => write!(
                f,
                "members run etcd {} on the way, and spec.image is {image}: set spec.repository and spec.version in its place",
                versions.join(", then ")
            ),
            Self::SettingUnknownOnTheWay { version, refusal } => write!(
                f,
                "etcd {version}, which members are to run, does not accept the spec: {refusal}"
            ),
            Self::QuotaTooSmall { quota, largest } => write!(
                f,
                "spec.etcd.quotaBackendBytes is {quota} bytes, and the largest database has {largest}: set it at least 10% above that, or compact and defragment first"
            ),
            Self::EncryptionSwitched => f.write_str(
                "the spec switches TLS on or off, and members with and without it do not understand one another: set spec.TLS back, and restore a backup into a new EtcdCluster with the other setting",
            ),
            Self::DataLivesWithPods => f.write_str(
                "the members keep their data in their pods (storage.medium EmptyDir or Memory), and a cluster of one or two in this version of etcd cannot replace them one by one: set spec.size to 3 first, or set the change back",
            ),
            Self::PodRefused { message } => write!(
                f,
                "the API server would refuse the changed pods, so no member is restarted; correct the spec, or what refuses them: {}",
                bounded(message.trim_end_matches('.'), MAX_REFUSAL_CHARS)
            ),
            Self::ImageNotUsable {
                image,
                problem,
                retry_failure,
            } => {
                write!(
                    f,
                    "the image {image} cannot be used, so no member is restarted; correct the spec or the image: {problem}"
                )?;
                match retry_failure {
                    Some(failure) => write!(f, ". The last try could not tell whether it still is so: {failure}. Remove what prevents it, or name another image"),
                    None => Ok(()),
                }
            }
            Self::BackupFirst { backup, problem } => write!(
                f,
                "EtcdBackup {backup} {problem}, and a verified backup comes before another minor version: correct it and annotate it with {ANNOTATION_BACKUP_NOW} and a new value, or set spec.updates.backupFirst to Never"
            ),
            Self::MembershipUnknown(failure) => match failure {
                MembershipFailure::NoTransport(why) => f.write_str(why),
                MembershipFailure::Call(failure) => failure.fmt(f),
                MembershipFailure::NoLeader { url } => write!(f, "{url} has no leader"),
                MembershipFailure::OtherCluster { url, cluster } => {
                    write!(f, "{url} answers as a member of another etcd cluster, {cluster}")
                }
            },
            Self::OtherClusterResponds(cluster) => {
                write!(f, "etcd cluster {cluster} responds at the addresses of this one")
            }
            Self::ServerCertificateRejected(ServerCertificateFault { secret, error }) => {
                write!(
                    f,
                    "no member can be added or replaced: it shows server.crt of the Secret {secret} (spec.TLS.static.member.serverSecret) to the others, which do not accept it: {}; ",
                    bounded(&error.text, MAX_ERROR_CHARS)
                )?;
                f.write_str(match error.fault {
                    OwnCertificateFault::Issuer => "append its CA to server-ca.crt of that Secret, which etcd reads when a pod starts, or have it signed by a CA that is in server-ca.crt",
                    OwnCertificateFault::Purpose => "issue it for both server and client authentication",
                })
            }
            Self::RestoredClustersDiffer => f.write_str("the members have restored different clusters"),
            Self::RestoreStalled { minutes } => {
                write!(f, "no member has made progress for {minutes} minutes")
            }
        }
    }
}

impl fmt::Display for CorruptFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let help = format!(
            "find out with etcdctl endpoint hashkv whose data are wrong; to have a member replaced, annotate this EtcdCluster with {ANNOTATION_REPLACE} and its ID"
        );
        match self {
            Self::NoMajority(digests) => {
                let digests: Vec<_> = digests
                    .iter()
                    .map(|(name, digest)| format!("{name} {}", describe_digest(digest)))
                    .collect();
                write!(
                    f,
                    "no majority of voters agrees on their data ({}): {help}",
                    digests.join(", ")
                )
            }
            Self::NotComparable(digest) => {
                write!(
                    f,
                    "its data cannot be compared (it {}): {help}",
                    describe_digest(digest)
                )
            }
            Self::SameAsMajority { differing } => {
                let others = if differing.is_empty() {
                    "every voter that could be asked has the same".to_owned()
                } else {
                    format!("{} differ", differing.join(", "))
                };
                write!(
                    f,
                    "its data are those of most voters; {others}: {help}, or disarm the alarm with etcdctl alarm disarm"
                )
            }
            Self::OtherCompaction => write!(
                f,
                "it cannot be compared while it is compacted at another revision than the others: {help}"
            ),
        }
    }
}

fn describe_digest(digest: &QueryResult<Digest>) -> String {
    match digest {
        QueryResult::Answer(digest) => {
            format!("has hash {} at compaction {}", digest.hash, digest.compacted.0)
        }
        QueryResult::NoAnswer(failure) => format!("could not be asked: {failure}"),
        _ => "was not asked".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn members_with_the_same_problem_share_one_text_and_others_do_not() {
        let blockers = [
            Blocker::member("c-2", MemberProblem::PodTerminating),
            Blocker::member("c-0", MemberProblem::NotStarted),
            Blocker::member("c-1", MemberProblem::PodTerminating),
            Blocker::member("c-2", MemberProblem::PodTerminating),
            Blocker::Alarm(AlarmKind::NoSpace),
            Blocker::Alarm(AlarmKind::NoSpace),
        ];
        assert_eq!(
            describe_all(&blockers, 16, 512),
            [
                "c-0 has not started yet",
                "c-2 is being deleted (also c-1)",
                "the alarm NOSPACE stands"
            ]
        );
        assert_eq!(
            describe_all(&blockers, 1, 512),
            ["c-2 is being deleted (also c-1)"]
        );
    }

    #[test]
    fn every_reason_has_its_own_word_and_is_documented() {
        let words: BTreeSet<_> = BlockerReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), BlockerReason::ALL.len());
        for reason in BlockerReason::ALL {
            assert!(
                reason.meaning().ends_with('.') && reason.remedy().ends_with('.'),
                "{reason:?}"
            );
        }
    }
}
