//! Telling which backups there are. Only what has a manifest is one.

use std::collections::BTreeSet;

use etcd_operator_api::contract::{JobOrder, JobOutcome, Listed, Manifest};
use etcd_operator_api::retention::Stored;
use etcd_operator_store::Store;
use futures::StreamExt as _;
use futures::stream;
use serde::Serialize;

use crate::catalog::{self, Catalog, Reach};
use crate::failure::Failure;
use crate::text::Bytes;

/// How many manifests are read at once.
const AT_ONCE: usize = 8;
/// What a message of a Job may hold: each backup takes little more than its name.
const MOST: usize = 200;

/// Tells an operator which backups its `EtcdBackup` made, from behind the name `after` on.
pub async fn list(store: &Store, order: &JobOrder, after: Option<&str>) -> Result<JobOutcome, Failure> {
    let catalog = catalog::read(store, Reach::Path(&order.store.path)).await?;
    let catalog: Catalog = catalog
        .into_iter()
        .filter(|(object, _)| after.is_none_or(|after| object.as_str() > after))
        .collect();
    let (mut backups, mut others, mut next) = (Vec::new(), 0, None);
    let mut manifests = manifests(store, &catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(manifest) = manifest? else {
            others += 1;
            continue;
        };
        let is_there =
            catalog.get(&manifest.object).and_then(|entry| entry.size) == Some(manifest.object_size);
        if manifest.owner_uid != order.owner_uid {
            others += 1;
        } else if is_there {
            next = Some(manifest.object.clone());
            backups.push(Listed {
                object: manifest.object,
                incarnation: manifest.incarnation,
                revision: manifest.revision,
                size: manifest.object_size,
                completed_at: manifest.completed_at,
            });
        }
        if backups.len() >= MOST {
            return Ok(JobOutcome::Listed {
                backups,
                others,
                next,
            });
        }
    }
    Ok(JobOutcome::Listed {
        backups,
        others,
        next: None,
    })
}

/// The backups that one `EtcdBackup` made and that count: whose objects are there, of the right size.
pub async fn own(store: &Store, catalog: &Catalog, owner: &str) -> Result<Vec<Stored>, Failure> {
    let mut own = Vec::new();
    let mut manifests = manifests(store, catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(manifest) = manifest? else { continue };
        let is_there =
            catalog.get(&manifest.object).and_then(|entry| entry.size) == Some(manifest.object_size);
        if manifest.owner_uid == owner && is_there {
            own.push(Stored {
                object: manifest.object,
                owner: manifest.owner_uid,
                cluster_id: manifest.cluster_id,
                incarnation: manifest.incarnation.unwrap_or_default(),
                revision: manifest.revision,
                completed: manifest.completed_at,
            });
        }
    }
    Ok(own)
}

/// The manifests, in the order of their names; none where one cannot be read.
fn manifests<'a>(
    store: &'a Store,
    catalog: &'a Catalog,
) -> impl futures::Stream<Item = Result<Option<Manifest>, Failure>> + Unpin + 'a {
    let with_manifest = catalog.iter().filter(|(_, entry)| entry.manifest.is_some());
    let objects: Vec<&str> = with_manifest.map(|(object, _)| object.as_str()).collect();
    stream::iter(objects)
        .map(|object| catalog::manifest(store, object))
        .buffered(AT_ONCE)
        .boxed()
}

/// A backup as it is shown to people and to programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its manifest, without the index of frames.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// Whether the object is there and of the right size.
    pub is_there: bool,
    /// Bytes of the object, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_size: Option<u64>,
    /// Whether the key that opens it is among those given; nothing if it is not sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_key: Option<bool>,
}

/// Everything below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The backups.
    pub backups: Vec<Row>,
    /// Objects without a manifest: those of other tools, and what does not count.
    pub without_manifest: Vec<String>,
    /// Objects whose manifest cannot be read or is not theirs, so that they do not count.
    pub unreadable: Vec<String>,
}

/// Tells people what is there. `has_key` knows whether a key is at hand.
pub async fn listing(
    store: &Store,
    prefix: &str,
    has_key: impl Fn(&str) -> bool,
) -> Result<Listing, Failure> {
    let catalog = catalog::read(store, Reach::Prefix(prefix)).await?;
    let mut listing = Listing::default();
    for (object, entry) in &catalog {
        if entry.manifest.is_none() && entry.size.is_some() {
            listing.without_manifest.push(object.clone());
        }
    }
    let mut manifests = manifests(store, &catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(mut manifest) = manifest? else { continue };
        manifest.frames.clear();
        let stored_size = catalog.get(&manifest.object).and_then(|entry| entry.size);
        listing.backups.push(Row {
            is_there: stored_size == Some(manifest.object_size),
            stored_size,
            has_key: manifest.sealing.as_ref().map(|sealing| has_key(&sealing.key_id)),
            manifest,
        });
    }
    let read: BTreeSet<&str> = listing
        .backups
        .iter()
        .map(|row| row.manifest.object.as_str())
        .collect();
    let with_manifest = catalog.iter().filter(|(_, entry)| entry.manifest.is_some());
    listing.unreadable = with_manifest
        .map(|(object, _)| object)
        .filter(|object| !read.contains(object.as_str()))
        .cloned()
        .collect();
    listing.backups.sort_by_key(|row| row.manifest.completed_at);
    Ok(listing)
}

/// As a terminal may have it: a name must not move the cursor or write over what others say.
fn plain(text: &str) -> String {
    let escaped = |sign: char| {
        if sign.is_control() {
            sign.escape_default().to_string()
        } else {
            sign.to_string()
        }
    };
    text.chars().map(escaped).collect()
}

impl std::fmt::Display for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.backups.is_empty() && self.without_manifest.is_empty() && self.unreadable.is_empty() {
            return writeln!(f, "nothing found: no name there begins so");
        }
        let head = [
            "COMPLETED",
            "REVISION",
            "ETCD",
            "SIZE",
            "VERIFIED",
            "CLUSTER",
            "NOTE",
            "OBJECT",
        ];
        let mut rows: Vec<[String; 8]> = vec![head.map(str::to_owned)];
        for row in &self.backups {
            let manifest = &row.manifest;
            let note = match (row.is_there, row.has_key) {
                (false, _) if row.stored_size.is_some() => "another size",
                (false, _) => "object missing",
                (true, Some(false)) => "key missing",
                (true, Some(true)) => "sealed",
                (true, None) => "",
            };
            rows.push([
                manifest.completed_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                manifest.revision.to_string(),
                plain(&manifest.etcd_version),
                Bytes(manifest.object_size).to_string(),
                plain(&manifest.verification),
                plain(&manifest.cluster_id),
                note.to_owned(),
                plain(&manifest.object),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in &rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        for object in &self.without_manifest {
            let object = plain(object);
            writeln!(f, "without a manifest, and so of nobody known here: {object}")?;
        }
        for object in &self.unreadable {
            let object = plain(object);
            writeln!(f, "with a manifest that cannot be read or is another's: {object}")?;
        }
        Ok(())
    }
}
