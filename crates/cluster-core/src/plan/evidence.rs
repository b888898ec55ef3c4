//! What shows that a member's data are gone or wrong, or that its node is. Nothing else is a reason to replace one: a
//! container that fails for a flag, a secret, an image or a full disk would fail again on a new disk. A program or a user
//! that cannot read a volume looks like a damaged one, so both are told apart by whether a voter ever served with it.

use etcd_operator_api::contract::{Report, Verdict, kind};
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::{Known, Member};
use jiff::Timestamp;

use super::cluster_view::ClusterView;
use super::kept_volume::is_kept_volume;
use super::{corrupt, replace_request};
use crate::blocker::{Blocker, BlockerReason, MemberProblem, VolumeConsent, describe_verdict};
use crate::observed_state::{Container, ObservedMember, Ordinal, Pod, QueryResult};
use crate::pending_operation::Cause;

/// What is known of a member's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing against it.
    None,
    /// It must be replaced.
    Replace(Cause),
    /// Its own volume is attached elsewhere now: it may go on.
    VolumeMoved,
    /// It waits on the volume that was its own under an EtcdCluster of before, and a person wants that to be taken over.
    VolumeKept,
    /// It waits, and only the user can help.
    NeedsUser(Blocker),
}

/// Whether a member must be replaced, can go on, or waits for the user, by its report and its status. What is unknown
/// never counts against a member. Damage to the data comes before the user's request to replace it.
pub fn evidence(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal, member: &Member) -> Evidence {
    match data_evidence(view, known, ordinal, member) {
        Evidence::Replace(cause) => Evidence::Replace(cause),
        _ if replace_request::is_replace_requested(view, member.id) => Evidence::Replace(Cause::Requested),
        other => other,
    }
}

/// What is known of a member's data by its report and status, without the user's request to replace it. Nothing counts
/// against a member that may start by a permit at any moment.
fn data_evidence(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal, member: &Member) -> Evidence {
    let observed = view.observed;
    let observed_member = observed.member(ordinal);
    if view.may_start(ordinal) {
        return Evidence::None;
    }
    let needs_user = |problem| Evidence::NeedsUser(Blocker::member(observed.name(ordinal), problem));
    // Nothing can come of a replacement either: its pod would have the same image.
    if let Some(problem) = view.refused_image(ordinal) {
        return needs_user(problem);
    }
    if let Some((pod, report)) = view.report(ordinal, observed.persisted.incarnation) {
        let detail = || report.detail.clone();
        let found = match &report.verdict {
            Verdict::Empty | Verdict::Unborn => Evidence::Replace(Cause::DiskEmpty),
            Verdict::Damaged => Evidence::Replace(Cause::DiskDamaged),
            Verdict::OtherIncarnation { found } if *found < observed.persisted.incarnation => {
                Evidence::Replace(Cause::OtherIncarnation)
            }
            Verdict::OtherIncarnation { found } => needs_user(MemberProblem::NewerIncarnation {
                found: *found,
                expected: observed.persisted.incarnation,
            }),
            Verdict::Moved
                if is_recorded_volume(view, ordinal, member)
                    && !has_reverted_volume(view, ordinal, member)
                    && (!is_copy(report) || is_copy_trusted(view, known, ordinal, member)) =>
            {
                Evidence::VolumeMoved
            }
            Verdict::Moved => Evidence::Replace(Cause::OtherVolume),
            Verdict::Foreign | Verdict::Unreadable
                if view.is_discard_requested(ordinal) && !is_reused_by_consent(view, ordinal, member) =>
            {
                Evidence::Replace(Cause::Discarded)
            }
            Verdict::Foreign if is_kept_volume(view, known.cluster, ordinal, member.id) => {
                Evidence::VolumeKept
            }
            // A quorum was taken over by consent, and this one was to be.
            Verdict::Foreign if view.is_adoption_requested(ordinal) => Evidence::Replace(Cause::LeftBehind),
            Verdict::Foreign => needs_user(MemberProblem::ForeignData {
                detail: detail(),
                owner: owner_in_cluster(view, ordinal, report),
            }),
            Verdict::Unreadable => {
                let consent = if is_reused_by_consent(view, ordinal, member) {
                    VolumeConsent::Replace(member.id)
                } else {
                    VolumeConsent::Discard(None)
                };
                needs_user(MemberProblem::VolumeUnreadable {
                    detail: detail(),
                    consent,
                })
            }
            Verdict::Whole => Evidence::None,
            Verdict::Prepared { .. } => needs_user(MemberProblem::HoldsPreparedData),
        };
        let starts = matches!(found, Evidence::VolumeMoved | Evidence::VolumeKept);
        if can_be_misread(&report.verdict) && !starts && !view.has_served_template(pod) {
            let finding = describe_verdict(&report.detail, &report.verdict);
            return needs_user(template_not_served(pod, finding, Some(member.id)));
        }
        return found;
    }
    if has_other_volume(view, ordinal, member) || has_reverted_volume(view, ordinal, member) {
        return Evidence::Replace(Cause::OtherVolume);
    }
    if corrupt::has_corrupt_alarm(view, member.id) {
        return match corrupt::confirm_difference(view, known, member) {
            Ok(()) => Evidence::Replace(Cause::Corrupt),
            Err(finding) => Evidence::NeedsUser(Blocker::CorruptUnconfirmed {
                member: view.display_name(member),
                finding,
            }),
        };
    }
    let Some(pod) = &observed_member.pod else {
        return Evidence::None;
    };
    if let Some(line) = damage_signature(pod).filter(|_| observed_member.status().is_none()) {
        if !view.has_served_template(pod) {
            return needs_user(template_not_served(pod, line.to_owned(), Some(member.id)));
        }
        return Evidence::Replace(Cause::DiskDamaged);
    }
    if is_node_lost(view, pod) && is_silent(observed_member) {
        return Evidence::Replace(Cause::NodeLost);
    }
    Evidence::None
}

