//! The backup that a dry run reads from its store: as the Job of a restore does, with Secrets read from the API server.

use std::path::{Path, PathBuf};

use etcd_operator_api::contract::{StoreOrder, Verified};
use etcd_operator_job::{settings, verify};
use etcd_operator_restore::preview::Known;
use etcd_operator_restore::world::Source;
use etcd_operator_snapshot::frames::KeyRing;
use etcd_operator_store::Policy;
use etcd_operator_store::secret::Secret;

use super::RestoreArgs;
use super::objects::Found;

/// Reads it; that it cannot be read is what is told then.
pub async fn read(args: &RestoreArgs, source: &Source, found: &Found) -> Known {
    match verified(args, source, found).await {
        Ok(verified) if args.quick => Known::Ends(Box::new(verified)),
        Ok(verified) => Known::Whole(Box::new(verified)),
        Err(why) => Known::No(why),
    }
}

async fn verified(args: &RestoreArgs, source: &Source, found: &Found) -> Result<Verified, String> {
    let location = &source.location;
    let order = placed(
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
        Some(name) => settings::keys_of(&found.secret(name).await?).map_err(|failure| failure.to_string())?,
        None => KeyRing::default(),
    };
    let told = async {
        let store = settings::store_with(&order, secret.as_ref(), ca, Policy::default()).await?;
        if args.quick {
            return verify::glance(&store, &source.object, keys).await;
        }
        let scratch = Scratch::make(args.scratch.as_deref())?;
        verify::whole(&store, &source.object, keys, &scratch.0).await
    };
    let told = told.await;
    told.map_err(|failure| format!("{}: {failure}", failure.reason))
}

/// The same place where its volume is mounted here.
fn placed(order: StoreOrder, claim: Option<&str>, volume: Option<&Path>) -> Result<StoreOrder, String> {
    match (claim, volume) {
        (None, _) => Ok(order),
        (Some(_), Some(volume)) => Ok(StoreOrder {
            bucket: volume.display().to_string(),
            ..order
        }),
        (Some(claim), None) => Err(format!(
            "it lies on the PersistentVolumeClaim {claim}, which is not mounted here: say by --volume where it is"
        )),
    }
}

/// A directory that is gone when it is no longer needed.
struct Scratch(PathBuf);

impl Scratch {
    fn make(within: Option<&Path>) -> Result<Self, etcd_operator_job::Failure> {
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        let own = within.join(format!("etcd-operator-restore-{}", std::process::id()));
        std::fs::create_dir(&own).map_err(|error| {
            let message = format!("{} cannot be made: {error}", own.display());
            etcd_operator_job::Failure::lasting("Scratch", message)
        })?;
        Ok(Self(own))
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
    fn a_backup_on_a_volume_is_read_where_that_is_mounted() {
        let order = || StoreOrder {
            bucket: "/backups".to_owned(),
            ..StoreOrder::default()
        };
        let read = |claim, volume: Option<&str>| placed(order(), claim, volume.map(Path::new));
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
