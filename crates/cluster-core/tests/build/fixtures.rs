//! Specs and frames for the tests, and where in the built objects a field stands.

use etcd_operator_api::{EtcdCluster, cluster::DefaultRepository};
use etcd_operator_cluster_core::{
    build::{BuildInputs, FetchContainer, Objects, StateAnnotations, build, desired},
    desired::Desired,
    persisted_state::MemberRecord,
};
use serde_json::{Value, json};

/// The cluster `orders` with this spec.
pub fn cluster(spec: &Value) -> EtcdCluster {
    let object = json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "orders", "uid": "cluster-uid"}, "spec": spec,
    });
    serde_json::from_value(object).expect("a cluster")
}

/// What that cluster asks for.
pub fn asks(spec: &Value) -> Desired {
    desired(&cluster(spec)).unwrap_or_else(|refused| panic!("{spec}: {refused:?}"))
}

fn voter(id: &str, claim: Option<&str>, volume: Option<&str>) -> MemberRecord {
    MemberRecord {
        id: id.parse().expect("an ID"),
        is_voter: true,
        claim: claim.map(str::to_owned),
        volume: volume.map(str::to_owned),
        last_index: None,
    }
}

/// A formed cluster of this size in namespace `shop`.
pub fn inputs(desired: &Desired) -> BuildInputs {
    BuildInputs {
        namespace: "shop".to_owned(),
        cluster_uid: "cluster-uid".to_owned(),
        state_annotations: StateAnnotations {
            incarnation: 7,
            cluster_id: "cdf818194e3a8c32".parse().ok(),
            voters: ["orders-0".to_owned(), "orders-2".to_owned()].into(),
            members: [
                (
                    "orders-0".to_owned(),
                    voter("aa", Some("claim-0"), Some("pvc-1.of-0")),
                ),
                ("orders-2".to_owned(), voter("bb", Some("claim-2"), None)),
            ]
            .into(),
            restore: None,
            restored_revision: 0,
            earlier_restores: Vec::new(),
            served_spec_hashes: Vec::new(),
        },
        replicas: desired.size.get(),
        accepts_clients: true,
        version: desired.version(None),
        default_repository: DefaultRepository::default(),
        operator_image: "registry/operator:9".parse().expect("an image"),
        budget_voters: desired.size.get().into(),
        stored: None,
        may_update_template: false,
        snapshot_count: None,
        restart: etcd_operator_cluster_core::build::RestartRequests::default(),
        fetch_container: FetchContainer::Absent,
        is_restoring: false,
    }
}

/// The objects of such a cluster.
pub fn objects(spec: &Value) -> Objects {
    let desired = asks(spec);
    build(&desired, &inputs(&desired)).unwrap_or_else(|refused| panic!("{spec}: {refused:?}"))
}

/// The pod template of such a cluster.
pub fn template(spec: &Value) -> Value {
    serde_json::to_value(&objects(spec).members.spec.template).expect("JSON")
}

/// The container of this name, of either kind.
pub fn container<'a>(template: &'a Value, name: &str) -> &'a Value {
    let spec = &template["spec"];
    let all = [&spec["containers"], &spec["initContainers"]];
    let mut all = all.into_iter().filter_map(Value::as_array).flatten();
    all.find(|container| container["name"] == name)
        .unwrap_or_else(|| panic!("no container {name} in {template}"))
}

/// The words with which etcd is started.
pub fn command(template: &Value) -> Vec<String> {
    let words = container(template, "etcd")["command"].as_array().expect("a list");
    let text = |word: &Value| word.as_str().expect("text").to_owned();
    words.iter().map(text).collect()
}