/// The pod and the report of the process that waits on a volume on which a new member can start. `None` if the volume
/// holds data, or no process waits there for the current incarnation.
pub fn pod_awaiting_join<'a>(view: &ClusterView<'a>, ordinal: Ordinal) -> Option<(&'a Pod, &'a Report)> {
    let (pod, report) = view.report(ordinal, view.observed.persisted.incarnation)?;
    matches!(report.verdict, Verdict::Empty | Verdict::Unborn).then_some((pod, report))
}

/// Whether a guard that runs as another user or from another image can come to this verdict about a volume that is whole.
pub fn can_be_misread(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Damaged | Verdict::Unreadable | Verdict::Moved | Verdict::Foreign
    )
}

/// The log line with which etcd ended, if it says that the data are damaged.
pub fn damage_signature(pod: &Pod) -> Option<&str> {
    match &pod.container {
        Container::Ended {
            is_data_damaged: true,
            line,
            ..
        } => Some(line),
        _ => None,
    }
}

/// The problem where a finding on a volume may be due to a pod template with which no voter ever served: the member is
/// not replaced for it. The user can have the member `replaceable` replaced.
pub fn template_not_served(pod: &Pod, finding: String, replaceable: Option<MemberId>) -> MemberProblem {
    MemberProblem::TemplateNotServed {
        finding,
        spec_hash: pod.spec_hash.clone(),
        replaceable,
    }
}

/// Whether a blocker waits for the user to correct the pod template.
pub fn needs_other_template(blocker: &Blocker) -> bool {
    matches!(
        blocker.reason(),
        BlockerReason::TemplateNotServed | BlockerReason::ImageVersionDiffers
    )
}

/// Whether a voter has ever served with the template of an ordinal's pod. Without a pod: whether any template has.
pub fn has_served_template_at(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let pod = view.observed.member(ordinal).pod.as_ref();
    pod.map_or_else(
        || !view.observed.persisted.served_spec_hashes.is_empty(),
        |pod| view.has_served_template(pod),
    )
}

/// Whether what lies on a volume was copied there (`is_copy`), and the user does not adopt it. No member may resume on
/// it.
pub fn is_copied_without_consent(view: &ClusterView<'_>, ordinal: Ordinal, report: &Report) -> bool {
    is_copy(report) && !view.is_adoption_requested(ordinal)
}

/// The member of this cluster whose data lie on the volume of another one. `None` for data of another cluster, or without
/// an identity.
fn owner_in_cluster(view: &ClusterView<'_>, ordinal: Ordinal, report: &Report) -> Option<String> {
    let identity = report.identity.as_ref()?;
    let is_other =
        identity.cluster_uid == view.observed.uid && identity.member != view.observed.name(ordinal);
    is_other.then(|| identity.member.clone())
}

/// Whether a copied volume counts as the member's own: the user adopts it, and the others have no quorum without it. If
/// they have, it is not trusted: annotations stay, and the next copy may be an old one.
fn is_copy_trusted(view: &ClusterView<'_>, known: &Known, ordinal: Ordinal, member: &Member) -> bool {
    view.is_adoption_requested(ordinal) && !view.keeps_quorum_without(known, member.id)
}

