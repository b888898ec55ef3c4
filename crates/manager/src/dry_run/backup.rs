//! Verifies the backup for a dry run, like the Job of a restore, but with Secrets read from the API server.

use std::path::{Path, PathBuf};

use etcd_operator_api::contract::{StoreOrder, Verified};
use etcd_operator_job::{settings, verify};
use etcd_operator_restore::dry_run::BackupCheck;
use etcd_operator_restore::observed_state::Source;
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_store::Policy;
use etcd_operator_store::secret::Secret;

use super::RestoreArgs;
use super::objects::Found;

/// Verifies the backup. A failure is part of the result.
pub async fn read(args: &RestoreArgs, source: &Source, found: &Found) -> BackupCheck {
    match verify(args, source, found).await {
        Ok(verified) if args.quick => BackupCheck::Quick(Box::new(verified)),
        Ok(verified) => BackupCheck::Full(Box::new(verified)),
        Err(why) => BackupCheck::Failed(why),
    }
}

/// Verifies the backup with Secrets from the API server; with `--quick` only its ends.
async fn verify(args: &RestoreArgs, source: &Source, found: &Found) -> Result<Verified, String> {
    let location = &source.location;
    let order = at_mount_path(
        location.order(&source.object),
        location.claim(),
        args.volume.as_deref(),
    )?;
    let secret = match location.secret() {
        Some(name) => Some(Secret::from(found.secret(name).await?)),
        None => None,
    };
    let ca = match location.ca_secret() {
        Some(name) => Some(Secret::from(found.secret(name).await?)),
        None => None,
    };
    let keys = match &source.keys {
        Some(name) => {
            settings::parse_keys(&found.secret(name).await?).map_err(|failure| failure.to_string())?
        }
        None => KeyRing::default(),
    };
    let checked = async {
        let store = settings::connect_store_with(&order, secret.as_ref(), ca, Policy::default()).await?;
        if args.quick {
            return verify::verify_ends(&store, &source.object, keys).await;
        }
        let scratch = Scratch::create(args.scratch.as_deref())?;
        verify::verify_fully(&store, &source.object, keys, &scratch.0).await
    };
    let checked = checked.await;
    checked.map_err(|failure| format!("{}: {failure}", failure.reason))
}

/// The order with the local mount path of the backup's volume.
fn at_mount_path(
    order: StoreOrder,
    claim: Option<&str>,
    volume: Option<&Path>,
) -> Result<StoreOrder, String> {
    match (claim, volume) {
        (None, _) => Ok(order),
        (Some(_), Some(volume)) => Ok(StoreOrder {
            bucket: volume.display().to_string(),
            ..order
        }),
        (Some(claim), None) => Err(format!(
            "the backup is on the PersistentVolumeClaim {claim}, which is not mounted here: specify its mount path with --volume"
        )),
    }
}

/// A directory that is deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn create(parent: Option<&Path>) -> Result<Self, etcd_operator_job::Failure> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = parent.join(format!("etcd-operator-restore-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| {
            let message = format!("cannot create {}: {error}", directory.display());
            etcd_operator_job::Failure::permanent("Scratch", message)
        })?;
        Ok(Self(directory))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_on_a_volume_is_read_from_its_mount_path() {
        let order = || StoreOrder {
            bucket: "/backups".to_owned(),
            ..StoreOrder::default()
        };
        let read = |claim, volume: Option<&str>| at_mount_path(order(), claim, volume.map(Path::new));
        assert_eq!(
            read(None, None).map(|order| order.bucket),
            Ok("/backups".to_owned())
        );
        assert_eq!(
            read(Some("c"), Some("/mnt")).map(|order| order.bucket),
            Ok("/mnt".to_owned())
        );
        let why = read(Some("c"), None).expect_err("not mounted");
        assert!(
            why.contains("PersistentVolumeClaim c") && why.contains("--volume"),
            "{why}"
        );
    }
}
