//! Names and labels of a cluster's objects, of the containers in its pods and of flags in their commands, and who owns them.

use std::collections::BTreeMap;

use etcd_operator_api::{
    GROUP, VERSION,
    names::{APP_VALUE, ClusterName, LABEL_APP, LABEL_CLUSTER, LABEL_MANAGED_BY, LABEL_NODE, MANAGED_BY},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};

/// The name of the claims in the StatefulSet; with a pod's name behind it that of a claim.
pub(super) const DATA: &str = "data";

/// The container that runs etcd.
pub const ETCD: &str = "etcd";
/// The container that brings the operator's program into the pod.
pub const INSTALL: &str = "install";

/// What the program is told which incarnation to expect by.
pub const INCARNATION: &str = "--incarnation=";
/// The flag with the minor version of etcd that an image must hold.
pub(super) const ETCD_MINOR: &str = "--etcd-minor=";

/// The word of a member's command that says whose it is.
pub const CLUSTER_UID: &str = "--cluster-uid=";

pub(super) type Map = BTreeMap<String, String>;

/// The name of a member, which is that of its pod.
pub fn member_name(cluster: &ClusterName, ordinal: u8) -> String {
    format!("{cluster}-{ordinal}")
}

/// Which ordinal a pod of the cluster has; none for a pod of another name.
pub fn ordinal(cluster: &ClusterName, pod: &str) -> Option<u8> {
    let number = pod.strip_prefix(cluster.as_str())?.strip_prefix('-')?;
    let ordinal = number.parse().ok()?;
    // Neither `c-01` nor `c-+1` is a name that a StatefulSet gives.
    (member_name(cluster, ordinal) == pod).then_some(ordinal)
}

/// Labels of everything that belongs to one member.
pub fn member_labels(cluster: &ClusterName, ordinal: u8) -> Map {
    let mut labels = cluster_labels(cluster);
    labels.insert(LABEL_NODE.to_owned(), member_name(cluster, ordinal));
    labels
}

/// Labels of every object of a cluster.
pub(super) fn cluster_labels(cluster: &ClusterName) -> Map {
    let mut labels = selector_labels(cluster);
    labels.extend(string_map([
        ("app.kubernetes.io/name", APP_VALUE),
        ("app.kubernetes.io/instance", cluster.as_str()),
        (LABEL_MANAGED_BY, MANAGED_BY),
    ]));
    labels
}

/// The labels by which pods are selected: nothing that a user may set.
pub(super) fn selector_labels(cluster: &ClusterName) -> Map {
    string_map([(LABEL_APP, APP_VALUE), (LABEL_CLUSTER, cluster.as_str())])
}

pub(super) fn selector(cluster: &ClusterName) -> LabelSelector {
    LabelSelector {
        match_labels: Some(selector_labels(cluster)),
        ..LabelSelector::default()
    }
}

pub(super) fn string_map<const N: usize>(pairs: [(&str, &str); N]) -> Map {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The cluster as an owner, and as the controller if `controls` is set. Its deletion never waits for what it owns: to
/// say so would take a right of its own.
pub(super) fn owner(cluster: &ClusterName, uid: &str, controls: bool) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "EtcdCluster".to_owned(),
        name: cluster.to_string(),
        uid: uid.to_owned(),
        controller: controls.then_some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_an_ordinal_only_if_the_statefulset_could_have_named_it() {
        let name: ClusterName = "c-1".parse().expect("a name");
        for ordinal_of in 0..=20 {
            assert_eq!(ordinal(&name, &member_name(&name, ordinal_of)), Some(ordinal_of));
        }
        for pod in [
            "c-1", "c-1-", "c-1-01", "c-1-+1", "c-1-x", "c-2-0", "c-1-0-0", "c-1-256",
        ] {
            assert_eq!(ordinal(&name, pod), None, "{pod}");
        }
    }
}