/// Whether the data were copied to this volume file by file: the inode or the birth time of the directory is not the
/// one in the member's identity. Where these are unknown it is no copy, and another device alone makes none.
fn is_copy(report: &Report) -> bool {
    let before = report.identity.as_ref().map(|identity| &identity.fingerprint.0);
    let is_copy = |of: &str| {
        let (before, now) = (
            before.and_then(|before| before.get(of)),
            report.fingerprint.0.get(of),
        );
        before.zip(now).is_some_and(|(before, now)| before != now)
    };
    is_copy(kind::INODE) || is_copy(kind::BIRTH)
}

/// Whether the ordinal's PVC (by UID) and its bound volume are those recorded for this member ID. False without a record. Neither
/// the data nor where the volume is attached is compared.
fn is_recorded_volume(view: &ClusterView<'_>, ordinal: Ordinal, member: &Member) -> bool {
    let observed = view.observed;
    let (Some(before), Some(claim)) = (
        observed.persisted.members.get(&ordinal),
        &observed.member(ordinal).claim,
    ) else {
        return false;
    };
    before.id == member.id && before.is_same_volume(claim)
}

/// Whether the PVC is older than the EtcdCluster and recorded as the member's own: the user allowed its use with the
/// annotation `discard`. That annotation stays, and must not count as consent to give up the member's data.
fn is_reused_by_consent(view: &ClusterView<'_>, ordinal: Ordinal, member: &Member) -> bool {
    let claim = view.observed.member(ordinal).claim.as_ref();
    let is_older = claim
        .and_then(|claim| claim.created)
        .is_some_and(|created| created < view.observed.created);
    is_older && is_recorded_volume(view, ordinal, member)
}

/// Whether a member runs on another PVC or volume than the recorded one, which may be an old copy. False while it does
/// not answer, without a record of this member ID, and while the PVC is being deleted.
pub fn has_other_volume(view: &ClusterView<'_>, ordinal: Ordinal, member: &Member) -> bool {
    let observed = view.observed;
    let observed_member = observed.member(ordinal);
    let runs = observed_member
        .status()
        .is_some_and(|status| status.position.member == member.id);
    let (Some(before), Some(claim)) = (observed.persisted.members.get(&ordinal), &observed_member.claim)
    else {
        return false;
    };
    runs && before.id == member.id && claim.deleting.is_none() && before.is_other_volume(claim)
}

/// Whether a member is on its own volume in an earlier state: it looks intact, and would vote without entries it
/// acknowledged. False if the record of the ordinal is of another member ID.
pub fn has_reverted_volume(view: &ClusterView<'_>, ordinal: Ordinal, member: &Member) -> bool {
    let before = view.observed.persisted.members.get(&ordinal);
    before.is_some_and(|before| before.id == member.id) && view.has_reverted_volume(ordinal)
}

/// Whether the node of a pod has been lost for `recovery.replaceAfter`: the member is replaced, and the pod is deleted
/// without waiting for its kubelet.
pub fn is_node_lost(view: &ClusterView<'_>, pod: &Pod) -> bool {
    pod.node_lost_since.is_some_and(|since| is_overdue(view, since))
}

/// Whether nothing shows that etcd runs at a member's ordinal: it does not answer, and where reports are read nothing
/// but a guard responds. A ready pod was not asked for a report.
pub fn is_silent(observed_member: &ObservedMember) -> bool {
    let is_ready = observed_member.pod.as_ref().is_some_and(|pod| pod.ready);
    let responds = matches!(observed_member.report, QueryResult::OtherResponder) && !is_ready;
    observed_member.status().is_none() && !responds
}

/// Whether no node has taken the pod of an ordinal for `recovery.replaceAfter`; false without a pod.
pub fn is_overdue_unschedulable(view: &ClusterView<'_>, ordinal: Ordinal) -> bool {
    let pod = view.observed.member(ordinal).pod.as_ref();
    pod.and_then(|pod| pod.unscheduled_since)
        .is_some_and(|since| is_overdue(view, since))
}

/// Whether `recovery.replaceAfter` has passed since this time.
fn is_overdue(view: &ClusterView<'_>, since: Timestamp) -> bool {
    let observed = view.observed;
    let gone = observed.now.duration_since(since);
    gone >= observed
        .desired
        .replace_after
        .try_into()
        .unwrap_or(jiff::SignedDuration::MAX)
}
