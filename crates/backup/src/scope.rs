//! Which `EtcdBackup` objects this installation of the operator reconciles.

use std::collections::BTreeMap;

use etcd_operator_api::scope::{NotServed, ScopeRule};
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_runtime::elsewhere::{Elsewhere, Owned};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::store::Store;
use kube::ResourceExt as _;

/// Decides whether this installation reconciles a backup; cheap to clone.
#[derive(Clone, Debug)]
pub struct BackupScope {
    clusters: Store<EtcdCluster>,
    rule: ScopeRule,
    other_installations: Elsewhere,
}

/// Why this installation ignores a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The scope of this installation does not include it.
    OutOfScope(NotServed),
    /// Another installation controls the backup or its cluster.
    OtherInstallation {
        /// The object whose status names that installation.
        owned: Owned,
        /// That installation.
        other: String,
    },
}

impl BackupScope {
    /// The scope of the installation that `other_installations` was made for.
    pub fn new(clusters: Store<EtcdCluster>, rule: ScopeRule, other_installations: Elsewhere) -> Self {
        Self {
            clusters,
            rule,
            other_installations,
        }
    }

    /// Whether this installation reconciles a backup.
    pub fn includes(&self, backup: &EtcdBackup) -> bool {
        self.exclusion(backup).is_none()
    }

    /// Why this installation ignores a backup; `None` if it reconciles it.
    pub fn exclusion(&self, backup: &EtcdBackup) -> Option<Exclusion> {
        let controlled_by = backup
            .status
            .as_ref()
            .and_then(|status| status.controlled_by.as_deref());
        self.exclusion_of(
            &ObjectKey::of(backup),
            backup.annotations(),
            cluster_of(backup),
            controlled_by,
        )
    }

    /// Like [`exclusion`](Self::exclusion), for a backup whose spec may not be decodable.
    ///
    /// A backup follows its cluster; while the cluster does not exist, the backup's own annotations decide. A backup of
    /// bare endpoints belongs to the installation that its status names: two installations that both wrote its status
    /// would undo each other's writes.
    pub fn exclusion_of(
        &self,
        key: &ObjectKey,
        own_annotations: &BTreeMap<String, String>,
        cluster: Option<&str>,
        controlled_by: Option<&str>,
    ) -> Option<Exclusion> {
        let Some(cluster) = cluster.filter(|name| !name.is_empty()) else {
            let owned = Owned::backup(&key.name);
            let other = self.other_installations.another(controlled_by)?;
            return Some(Exclusion::OtherInstallation { owned, other });
        };
        let cluster = key.beside(cluster);
        let annotations = self.clusters.annotations(&cluster);
        let annotations = annotations.as_ref().unwrap_or(own_annotations);
        if let Err(not_served) = self.rule.serves(Some(annotations)) {
            return Some(Exclusion::OutOfScope(not_served));
        }
        let other = self.other_installations.who(&self.clusters, &cluster)?;
        let owned = Owned::cluster(&cluster.name);
        Some(Exclusion::OtherInstallation { owned, other })
    }

    /// The value of `status.controlledBy`: set only for backups of bare endpoints, as others follow their cluster.
    pub fn controlled_by(&self, backup: &EtcdBackup) -> Option<String> {
        let follows_cluster = cluster_of(backup).is_some();
        (!follows_cluster).then(|| self.other_installations.installation().to_owned())
    }
}

/// The name of the cluster in the spec of a backup; `None` for a backup of bare endpoints.
pub fn cluster_of(backup: &EtcdBackup) -> Option<&str> {
    let cluster = backup.spec.etcd_cluster.as_ref()?;
    Some(cluster.name.as_str()).filter(|name| !name.is_empty())
}
