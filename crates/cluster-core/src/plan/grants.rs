//! Permits: made from what a waiting process says and from nothing else, each for one process and its present nonce.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{self, Mode, Permit, Report, RestoreTerms};
use etcd_operator_etcd_types::id::{ClusterId, MemberId};

use super::step::PodRef;
use crate::observed_state::{ObservedCluster, Ordinal, Pod};
use crate::pending_operation::Grant;

/// Names the one process that a permit is for: its pod, the process in it, and that process's present nonce.
pub fn make_grant(pod: &Pod, report: &Report) -> Grant {
    Grant {
        pod: pod.uid.clone(),
        process: report.process.clone(),
        nonce: report.nonce.clone(),
    }
}

/// What a permit says beside to whom it is given.
#[derive(Clone, Debug)]
pub struct PermitTerms {
    /// What may be done.
    pub mode: Mode,
    /// The incarnation the disk will have.
    pub incarnation: i64,
    /// etcd's ID of the cluster, once known.
    pub cluster: Option<ClusterId>,
    /// etcd's ID of the member, once known.
    pub member: Option<MemberId>,
    /// The members to start with.
    pub initial_cluster: String,
    /// What else a restore needs.
    pub restore: Option<RestoreTerms>,
}

/// The permit to write to this pod. `None` if the pod has it already, or is not the pod of the grant. If the process
/// does not take it for a while, the same permit is written again.
pub fn make_permit(
    observed: &ObservedCluster,
    ordinal: Ordinal,
    pod: &Pod,
    grant: &Grant,
    terms: PermitTerms,
) -> Option<(PodRef, Permit)> {
    let is_delivered = pod.permit.as_ref().is_some_and(|permit| {
        permit.process == grant.process && permit.nonce == grant.nonce && permit.mode == terms.mode
    });
    let uid = pod.uid.clone();
    if is_delivered
        && pod
            .permit_delivery
            .is_some_and(|permit_delivery| permit_delivery.needs_redelivery(observed.now))
    {
        return Some((PodRef { ordinal, uid }, pod.permit.clone()?));
    }
    if is_delivered || pod.uid != grant.pod {
        return None;
    }
    let needs_token = matches!(terms.mode, Mode::Bootstrap | Mode::Join | Mode::Prepare);
    let permit = Permit {
        version: contract::VERSION,
        pod_uid: grant.pod.clone(),
        process: grant.process.clone(),
        nonce: grant.nonce.clone(),
        mode: terms.mode,
        incarnation: terms.incarnation,
        cluster_uid: observed.uid.clone(),
        cluster_id: terms.cluster.map(|id| id.to_string()),
        member_id: terms.member.map(|id| id.to_string()),
        token: if needs_token {
            cluster_token(observed, terms.incarnation)
        } else {
            String::new()
        },
        initial_cluster: terms.initial_cluster,
        restore: terms.restore,
    };
    Some((PodRef { ordinal, uid }, permit))
}

/// The members to start with, as etcd's flag takes them.
pub fn initial_cluster(observed: &ObservedCluster, ordinals: impl Iterator<Item = Ordinal>) -> String {
    let by_name: BTreeMap<_, _> = ordinals
        .map(|ordinal| (observed.name(ordinal), observed.peer_url(ordinal)))
        .collect();
    let members: Vec<_> = by_name
        .into_iter()
        .map(|(name, url)| format!("{name}={url}"))
        .collect();
    members.join(",")
}

/// The value of etcd's `--initial-cluster-token`, unique to the UID of the EtcdCluster and its incarnation: etcd's IDs
/// follow from it, so that members of another one are rejected.
fn cluster_token(observed: &ObservedCluster, incarnation: i64) -> String {
    let ObservedCluster {
        namespace,
        desired,
        uid,
        ..
    } = observed;
    format!("{namespace}/{}/{uid}/{incarnation}", desired.name)
}
