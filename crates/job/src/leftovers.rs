//! Deletes backups, and cleans up what interrupted runs left behind.
//!
//! Deletion first creates a claim, then deletes the manifest, the object and the claim. At whatever point it is interrupted,
//! an object without a manifest has a claim that names its owner, and a manifest has its object. So nothing that is no longer
//! complete counts as a backup. In a full store the claim cannot be written, and deletion goes on without it, because only
//! deletion frees space. An interruption then leaves an object that does not count.

use std::collections::BTreeSet;

use bytes::Bytes;
use etcd_operator_api::contract::{self, Claim, Manifest};
use etcd_operator_store::error::{Class, Error};
use etcd_operator_store::{CreateOutcome, Store};
use jiff::{SignedDuration, Timestamp};

use crate::catalog::{self, Catalog};
use crate::failure::Failure;
use crate::names::{self, BY_HAND};

/// How long after its deadline a claim of another owner is cleaned up. The margin allows for differing clocks.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The identity of a run, which decides what it may delete.
#[derive(Clone, Copy, Debug)]
pub struct RunIdentity<'a> {
    /// The UID of the `EtcdBackup`.
    pub owner: &'a str,
    /// The run ID.
    pub run: &'a str,
    /// The current time.
    pub now: Timestamp,
    /// Whether no other run of the `EtcdBackup` is in progress or follows: its claims are then finished before their deadline.
    pub is_last: bool,
}

impl RunIdentity<'_> {
    /// Whether a user runs the command by hand.
    pub fn is_by_hand(self) -> bool {
        self.owner == BY_HAND
    }

    /// Whether the same `EtcdBackup` made a backup. A backup made by hand has no owner.
    pub fn owns(self, manifest: &Manifest) -> bool {
        manifest.owner_uid == self.owner && !self.is_by_hand()
    }
}

/// The outcome of deleting a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The backup no longer exists.
    Done,
    /// The backup belongs to another owner.
    NotOwned,
    /// The store refuses to delete it. Holds the reason, one word, and the message.
    Kept(&'static str, String),
}

impl Deletion {
    fn kept(error: &Error) -> Self {
        Self::Kept(error.class.as_str(), error.to_string())
    }
}

/// Deletes a backup, if its manifest names the owner of the run. An object without a readable manifest is `NotOwned`;
/// one that does not exist is `Done`.
pub async fn delete(store: &Store, object: &str, identity: RunIdentity<'_>) -> Result<Deletion, Failure> {
    let (object_key, manifest_key) = (
        catalog::object_key(object)?,
        catalog::object_key(&names::manifest_name(object))?,
    );
    let manifest: Manifest = match catalog::read_manifest(store, object).await? {
        Some(manifest) if manifest.owner_uid == identity.owner => manifest,
        Some(_) => return Ok(Deletion::NotOwned),
        None if store.head(&manifest_key).await?.is_some() || store.head(&object_key).await?.is_some() => {
            return Ok(Deletion::NotOwned);
        }
        None => return Ok(Deletion::Done),
    };
    let claim = Claim {
        version: contract::VERSION,
        object: object.to_owned(),
        owner_uid: identity.owner.to_owned(),
        run: identity.run.to_owned(),
        until: identity.now,
        replaces: false,
    };
    let name = names::claim_name(object);
    let body = Bytes::from(contract::write(&claim));
    let created = match store.create(&catalog::object_key(&name)?, body).await {
        Err(error) if error.class == Class::Full => CreateOutcome::Created,
        other => other?,
    };
    if created == CreateOutcome::AlreadyExists {
        match catalog::read_claim(store, object).await? {
            // An earlier deletion was interrupted.
            Some(found) if found.owner_uid == identity.owner && found.until <= identity.now => {}
            _ => {
                return Ok(Deletion::Kept(
                    "Busy",
                    format!("another run is changing {object}"),
                ));
            }
        }
    }
    if let Err(error) = store.delete(&manifest_key).await {
        catalog::delete(store, &name).await?;
        return Ok(Deletion::kept(&error));
    }
    if let Err(error) = store.delete(&object_key).await {
        // The object still exists, so the backup must count again. If its manifest cannot be written back, the claim stays and
        // the next sweep continues.
        let body = Bytes::from(contract::write(&manifest));
        store.create(&manifest_key, body).await?;
        catalog::delete(store, &name).await?;
        return Ok(Deletion::kept(&error));
    }
    catalog::delete(store, &name).await?;
    Ok(Deletion::Done)
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    /// How many claims were cleaned up.
    pub claims: u64,
    /// Objects without a manifest that an interrupted run was replacing.
    pub without_manifest: BTreeSet<String>,
}

/// Cleans up after interrupted runs.
///
/// These are runs of the same `EtcdBackup` whose deadline has passed, and earlier tries of this run; all of them in the last
/// run. Runs of other owners follow some time after their deadline, as their `EtcdBackup` may no longer exist.
pub async fn sweep(
    store: &Store,
    catalog: &mut Catalog,
    identity: RunIdentity<'_>,
) -> Result<SweepSummary, Failure> {
    let mut summary = SweepSummary::default();
    let claimed: Vec<String> = catalog
        .iter()
        .filter(|(_, entry)| entry.has_claim)
        .map(|(object, _)| object.clone())
        .collect();
    for object in claimed {
        let Some(claim) = catalog::read_claim(store, &object).await? else {
            continue;
        };
        let is_same_owner = claim.owner_uid == identity.owner;
        let has_ended = claim.until <= identity.now || claim.run == identity.run || identity.is_last;
        let is_own = is_same_owner && has_ended;
        let has_manifest = catalog.get(&object).is_some_and(|entry| entry.manifest.is_some());
        let is_abandoned = !has_manifest && identity.now.duration_since(claim.until) >= ABANDONED_AFTER;
        if !is_own && !is_abandoned {
            continue;
        }
        if !finish_claim(store, &claim).await? {
            continue;
        }
        summary.claims += 1;
        if let Some(entry) = catalog.get_mut(&object) {
            entry.has_claim = false;
            if entry.manifest.is_none() && !claim.replaces {
                entry.size = None;
            } else if entry.manifest.is_none() && is_same_owner {
                summary.without_manifest.insert(object);
            }
        }
    }
    catalog.retain(|_, entry| entry.size.is_some() || entry.manifest.is_some() || entry.has_claim);
    Ok(summary)
}

/// Deletes what a claim covers and does not count, then the claim: uploads, and an object without a manifest unless the
/// claim replaces one. Returns false if the store refuses; the claim then stays.
pub async fn finish_claim(store: &Store, claim: &Claim) -> Result<bool, Failure> {
    let object = claim.object.as_str();
    let aborted = store.sweep(object, Timestamp::MAX, |name| name == object).await;
    match aborted {
        Ok(swept) if swept.failed.is_empty() => {}
        Ok(_) => return Ok(false),
        // Stores that cannot list uploads discard them by themselves.
        Err(error) if error.class == Class::Unsupported => {}
        Err(error) => return Err(error.into()),
    }
    let manifest = catalog::object_key(&names::manifest_name(object))?;
    if !claim.replaces && store.head(&manifest).await?.is_none() {
        match store.delete(&catalog::object_key(object)?).await {
            Ok(()) => {}
            Err(error) if error.class == Class::Locked => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    catalog::delete(store, &names::claim_name(object)).await?;
    tracing::info!(object, run = claim.run, "cleaned up after an interrupted run");
    Ok(true)
}
