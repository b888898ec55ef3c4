//! What one member has done of a restore, from what its pod shows.

use etcd_operator_api::contract::{Report, Verdict};
use etcd_operator_api::restore::MemberRestoreStatus;
use etcd_operator_etcd_types::id::{ClusterId, MemberId};

use crate::blocker::{MemberProblem, VolumeConsent};
use crate::observed_state::{Fetch, ObservedCluster, Ordinal, Pod};
use crate::persisted_state::{Phase, Restore};
use crate::plan::cluster_view::ClusterView;
use crate::plan::diagnose;

/// The phase of a member that downloads the backup.
const FETCHING: &str = "Fetching";

/// In how many steps a download is told.
const STEPS: u64 = 50;

/// What one member has done of a restore.
#[derive(Clone, Debug)]
pub enum MemberProgress<'a> {
    /// Its restored directory waits to be put in place.
    Prepared {
        /// The pod.
        pod: &'a Pod,
        /// What the process in it says.
        report: &'a Report,
        /// The cluster in the directory.
        cluster: ClusterId,
        /// The member in it.
        member: MemberId,
    },
    /// It has the object and may restore it.
    Ready(&'a Pod, &'a Report),
    /// It downloads the backup.
    Fetching(MemberProblem),
    /// It restores the backup beside its old data.
    Preparing(MemberProblem),
    /// It cannot do it, and another try would not help.
    Failed(MemberProblem),
    /// Its data are not those of this restore, and it cannot restore either.
    Unusable(MemberProblem),
    /// It cannot be told.
    Unknown(MemberProblem),
}

/// What the member of an ordinal has done, by its report or by the init container that downloads the backup. `Unknown`
/// if neither says anything for the incarnation of this restore.
pub fn assess_member<'a>(view: &ClusterView<'a>, restore: &Restore, ordinal: Ordinal) -> MemberProgress<'a> {
    let observed = view.observed;
    if let Some((pod, report)) = view.report(ordinal, restore.incarnation) {
        return classify_report(restore, pod, report);
    }
    let pod = observed.member(ordinal).pod.as_ref();
    let own = pod.filter(|pod| pod.incarnation == restore.incarnation && pod.deleting.is_none());
    if let Some(fetch) = own
        .and_then(|pod| pod.fetch.as_ref())
        .filter(|fetch| !fetch.is_done)
    {
        return match &fetch.failure {
            Some(failure) if failure.is_lasting => MemberProgress::Failed(MemberProblem::FetchFailed {
                failure: failure.words.clone(),
            }),
            Some(failure) => MemberProgress::Fetching(MemberProblem::FetchRetry {
                failure: failure.words.clone(),
            }),
            None if fetch.is_running => {
                let progress = rounded_progress(fetch);
                MemberProgress::Fetching(MemberProblem::Fetching { progress })
            }
            None => MemberProgress::Unknown(diagnose::explain(view, ordinal)),
        };
    }
    MemberProgress::Unknown(diagnose::explain(view, ordinal))
}

/// The bytes that have arrived, in `STEPS` steps, and the total: the status is not written for each of them.
fn rounded_progress(fetch: &Fetch) -> Option<(u64, u64)> {
    let (bytes, total) = fetch.progress?;
    let step = (total / STEPS).max(1);
    let rounded = if bytes < total { bytes / step * step } else { total };
    Some((rounded, total))
}

