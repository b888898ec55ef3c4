//! The StatefulSet of the members.

use k8s_openapi::api::{
    apps::v1::{
        StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
        StatefulSetUpdateStrategy,
    },
    core::v1::PodTemplateSpec,
};

use super::{
    claim,
    inputs::{BuildInputs, owned_metadata},
    labels::selector,
    stored,
};
use crate::desired::Desired;

/// The StatefulSet: it creates all pods at once, never restarts one (OnDelete), and never deletes claims. The claim
/// templates stay as stored, because they cannot change.
pub(super) fn set(desired: &Desired, inputs: &BuildInputs, template: PodTemplateSpec) -> StatefulSet {
    let name = &desired.name;
    let mut metadata = owned_metadata(name, inputs, name.to_string());
    let mut annotations = inputs.state_annotations.annotations();
    annotations.extend(stored::template_annotation(&template));
    metadata.annotations = Some(annotations);
    let keep = || Some("Retain".to_owned());
    let claims = inputs.stored.as_ref().and_then(|stored| stored.claims());
    let claims = claims.unwrap_or_else(|| claim::templates(desired));
    StatefulSet {
        metadata,
        spec: StatefulSetSpec {
            replicas: Some(inputs.replicas.into()),
            service_name: Some(name.headless_service()),
            selector: selector(name),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: keep(),
                when_scaled: keep(),
            }),
            volume_claim_templates: (!claims.is_empty()).then_some(claims),
            template,
            ..StatefulSetSpec::default()
        },
        status: None,
    }
}
