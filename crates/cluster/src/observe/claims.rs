//! Looking at volume claims themselves where the copies may not do: a claim that somebody made without the labels by which
//! they are watched is in none of them, and what is noted as a member's own volume must not be what a copy shows late.

use std::collections::BTreeMap;

use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::observed_state::{ObservedMember, Ordinal, kube_objects};
use etcd_operator_cluster_core::persisted_state::{MemberRecord, PersistedState};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::reconcile::Deps;

/// Reads a claim from the API server if the informer's copies lack it although a pod is there, or if a member runs on
/// another volume than recorded. An unchanged cluster costs no request.
pub async fn reread_uncertain(
    desired: &Desired,
    key: &ObjectKey,
    members: &mut BTreeMap<Ordinal, ObservedMember>,
    persisted: &PersistedState,
    deps: &Deps,
) -> Result<(), Error> {
    for (ordinal, member) in members {
        if is_needed(member, persisted.members.get(ordinal)) {
            let claim = key.beside(&ordinal.claim(&desired.name));
            let now = deps.applier.read::<PersistentVolumeClaim>(&claim).await?;
            member.claim = now.as_ref().and_then(kube_objects::read_claim);
        }
    }
    Ok(())
}

/// Whether a pod is there and its claim is in no copy, or a member runs with another ID or volume than recorded.
fn is_needed(member: &ObservedMember, record: Option<&MemberRecord>) -> bool {
    let Some(claim) = &member.claim else {
        return member.pod.is_some();
    };
    let runs_as = member.status().map(|status| status.position.member);
    runs_as.is_some_and(|id| !record.is_some_and(|record| record.id == id && record.is_same_volume(claim)))
}
