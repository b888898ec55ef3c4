//! The destination of a backup: which objects exist there, and whether the backup may be stored beside them or replace one.

use std::collections::BTreeMap;

use bytes::Bytes;
use etcd_operator_api::contract::{self, BackupTask, Claim, Manifest, Naming};
use etcd_operator_store::Store;

use crate::catalog::{self, Catalog, NameFilter};
use crate::failure::Failure;
use crate::leftovers::{RunIdentity, SweepSummary};
use crate::names;

/// How many of the newest manifests are read. They include one of the present run, and those of other owners that still
/// write here.
const RECENT_MANIFESTS: usize = 16;

/// What a store holds at the path of a backup.
#[derive(Debug)]
pub struct Destination {
    /// The objects, manifests and claims.
    pub catalog: Catalog,
    /// The newest manifests, by object name.
    recent: BTreeMap<String, Manifest>,
}

/// What exists under the name of a one-shot backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExistingObject {
    /// Nothing.
    Nothing,
    /// A good backup of the same `EtcdBackup`, which stays: the new one gets revision and time in its name.
    OwnBackup,
    /// An object without a manifest, which the new backup overwrites.
    WithoutManifest,
    /// A backup that the user wants replaced. It counts until the new one does. Holds its manifest as it was written.
    BackupToReplace(Bytes),
}

impl Destination {
    /// Reads what exists at a path: all names, and the newest manifests.
    pub async fn read(store: &Store, path: &str) -> Result<Self, Failure> {
        let catalog = catalog::read(store, NameFilter::Path(path)).await?;
        let mut recent = BTreeMap::new();
        for object in catalog::newest_first(&catalog).into_iter().take(RECENT_MANIFESTS) {
            if let Some(manifest) = catalog::read_manifest(store, object).await? {
                recent.insert(object.to_owned(), manifest);
            }
        }
        Ok(Self { catalog, recent })
    }

    /// The backup that an earlier try of this run stored.
    pub fn backup_of_run(&self, identity: RunIdentity<'_>) -> Option<Manifest> {
        let mut all = self.recent.values();
        let made =
            all.find(|manifest| manifest.run == identity.run && manifest.owner_uid == identity.owner)?;
        // A manifest whose object was deleted is no backup.
        let size = self.catalog.get(&made.object)?.size?;
        (size == made.object_size).then(|| made.clone())
    }

    /// Refuses a path that holds backups of another cluster and another owner.
    pub fn refuse_other_cluster(
        &self,
        identity: RunIdentity<'_>,
        cluster: &str,
        path: &str,
    ) -> Result<(), Failure> {
        let other = self
            .recent
            .values()
            .find(|manifest| !identity.owns(manifest) && manifest.cluster_id != cluster);
        match other {
            None => Ok(()),
            Some(other) => Err(Failure::permanent(
                "OtherCluster",
                format!(
                    "{path} already holds backups of another cluster: {} is of cluster {}, this backup is of cluster \
                     {cluster}. Use another path{}",
                    other.object,
                    other.cluster_id,
                    if identity.is_by_hand() {
                        ", or --replace to allow both there"
                    } else {
                        ""
                    }
                ),
            )),
        }
    }

    /// What exists under the name of a one-shot backup. Fails if it must not be replaced.
    pub async fn existing_object(
        &self,
        store: &Store,
        task: &BackupTask,
        identity: RunIdentity<'_>,
        path: &str,
        swept: &SweepSummary,
    ) -> Result<ExistingObject, Failure> {
        let Some(entry) = self.catalog.get(path).filter(|_| task.naming == Naming::OneShot) else {
            return Ok(ExistingObject::Nothing);
        };
        let manifest = match (entry.manifest, self.recent.get(path)) {
            (Some(_), Some(manifest)) => Some(manifest.clone()),
            (Some(_), None) => catalog::read_manifest(store, path).await?,
            (None, _) => None,
        };
        match manifest {
            Some(manifest) if task.allow_others => {
                Ok(ExistingObject::BackupToReplace(contract::write(&manifest).into()))
            }
            Some(manifest) if identity.owns(&manifest) && entry.size.is_some() => {
                Ok(ExistingObject::OwnBackup)
            }
            Some(manifest) if identity.owns(&manifest) => {
                // Its object was deleted. The manifest must not count for the new object.
                catalog::delete(store, &names::manifest_name(path)).await?;
                Ok(ExistingObject::Nothing)
            }
            None if entry.manifest.is_none() && entry.size.is_none() => Ok(ExistingObject::Nothing),
            None if entry.manifest.is_none()
                && (task.allow_others || swept.without_manifest.contains(path)) =>
            {
                Ok(ExistingObject::WithoutManifest)
            }
            _ => Err(Failure::permanent(
                "Exists",
                if identity.is_by_hand() {
                    format!(
                        "{path} already exists: use another path, add revision and time to the name with --periodic, delete \
                         the object, or use --replace"
                    )
                } else {
                    format!(
                        "{path} already exists and was not made by this EtcdBackup: use another path, or delete the object"
                    )
                },
            )),
        }
    }
}

/// The retriable failure if another run is writing to an object.
pub fn busy_failure(object: &str, claim: Option<&Claim>) -> Failure {
    let name = names::claim_name(object);
    let holder = claim.map_or_else(
        || format!("see {name}"),
        |claim| {
            format!(
                "{name} belongs to run {} and is valid until {}",
                claim.run, claim.until
            )
        },
    );
    let message = format!(
        "another run is writing to {object}: {holder}. If that run no longer exists, delete the claim"
    );
    Failure::retriable("Busy", message)
}
