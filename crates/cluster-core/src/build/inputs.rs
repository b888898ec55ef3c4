//! What the objects of a cluster carry that is decided, or was decided once, elsewhere.

use std::sync::Arc;

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::RestoreIntent;
use etcd_operator_api::names::ClusterName;
use etcd_operator_etcd_types::version::Version;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::image::OperatorImage;
use super::labels::{cluster_labels, owner};
use super::spec_hash::RestartRequests;
use super::state_annotations::StateAnnotations;
use super::stored::StoredTemplates;

/// What the objects are built from besides the spec: what the plan decides, and what is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildInputs {
    /// The namespace of the cluster.
    pub namespace: String,
    /// The UID of the `EtcdCluster`: owner of the objects, and what members know their disks by.
    pub cluster_uid: String,
    /// What the StatefulSet remembers, should the status be lost; its incarnation is the one members expect.
    pub state_annotations: StateAnnotations,
    /// How many pods there are, which is not always the size that is asked for.
    pub replicas: u8,
    /// Whether the cluster has formed; the client Service selects nothing before.
    pub accepts_clients: bool,
    /// The version of etcd for the pod template. Only an upgrade or a downgrade changes it.
    pub version: Version,
    /// The image of the operator that runs now.
    pub operator_image: OperatorImage,
    /// Where the etcd image is pulled from if the spec does not say.
    pub default_repository: DefaultRepository,
    /// How many voters the budget counts.
    pub budget_voters: usize,
    /// The StatefulSet as it is stored, if there is one.
    pub stored: Option<Arc<StoredTemplates>>,
    /// Whether the gate for another pod template has passed: with it the next pod that is re-created, for whatever
    /// reason, is a changed one.
    pub may_update_template: bool,
    /// After how many entries of the log members take a snapshot of it, if that is not what the spec says.
    pub snapshot_count: Option<u64>,
    /// Requests to restart the members, including those that the stored template was made for.
    pub restart: RestartRequests,
    /// What pods bring onto their volumes before they start.
    pub fetch_container: FetchContainer,
    /// Whether a restore stands: unless the template may be updated, nothing else of the pods changes then but what brings
    /// the operator's program.
    pub is_restoring: bool,
}

/// Whether pods get a container that fetches the backup of a restore before etcd starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FetchContainer {
    /// Nothing.
    #[default]
    Absent,
    /// What the template says already.
    Unchanged,
    /// The object of a restore.
    Required(Box<RestoreIntent>),
}

/// Metadata of an object that the `EtcdCluster` controls, and with which it is deleted.
pub(super) fn owned_metadata(cluster: &ClusterName, inputs: &BuildInputs, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(inputs.namespace.clone()),
        labels: Some(cluster_labels(cluster)),
        owner_references: Some(vec![owner(cluster, &inputs.cluster_uid, true)]),
        ..ObjectMeta::default()
    }
}
