//! Volumes that were kept: what each says of itself, and whether a person consents to their use.

use std::collections::BTreeSet;

use etcd_operator_api::contract::{Report, Verdict};
use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};
use etcd_operator_api::refusal;
use etcd_operator_etcd_types::id::{ClusterId, MemberId};
use etcd_operator_etcd_types::url::PeerUrl;

use super::cluster_view::ClusterView;
use crate::blocker::{Blocker, KeptVolumeFault};
use crate::observed_state::{ObservedCluster, Ordinal, Pod};
use crate::persisted_state::MemberRecord;

/// What a kept volume says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeOrigin {
    /// etcd's ID of the cluster.
    pub cluster: String,
    /// The incarnation of the data.
    pub incarnation: i64,
    /// The members of the cluster.
    pub members: BTreeSet<Ordinal>,
}

/// The report of the process that waits in the pod of an ordinal, whatever incarnation that pod was made for.
pub fn waiting_report<'a>(view: &ClusterView<'a>, ordinal: Ordinal) -> Option<(&'a Pod, &'a Report)> {
    let incarnation = view.observed.members.get(&ordinal)?.pod.as_ref()?.incarnation;
    view.report(ordinal, incarnation)
}

/// Reads of which cluster and incarnation a kept volume is. `Err` if it must not be adopted: it is not of an earlier
/// cluster, is a copy, has no write-ahead log, or is of another member or other addresses.
pub fn read_origin(
    view: &ClusterView<'_>,
    ordinal: Ordinal,
    report: &Report,
) -> Result<VolumeOrigin, KeptVolumeFault> {
    let observed = view.observed;
    if report.verdict != Verdict::Foreign {
        return Err(KeptVolumeFault::NotKept(report.verdict.clone()));
    }
    let identity = report.identity.as_ref().ok_or(KeptVolumeFault::NoIdentity)?;
    if identity.member != observed.name(ordinal) {
        return Err(KeptVolumeFault::OfMember(identity.member.clone()));
    }
    if let Some(kind) = identity.fingerprint.difference(&report.fingerprint) {
        return Err(KeptVolumeFault::Copy {
            kind: kind.to_string(),
        });
    }
    let cluster = report.wal_cluster_id.clone().ok_or(KeptVolumeFault::NoWal)?;
    let listed = report.members.iter().map(|member| {
        let urls: Result<Vec<PeerUrl>, _> = member.peer_urls.iter().map(|url| url.parse()).collect();
        let urls = urls.map_err(|error| KeptVolumeFault::InvalidUrl(error.to_string()))?;
        observed
            .ordinal_at(&urls)
            .ok_or_else(|| KeptVolumeFault::ForeignAddress(member.peer_urls.clone()))
    });
    let members: BTreeSet<_> = listed.collect::<Result<_, KeptVolumeFault>>()?;
    if !members.contains(&ordinal) {
        return Err(KeptVolumeFault::NotAMember);
    }
    Ok(VolumeOrigin {
        cluster,
        incarnation: identity.incarnation,
        members,
    })
}

/// Whether a member of a formed cluster waits on the volume that it had under an earlier EtcdCluster and that the user
/// adopts: it came late, or missed its permit. False if the member was since seen with more: then the volume was
/// reverted.
pub fn is_kept_volume(
    view: &ClusterView<'_>,
    cluster: ClusterId,
    ordinal: Ordinal,
    member: MemberId,
) -> bool {
    find_kept_volume(view, cluster, ordinal, member).is_some()
}

/// The pod, report and origin of a kept volume on which this member waits. `None` unless the user adopts it, its
/// write-ahead log names this cluster and member, and its incarnation is the present one.
pub fn find_kept_volume<'a>(
    view: &ClusterView<'a>,
    cluster: ClusterId,
    ordinal: Ordinal,
    member: MemberId,
) -> Option<(&'a Pod, &'a Report, VolumeOrigin)> {
    let observed = view.observed;
    let (pod, report) = view.report(ordinal, observed.persisted.incarnation)?;
    let is = |id: &Option<String>, of: &str| id.as_deref() == Some(of);
    let is_behind_record = |before: &MemberRecord| before.is_behind_record(pod);
    let is_its_own = view.is_adoption_requested(ordinal)
        && is(&report.wal_cluster_id, &cluster.to_string())
        && is(&report.wal_member_id, &member.to_string())
        && !observed
            .persisted
            .members
            .get(&ordinal)
            .is_some_and(is_behind_record);
    let origin = is_its_own.then(|| read_origin(view, ordinal, report).ok())??;
    (origin.incarnation == observed.persisted.incarnation).then_some((pod, report, origin))
}

/// How long a UID is.
const UID: usize = 36;

/// A blocker for each entry of the annotations `adopt` and `discard` that is the UID of no PVC, such as a PVC's name. A
/// UID under `discard` is not reported: its PVC may have been deleted since.
pub fn unknown_consents(observed: &ObservedCluster) -> Vec<Blocker> {
    let claims = observed
        .members
        .values()
        .filter_map(|observed_member| observed_member.claim.as_ref());
    let uids: BTreeSet<&str> = claims.map(|claim| claim.uid.as_str()).collect();
    let given = [
        (ANNOTATION_ADOPT, &observed.adopt),
        (ANNOTATION_DISCARD, &observed.discard),
    ];
    let unknown = given.into_iter().flat_map(|(annotation, named)| {
        // The volumes that were given up before are gone, and nobody takes annotations away.
        let is_past_consent = move |uid: &str| annotation == ANNOTATION_DISCARD && uid.len() == UID;
        let unknown = named.iter().filter(|uid| !uids.contains(uid.as_str()));
        let unknown = unknown.filter(move |uid| !is_past_consent(uid));
        unknown.map(move |uid| (annotation, uid))
    });
    unknown
        .map(|(annotation, uid)| Blocker::UnknownVolume {
            annotation,
            uid: refusal::bounded(uid, 64),
        })
        .collect()
}
