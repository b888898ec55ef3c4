//! A pod of the StatefulSet, as its controller would make it, for a dry run.

use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec},
    core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::labels::Map;

/// The label in which the controller of StatefulSets names the pod.
const LABEL_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the pod's ordinal, since Kubernetes 1.28.
const LABEL_POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The pod of this ordinal. `uid` is that of the StatefulSet, which is its owner: policies refuse pods without a controller.
/// Its deletion does not wait for the pod, as the right to say so is not the operator's.
pub fn pod_of_set(set: &StatefulSet, uid: &str, ordinal: u16) -> Pod {
    let StatefulSetSpec {
        template,
        service_name,
        volume_claim_templates,
        ..
    } = &set.spec;
    let set_name = set.metadata.name.clone().unwrap_or_default();
    let name = format!("{set_name}-{ordinal}");
    let mut metadata = template.metadata.clone().unwrap_or_default();
    metadata.name = Some(name.clone());
    metadata.namespace.clone_from(&set.metadata.namespace);
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "StatefulSet".to_owned(),
        name: set_name,
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    metadata.labels.get_or_insert_default().extend(Map::from([
        (LABEL_POD_NAME.to_owned(), name.clone()),
        (LABEL_POD_INDEX.to_owned(), ordinal.to_string()),
    ]));
    let mut spec = template.spec.clone().unwrap_or_default();
    let claims = volume_claim_templates.iter().flatten();
    let claims = claims.filter_map(|claim| claim.metadata.name.as_ref());
    for claim in claims {
        add_claim(&mut spec, claim, &name);
    }
    spec.hostname = Some(name);
    spec.subdomain.clone_from(service_name);
    Pod {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

/// A claim takes the place of a volume of its name.
fn add_claim(spec: &mut PodSpec, claim: &str, pod: &str) {
    let volumes = spec.volumes.get_or_insert_default();
    volumes.retain(|volume| volume.name != claim);
    volumes.push(Volume {
        name: claim.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: format!("{claim}-{pod}"),
            read_only: None,
        }),
        ..Volume::default()
    });
}
