//! Deleting, in an order in which nothing is ever lost or lied about: a claim first, then the manifest, then the object,
//! then the claim. Wherever it is cut off, an object without a manifest has a claim, which says whose it is, and a
//! manifest has its object: no ghost is ever counted as a backup. Only where there is no room for a claim it is done
//! without one, as nothing else makes room: cut off then, it leaves an object that does not count.

use std::collections::BTreeSet;

use bytes::Bytes;
use etcd_operator_api::contract::{self, Claim, Manifest};
use etcd_operator_store::error::{Class, Error};
use etcd_operator_store::{CreateOutcome, Store};
use jiff::{SignedDuration, Timestamp};

use crate::catalog::{self, Catalog};
use crate::failure::Failure;
use crate::names::{self, BY_HAND};

/// How long after its end a run counts as one that nobody finishes any more, whatever the clocks say.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(10);

/// Who deletes.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The UID of the `EtcdBackup`.
    pub owner: &'a str,
    /// The run.
    pub run: &'a str,
    /// The time it is.
    pub now: Timestamp,
}

impl Actor<'_> {
    /// Whether somebody runs it by hand.
    pub fn is_by_hand(self) -> bool {
        self.owner == BY_HAND
    }

    /// Whether a backup is of the same `EtcdBackup`.
    pub fn made(self, manifest: &Manifest) -> bool {
        manifest.owner_uid == self.owner && !self.is_by_hand()
    }
}

/// What became of a backup that was to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is gone, or was before.
    Done,
    /// It is not this one's to delete.
    NotOurs,
    /// The store does not let it go: in one word, and in a sentence.
    Kept(&'static str, String),
}

impl Deletion {
    fn kept(error: &Error) -> Self {
        Self::Kept(error.class.as_str(), error.to_string())
    }
}

/// Deletes one backup, if its manifest says that it is the actor's.
pub async fn delete(store: &Store, object: &str, actor: Actor<'_>) -> Result<Deletion, Failure> {
    let (object_key, manifest_key) = (catalog::key(object)?, catalog::key(&names::manifest(object))?);
    let manifest: Manifest = match catalog::manifest(store, object).await? {
        Some(manifest) if manifest.owner_uid == actor.owner => manifest,
        Some(_) => return Ok(Deletion::NotOurs),
        None if store.head(&manifest_key).await?.is_some() || store.head(&object_key).await?.is_some() => {
            return Ok(Deletion::NotOurs);
        }
        None => return Ok(Deletion::Done),
    };
    let claim = Claim {
        version: contract::VERSION,
        object: object.to_owned(),
        owner_uid: actor.owner.to_owned(),
        run: actor.run.to_owned(),
        until: actor.now,
        replaces: false,
    };
    let name = names::claim(object);
    let body = Bytes::from(contract::write(&claim));
    let created = match store.create(&catalog::key(&name)?, body).await {
        Err(error) if error.class == Class::Full => CreateOutcome::Created,
        other => other?,
    };
    if created == CreateOutcome::AlreadyExists {
        match catalog::claim(store, object).await? {
            // An earlier try was cut off.
            Some(found) if found.owner_uid == actor.owner && found.until <= actor.now => {}
            _ => return Ok(Deletion::Kept("Busy", format!("{object} is being changed"))),
        }
    }
    if let Err(error) = store.delete(&manifest_key).await {
        catalog::delete(store, &name).await?;
        return Ok(Deletion::kept(&error));
    }
    if let Err(error) = store.delete(&object_key).await {
        // A backup that stays must count. If that cannot be written either, the claim stays, and the next sweep goes on.
        let body = Bytes::from(contract::write(&manifest));
        store.create(&manifest_key, body).await?;
        catalog::delete(store, &name).await?;
        return Ok(Deletion::kept(&error));
    }
    catalog::delete(store, &name).await?;
    Ok(Deletion::Done)
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many claims were finished.
    pub claims: u64,
    /// Objects without a manifest that a run was about to replace, or has replaced.
    pub bare: BTreeSet<String>,
}

/// Finishes what runs of the actor's `EtcdBackup` were killed at: claims that are over, and those of this very run, of
/// which this is the only try. What another one's run was killed at is finished, too, once it was over for some time: its
/// `EtcdBackup` may be no more.
pub async fn sweep(store: &Store, catalog: &mut Catalog, actor: Actor<'_>) -> Result<Swept, Failure> {
    let mut swept = Swept::default();
    let claimed: Vec<String> = catalog
        .iter()
        .filter(|(_, entry)| entry.has_claim)
        .map(|(object, _)| object.clone())
        .collect();
    for object in claimed {
        let Some(claim) = catalog::claim(store, &object).await? else {
            continue;
        };
        let is_own = claim.owner_uid == actor.owner;
        let is_mine = is_own && (claim.until <= actor.now || claim.run == actor.run);
        let counts = catalog.get(&object).is_some_and(|entry| entry.manifest.is_some());
        let is_nobodys = !counts && actor.now.duration_since(claim.until) >= FORGOTTEN;
        if !is_mine && !is_nobodys {
            continue;
        }
        if !finish(store, &claim).await? {
            continue;
        }
        swept.claims += 1;
        if let Some(entry) = catalog.get_mut(&object) {
            entry.has_claim = false;
            if entry.manifest.is_none() && !claim.replaces {
                entry.size = None;
            } else if entry.manifest.is_none() && is_own {
                swept.bare.insert(object);
            }
        }
    }
    catalog.retain(|_, entry| entry.size.is_some() || entry.manifest.is_some() || entry.has_claim);
    Ok(swept)
}

/// Removes what lies under a claim and does not count, then the claim. Whether that could be done.
pub async fn finish(store: &Store, claim: &Claim) -> Result<bool, Failure> {
    let object = claim.object.as_str();
    let aborted = store.sweep(object, Timestamp::MAX, |name| name == object).await;
    match aborted {
        Ok(swept) if swept.failed.is_empty() => {}
        Ok(_) => return Ok(false),
        // Stores that list no uploads throw them away by themselves.
        Err(error) if error.class == Class::Unsupported => {}
        Err(error) => return Err(error.into()),
    }
    let manifest = catalog::key(&names::manifest(object))?;
    if !claim.replaces && store.head(&manifest).await?.is_none() {
        match store.delete(&catalog::key(object)?).await {
            Ok(()) => {}
            Err(error) if error.class == Class::Locked => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    catalog::delete(store, &names::claim(object)).await?;
    tracing::info!(object, run = claim.run, "swept what a run left behind");
    Ok(true)
}
