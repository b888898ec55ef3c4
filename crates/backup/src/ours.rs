//! Which backups are this installation's business.

use std::collections::BTreeMap;

use etcd_operator_api::scope::{NotServed, ScopeRule};
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_runtime::elsewhere::{Elsewhere, Owned};
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
    /// Another installation looks after it, or after its cluster.
    Elsewhere {
        /// Which of the two.
        owned: Owned,
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
        let by = backup
            .status
            .as_ref()
            .and_then(|status| status.controlled_by.as_deref());
        self.left_of(
            &ObjectKey::of(backup),
            backup.annotations(),
            cluster_of(backup),
            by,
        )
    }

    /// The same of one that may not be readable. A backup follows its cluster; while that does not exist, its own
    /// annotations decide. One with bare endpoints belongs to whoever came first: two that served it would undo each other's
    /// statuses.
    pub fn left_of(
        &self,
        key: &ObjectKey,
        own: &BTreeMap<String, String>,
        cluster: Option<&str>,
        controlled_by: Option<&str>,
    ) -> Option<Left> {
        let Some(cluster) = cluster.filter(|name| !name.is_empty()) else {
            let owned = Owned::backup(&key.name);
            let other = self.elsewhere.another(controlled_by)?;
            return Some(Left::Elsewhere { owned, other });
        };
        let cluster = key.beside(cluster);
        let annotations = self.clusters.annotations(&cluster);
        if let Err(not_served) = self.scope.serves(Some(annotations.as_ref().unwrap_or(own))) {
            return Some(Left::NotServed(not_served));
        }
        let other = self.elsewhere.who(&self.clusters, &cluster)?;
        let owned = Owned::cluster(&cluster.name);
        Some(Left::Elsewhere { owned, other })
    }

    /// Who makes a backup, for its status: of one that names a cluster the cluster tells.
    pub fn owner(&self, backup: &EtcdBackup) -> Option<String> {
        let is_followed = cluster_of(backup).is_some();
        (!is_followed).then(|| self.elsewhere.installation().to_owned())
    }
}

/// The name of the cluster that a backup is of; none if it has bare endpoints.
pub fn cluster_of(backup: &EtcdBackup) -> Option<&str> {
    let cluster = backup.spec.etcd_cluster.as_ref()?;
    Some(cluster.name.as_str()).filter(|name| !name.is_empty())
}
