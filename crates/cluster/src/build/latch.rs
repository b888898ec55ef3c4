//! What the StatefulSet remembers of the cluster's life, so that a lost status can be found again.

use std::collections::BTreeSet;

use etcd_operator_etcd::id::ClusterId;
use k8s_openapi::api::apps::v1::StatefulSet;

use super::labels::Map;

const INCARNATION: &str = "etcd.database.coreos.com/incarnation";
const CLUSTER_ID: &str = "etcd.database.coreos.com/cluster-id";
const VOTERS: &str = "etcd.database.coreos.com/voters";

/// What the StatefulSet remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latch {
    /// Which life of the data runs.
    pub incarnation: i64,
    /// etcd's ID of the cluster, once it was read.
    pub cluster_id: Option<ClusterId>,
    /// The names of the voters: a set and not a count, for it may have gaps.
    pub voters: BTreeSet<String>,
}

impl Latch {
    /// What a stored StatefulSet remembers; nothing without an incarnation that can be read.
    pub fn of(set: &StatefulSet) -> Option<Self> {
        let annotations = set.metadata.annotations.as_ref()?;
        let voters = annotations.get(VOTERS).map(String::as_str).unwrap_or_default();
        Some(Self {
            incarnation: annotations.get(INCARNATION)?.parse().ok()?,
            cluster_id: annotations.get(CLUSTER_ID).and_then(|id| id.parse().ok()),
            voters: voters
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }

    pub(super) fn annotations(&self) -> Map {
        let Self {
            incarnation,
            cluster_id,
            voters,
        } = self;
        let voters: Vec<&str> = voters.iter().map(String::as_str).collect();
        let mut all = Map::from([(INCARNATION.to_owned(), incarnation.to_string())]);
        all.extend(cluster_id.map(|id| (CLUSTER_ID.to_owned(), id.to_string())));
        if !voters.is_empty() {
            all.insert(VOTERS.to_owned(), voters.join(","));
        }
        all
    }
}
