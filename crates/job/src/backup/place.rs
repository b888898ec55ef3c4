//! What lies where a backup is to go, and what that means for it: done already, another's, to be replaced.

use std::collections::BTreeMap;

use bytes::Bytes;
use etcd_operator_api::contract::{self, BackupTask, Claim, Manifest, Naming};
use etcd_operator_store::Store;

use crate::catalog::{self, Catalog, Reach};
use crate::failure::Failure;
use crate::leftovers::{Actor, Swept};
use crate::names;

/// How many manifests are read, those written last: a run of now is among them, and so is whoever writes here, too.
const RECENT: usize = 16;

/// What lies at a path.
#[derive(Debug)]
pub struct Place {
    /// The names.
    pub catalog: Catalog,
    /// The manifests written last, by their objects.
    recent: BTreeMap<String, Manifest>,
}

/// What a single backup takes the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing.
    Nothing,
    /// Nothing, as what is there is a good backup of the same `EtcdBackup`: the new one lies beside it.
    Beside,
    /// An object that has no manifest.
    Bare,
    /// A backup, with its manifest as it was written: it counts until the new one does.
    Backup(Bytes),
}

impl Place {
    /// Looks what is there.
    pub async fn look(store: &Store, path: &str) -> Result<Self, Failure> {
        let catalog = catalog::read(store, Reach::Path(path)).await?;
        let mut recent = BTreeMap::new();
        for object in catalog::newest(&catalog).into_iter().take(RECENT) {
            if let Some(manifest) = catalog::manifest(store, object).await? {
                recent.insert(object.to_owned(), manifest);
            }
        }
        Ok(Self { catalog, recent })
    }

    /// The backup of this very run.
    pub fn made_by(&self, actor: Actor<'_>) -> Option<Manifest> {
        let mut all = self.recent.values();
        let made = all.find(|manifest| manifest.run == actor.run && manifest.owner_uid == actor.owner)?;
        // A manifest whose object somebody deleted is no backup.
        let size = self.catalog.get(&made.object)?.size?;
        (size == made.object_size).then(|| made.clone())
    }

    /// Refuses a path at which lie backups of another cluster that another `EtcdBackup` made.
    pub fn refuse_others(&self, actor: Actor<'_>, cluster: &str, path: &str) -> Result<(), Failure> {
        let other = self
            .recent
            .values()
            .find(|manifest| !actor.made(manifest) && manifest.cluster_id != cluster);
        match other {
            None => Ok(()),
            Some(other) => Err(Failure::lasting(
                "OtherCluster",
                format!(
                    "{path} already holds backups of another cluster: {} is of cluster {}, and this one is {cluster}. \
                     Give this backup another path{}",
                    other.object,
                    other.cluster_id,
                    if actor.is_by_hand() {
                        ", or say --replace if both may lie there"
                    } else {
                        ""
                    }
                ),
            )),
        }
    }

    /// What a single backup replaces: a good backup only if that was said to be meant.
    pub async fn replaced(
        &self,
        store: &Store,
        task: &BackupTask,
        actor: Actor<'_>,
        path: &str,
        swept: &Swept,
    ) -> Result<Replaced, Failure> {
        let Some(entry) = self.catalog.get(path).filter(|_| task.naming == Naming::OneShot) else {
            return Ok(Replaced::Nothing);
        };
        let manifest = match (entry.manifest, self.recent.get(path)) {
            (Some(_), Some(manifest)) => Some(manifest.clone()),
            (Some(_), None) => catalog::manifest(store, path).await?,
            (None, _) => None,
        };
        match manifest {
            Some(manifest) if task.allow_others => Ok(Replaced::Backup(contract::write(&manifest).into())),
            Some(manifest) if actor.made(&manifest) && entry.size.is_some() => Ok(Replaced::Beside),
            Some(manifest) if actor.made(&manifest) => {
                // Somebody deleted its object: it is no backup, and must not count for the next one.
                catalog::delete(store, &names::manifest(path)).await?;
                Ok(Replaced::Nothing)
            }
            None if entry.manifest.is_none() && entry.size.is_none() => Ok(Replaced::Nothing),
            None if entry.manifest.is_none() && (task.allow_others || swept.bare.contains(path)) => {
                Ok(Replaced::Bare)
            }
            _ => Err(Failure::lasting(
                "Exists",
                if actor.is_by_hand() {
                    format!(
                        "{path} exists already: give the backup another path, add revision and time to its name by --periodic, \
                         delete what is there, or say --replace"
                    )
                } else {
                    format!(
                        "{path} exists already, and this EtcdBackup did not make it: give the backup another path, or delete \
                         what is there"
                    )
                },
            )),
        }
    }
}

/// Somebody else is at it, and who.
pub fn busy(object: &str, claim: Option<&Claim>) -> Failure {
    let name = names::claim(object);
    let who = claim.map_or_else(
        || format!("see {name}"),
        |claim| {
            format!(
                "{name} is of the run {} and holds until {}",
                claim.run, claim.until
            )
        },
    );
    let message = format!(
        "another run is writing to {object}: {who}. Delete that file if no such run is there any more"
    );
    Failure::passing("Busy", message)
}
