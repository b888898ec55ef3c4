//! Whether a spec can be built at all, tried out before anything is made of it.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::{cluster::DefaultRepository, refusal::Refusal};
use etcd_operator_etcd::version::Version;

use super::{BuildInputs, FetchContainer, RestartRequests, StateAnnotations, template::template};
use crate::desired::Desired;

/// What stands against building this, in this version of etcd: only a template can be refused. What the frame says besides
/// has no say in it.
pub(crate) fn validate_template(desired: &Desired, version: &Version) -> Vec<Refusal> {
    let inputs = BuildInputs {
        namespace: "trial".to_owned(),
        cluster_uid: "trial".to_owned(),
        state_annotations: StateAnnotations {
            incarnation: 1,
            cluster_id: None,
            voters: BTreeSet::new(),
            members: BTreeMap::new(),
            restore: None,
            restored_revision: 0,
            earlier_restores: Vec::new(),
            served_spec_hashes: Vec::new(),
        },
        replicas: desired.size.get(),
        accepts_clients: true,
        version: version.clone(),
        operator_image: "trial".parse().expect("a word is an image"),
        default_repository: DefaultRepository::default(),
        budget_voters: 0,
        stored: None,
        may_update_template: true,
        snapshot_count: None,
        restart: RestartRequests::default(),
        fetch_container: FetchContainer::Absent,
        is_restoring: false,
    };
    template(desired, &inputs).err().unwrap_or_default()
}
