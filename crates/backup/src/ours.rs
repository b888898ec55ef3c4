//! Which backups are this installation's business.

use std::collections::BTreeMap;

use etcd_operator_api::scope::{NotServed, ScopeRule};
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_runtime::elsewhere::Elsewhere;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::store::Store;
use kube::ResourceExt as _;

/// What tells; cheap to clone.
#[derive(Clone, Debug)]
pub struct Ours {
    clusters: Store<EtcdCluster>,
    scope: ScopeRule,
    elsewhere: Elsewhere,
}

/// Why a backup is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The scope of this installation leaves it out.
    NotServed(NotServed),
    /// Another installation looks after its cluster.
    Elsewhere {
        /// The cluster's name.
        cluster: String,
        /// That installation.
        other: String,
    },
}

impl Ours {
    /// Of the installation that this tells of.
    pub fn new(clusters: Store<EtcdCluster>, scope: ScopeRule, elsewhere: Elsewhere) -> Self {
        Self {
            clusters,
            scope,
            elsewhere,
        }
    }

    /// Whether this installation makes these backups, now.
    pub fn includes(&self, backup: &EtcdBackup) -> bool {
        self.left(backup).is_none()
    }

    /// Why a backup is left alone; none if it is not.
    pub fn left(&self, backup: &EtcdBackup) -> Option<Left> {
        let named = backup.spec.etcd_cluster.as_ref().map(|c| c.name.as_str());
        self.left_of(&ObjectKey::of(backup), backup.annotations(), named)
    }

    /// The same of one that may not be readable. A backup follows its cluster; while that does not exist, its own
    /// annotations decide. One with bare endpoints is served.
    pub fn left_of(
        &self,
        key: &ObjectKey,
        own: &BTreeMap<String, String>,
        cluster: Option<&str>,
    ) -> Option<Left> {
        let cluster = key.beside(cluster.filter(|name| !name.is_empty())?);
        let annotations = self.clusters.annotations(&cluster);
        if let Err(not_served) = self.scope.serves(Some(annotations.as_ref().unwrap_or(own))) {
            return Some(Left::NotServed(not_served));
        }
        let other = self.elsewhere.who(&self.clusters, &cluster)?;
        Some(Left::Elsewhere {
            cluster: cluster.name,
            other,
        })
    }
}
