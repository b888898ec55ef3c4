//! The claims of the members: how the StatefulSet makes them, and what is kept true of them afterwards.

use etcd_operator_api::{cluster::Retention, quantity};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{
    BuildInputs,
    labels::{DATA, Map, cluster_labels, owner},
};
use crate::desired::{Desired, Storage};

/// The claim templates of the StatefulSet; none where data live with the pods.
pub(super) fn templates(desired: &Desired) -> Vec<PersistentVolumeClaim> {
    let Storage::Persistent { claim, labels, .. } = &desired.storage else {
        return Vec::new();
    };
    vec![PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA.to_owned()),
            labels: Some(claim_labels(desired, labels)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec::clone(claim)),
        status: None,
    }]
}

/// What an existing claim of a member is kept to: its labels, its owner, and a size that only grows. `None` where the
/// spec asks for no claims: existing ones then stay as they are.
///
/// It is for an apply on this very claim; a claim that is gone must not be made from it.
pub fn claim(
    desired: &Desired,
    inputs: &BuildInputs,
    stored: &PersistentVolumeClaim,
) -> Option<PersistentVolumeClaim> {
    let Storage::Persistent {
        claim,
        labels,
        retention,
    } = &desired.storage
    else {
        return None;
    };
    let owners = match retention {
        Retention::Retain => None,
        Retention::Delete => Some(vec![owner(&desired.name, &inputs.cluster_uid, false)]),
    };
    let has = stored.spec.as_ref().and_then(requested);
    let size = requested(claim).filter(|wanted| has.is_none_or(|has| is_larger(wanted, has)));
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: stored.metadata.name.clone(),
            namespace: Some(inputs.namespace.clone()),
            labels: Some(claim_labels(desired, labels)),
            owner_references: owners,
            ..ObjectMeta::default()
        },
        spec: size.or(has).map(|size| PersistentVolumeClaimSpec {
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), size.clone())].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

fn claim_labels(desired: &Desired, labels: &Map) -> Map {
    let mut all = cluster_labels(&desired.name);
    all.extend(labels.clone());
    all
}

fn requested(claim: &PersistentVolumeClaimSpec) -> Option<&Quantity> {
    claim.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// Whether the wanted size is larger; `false` if either cannot be parsed.
fn is_larger(wanted: &Quantity, has: &Quantity) -> bool {
    matches!((quantity::millis(wanted), quantity::millis(has)), (Ok(wanted), Ok(has)) if wanted > has)
}
