//! What an `EtcdCluster` asks for, as objects of Kubernetes.
//!
//! Pure: the intent and what is frozen elsewhere come in, typed objects go out; the same input gives the same bytes.
//! Nothing is decided here that depends on how members fare: that comes in as a [`BuildInputs`].

mod address;
mod choose_template;
mod claim;
mod container;
mod disruption;
mod fetch;
mod flags;
mod image;
mod image_check;
mod inputs;
mod labels;
mod patch;
mod pod_of_set;
mod probes;
mod security;
mod service;
mod set;
mod spec_hash;
mod state_annotations;
mod stored;
mod template;
mod validate_template;
mod volumes;

pub use address::Addresses;
pub use choose_template::PendingChange;
pub use claim::claim;
pub use disruption::budget_voters;
pub use fetch::{FETCH, FETCH_CLAIM};
pub use image::{ImageError, NoOperatorImage, OperatorImage, etcd_image};
pub use image_check::image_check_job;
pub use inputs::{BuildInputs, FetchContainer};
pub use labels::{CLUSTER_UID, INCARNATION};
pub use labels::{ETCD, INSTALL, member_labels, member_name, ordinal};
pub use pod_of_set::pod_of_set;
pub use probes::has_single_success_probe;
pub use spec_hash::{ANNOTATION_SPEC_HASH, RestartRequests, spec_hash};
pub use state_annotations::StateAnnotations;
pub(crate) use stored::SNAPSHOT_COUNT;
pub use stored::{StoredTemplates, applied_template, snapshot_count};
pub use validate_template::validate_template;
pub use validate_template::{desired, to_observe_only};

use etcd_operator_api::refusal::Refusal;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::desired::Desired;

/// The objects of a cluster to apply. The claims are not among them: the StatefulSet controller creates them.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// The headless Service by which members find one another.
    pub headless: Service,
    /// The Service for clients.
    pub client: Service,
    /// The StatefulSet of the members.
    pub members: StatefulSet,
    /// What bounds evictions; none means that there must be none.
    pub disruption: Option<PodDisruptionBudget>,
    /// Why the pod template is not the one that is asked for.
    pub pending: Option<PendingChange>,
    /// What a running pod can be given without a restart.
    pub live_metadata: LiveMetadata,
}

/// Labels and annotations that a running pod can be given without a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveMetadata(ObjectMeta);

impl LiveMetadata {
    /// Those for the pod of this name. The operator's own annotations, which tell how the pod was started, are left out.
    pub fn of_pod(&self, name: &str) -> Pod {
        let mut metadata = self.0.clone();
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(etcd_operator_api::names::LABEL_NODE.to_owned(), name.to_owned());
        metadata.name = Some(name.to_owned());
        Pod {
            metadata,
            ..Pod::default()
        }
    }
}

/// The objects of a cluster. Refusals name what of the spec this version of etcd, or a pod, cannot have. While the pod
/// template must not change, the stored one is used instead of one that is refused.
pub fn build(desired: &Desired, inputs: &BuildInputs) -> Result<Objects, Vec<Refusal>> {
    let rendered = desired.with_snapshot_count(inputs.snapshot_count);
    let wanted = match (template::template(&rendered, inputs), &inputs.stored) {
        (Ok(wanted), _) => wanted,
        // What cannot be rolled out does not keep the members that run from being looked after.
        (Err(_), Some(stored)) if !inputs.may_update_template => stored.template(),
        (Err(refused), _) => return Err(refused),
    };
    let live_metadata = LiveMetadata(template::live_metadata(&wanted, &inputs.namespace));
    let (mut template, pending) = choose_template::choose_template(wanted, inputs);
    fetch::apply(&mut template, inputs);
    probes::set_success_threshold(&mut template, inputs.state_annotations.cluster_id.is_some());
    Ok(Objects {
        headless: service::headless(desired, inputs),
        client: service::client(desired, inputs),
        members: set::set(desired, inputs, template),
        disruption: disruption::budget(desired, inputs),
        pending,
        live_metadata,
    })
}
