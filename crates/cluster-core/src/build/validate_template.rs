//! Whether a spec can be built at all, tried out before anything is made of it.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_etcd_types::version::{Minor, Version};

use super::{BuildInputs, FetchContainer, RestartRequests, StateAnnotations, template::template};
use crate::desired::{self, Desired};

/// Why the pod template of this spec cannot be built in this version of etcd; empty if it can. The other inputs are
/// placeholders: none of them leads to a refusal.
pub fn validate_template(desired: &Desired, version: &Version) -> Vec<Refusal> {
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

/// What an `EtcdCluster` asks for, if its pods can be built in the version of the spec, or in another minor version
/// that the cluster still runs. Otherwise everything that is wrong with it.
pub fn desired(cluster: &EtcdCluster) -> Result<Desired, Vec<Refusal>> {
    let desired = desired::parse(cluster)?;
    let recorded = desired::recorded_version(cluster);
    let target = desired.version(recorded.as_ref());
    // Where a cluster runs another minor version, what one of the two lacks keeps it from a rollout, and from nothing else.
    let has_formed = cluster
        .status
        .as_ref()
        .is_some_and(|status| status.cluster_id.is_some());
    let running = recorded.filter(|running| has_formed && Minor::of(running) != Minor::of(&target));
    let refused = validate_template(&desired, &target);
    let is_running_valid = || running.is_some_and(|running| validate_template(&desired, &running).is_empty());
    if refused.is_empty() || is_running_valid() {
        Ok(desired)
    } else {
        Err(refused)
    }
}

/// What it takes to observe the members of a cluster whose spec is refused. It is paused, so that nothing is changed.
/// `None` if the cluster has not formed, or if what is refused is needed to reach the members.
pub fn to_observe_only(cluster: &EtcdCluster) -> Option<Desired> {
    desired(&desired::without_refused_fields(cluster)?).ok()
}