/// The bytes of the backup that the member of an ordinal has downloaded, rounded down as in the status; 0 if unknown.
pub fn fetched_bytes(observed: &ObservedCluster, ordinal: Ordinal) -> i64 {
    let fetch = observed
        .member(ordinal)
        .pod
        .as_ref()
        .and_then(|pod| pod.fetch.as_ref());
    let bytes = fetch.and_then(rounded_progress).map_or(0, |(bytes, _)| bytes);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Why the last try to restore failed, where another one may help.
pub fn previous_failure(restore: &Restore, report: &Report) -> Option<String> {
    let preparing = report.preparing.as_ref()?;
    let failure = preparing.failure.as_ref().filter(|failure| failure.retriable)?;
    (preparing.restore_uid == restore.uid).then(|| format!("{}: {}", failure.reason, failure.message))
}

/// What a report means for a restore. `Prepared` is only the directory of this very restore and backup; a volume that
/// may not be restored onto is `Unusable`, one that cannot be read `Unknown`.
fn classify_report<'a>(restore: &Restore, pod: &'a Pod, report: &'a Report) -> MemberProgress<'a> {
    let detail = || report.detail.clone();
    match &report.verdict {
        Verdict::Prepared {
            restore_uid,
            object_sha256,
            cluster_id,
            member_id,
        } if *restore_uid == restore.uid && *object_sha256 == restore.object_sha256 => {
            let ids = cluster_id.as_deref().zip(member_id.as_deref());
            match ids.and_then(|(cluster, member)| Some((cluster.parse().ok()?, member.parse().ok()?))) {
                Some((cluster, member)) => MemberProgress::Prepared {
                    pod,
                    report,
                    cluster,
                    member,
                },
                None => MemberProgress::Failed(MemberProblem::RestoreFailed {
                    failure: format!("it does not name the restored cluster: {}", detail()),
                }),
            }
        }
        Verdict::Empty | Verdict::Unborn | Verdict::Prepared { .. } => {
            classify_preparing(restore, pod, report)
        }
        Verdict::OtherIncarnation { found } if *found < restore.incarnation => {
            classify_preparing(restore, pod, report)
        }
        Verdict::Unreadable => MemberProgress::Unknown(MemberProblem::VolumeUnreadable {
            detail: detail(),
            consent: VolumeConsent::None,
        }),
        verdict => MemberProgress::Unusable(MemberProblem::VolumeNotRestorable {
            detail: detail(),
            is_foreign: *verdict == Verdict::Foreign,
        }),
    }
}

/// `Ready` if it has not tried to restore or may try again, `Preparing` while it does, `Failed` after a permanent
/// failure.
fn classify_preparing<'a>(restore: &Restore, pod: &'a Pod, report: &'a Report) -> MemberProgress<'a> {
    let preparing_this = report
        .preparing
        .as_ref()
        .filter(|preparing| preparing.restore_uid == restore.uid);
    match preparing_this.map(|preparing| &preparing.failure) {
        None => MemberProgress::Ready(pod, report),
        Some(None) => MemberProgress::Preparing(MemberProblem::Restoring),
        Some(Some(failure)) if failure.retriable => MemberProgress::Ready(pod, report),
        Some(Some(failure)) => MemberProgress::Failed(MemberProblem::RestoreFailed {
            failure: format!("{}: {}", failure.reason, failure.message),
        }),
    }
}

/// How far each member of a restore is, for `status` alone: nothing is decided by it.
pub fn member_restore_statuses(observed: &ObservedCluster, restore: &Restore) -> Vec<MemberRestoreStatus> {
    let view = ClusterView::new(observed);
    let describe = |ordinal: Ordinal| {
        let progress = assess_member(&view, restore, ordinal);
        let (phase, message) = match &progress {
            _ if restore.phase.is_over() => ("Done", None),
            _ if observed.member(ordinal).status().is_some() && restore.phase != Phase::Stopping => {
                ("Running", None)
            }
            MemberProgress::Prepared { .. } => ("Prepared", None),
            MemberProgress::Ready(_, report) => ("Fetched", previous_failure(restore, report)),
            MemberProgress::Fetching(problem) => (FETCHING, Some(problem.to_string())),
            MemberProgress::Preparing(problem) => ("Preparing", Some(problem.to_string())),
            MemberProgress::Failed(problem) | MemberProgress::Unusable(problem) => {
                ("Failed", Some(problem.to_string()))
            }
            MemberProgress::Unknown(problem) => ("Waiting", Some(problem.to_string())),
        };
        let fetch = observed
            .member(ordinal)
            .pod
            .as_ref()
            .and_then(|pod| pod.fetch.as_ref());
        let arrived = fetch.filter(|_| phase == FETCHING).and_then(rounded_progress);
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        MemberRestoreStatus {
            name: observed.name(ordinal),
            phase: Some(phase.to_owned()),
            message: message.map(|text| etcd_operator_api::refusal::bounded(&text, 500)),
            bytes: arrived.map(|(bytes, _)| number(bytes)),
            total: arrived.map(|(_, total)| number(total)),
            ..MemberRestoreStatus::default()
        }
    };
    Ordinal::first_n(restore.size.into()).map(describe).collect()
}
