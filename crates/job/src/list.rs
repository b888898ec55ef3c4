//! Lists backups. Only an object with a manifest counts as a backup.

use std::collections::BTreeSet;

use etcd_operator_api::contract::{JobOrder, JobOutcome, Listed, Manifest};
use etcd_operator_api::retention::Stored;
use etcd_operator_store::Store;
use futures::StreamExt as _;
use futures::stream;
use serde::Serialize;

use crate::catalog::{self, Catalog, NameFilter};
use crate::failure::Failure;
use crate::text::Bytes;

/// How many manifests are read concurrently.
const CONCURRENT_READS: usize = 8;
/// The largest number of backups in a result: a termination message is small, and each backup takes little more than its name.
const MAX_BACKUPS: usize = 200;

/// Lists the backups of the order's `EtcdBackup` whose names come after `after`, at most 200. One whose object is
/// missing or has another size is left out.
pub async fn list(store: &Store, order: &JobOrder, after: Option<&str>) -> Result<JobOutcome, Failure> {
    let catalog = catalog::read(store, NameFilter::Path(&order.store.path)).await?;
    let catalog: Catalog = catalog
        .into_iter()
        .filter(|(object, _)| after.is_none_or(|after| object.as_str() > after))
        .collect();
    let (mut backups, mut others, mut next) = (Vec::new(), 0, None);
    let mut manifests = read_manifests(store, &catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(manifest) = manifest? else {
            others += 1;
            continue;
        };
        let is_complete =
            catalog.get(&manifest.object).and_then(|entry| entry.size) == Some(manifest.object_size);
        if manifest.owner_uid != order.owner_uid {
            others += 1;
        } else if is_complete {
            next = Some(manifest.object.clone());
            backups.push(Listed {
                object: manifest.object,
                incarnation: manifest.incarnation,
                revision: manifest.revision,
                size: manifest.object_size,
                completed_at: manifest.completed_at,
            });
        }
        if backups.len() >= MAX_BACKUPS {
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

/// The backups of an owner that count: their objects exist and have the size in their manifests.
pub async fn own_backups(store: &Store, catalog: &Catalog, owner: &str) -> Result<Vec<Stored>, Failure> {
    let mut own = Vec::new();
    let mut manifests = read_manifests(store, catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(manifest) = manifest? else { continue };
        let is_complete =
            catalog.get(&manifest.object).and_then(|entry| entry.size) == Some(manifest.object_size);
        if manifest.owner_uid == owner && is_complete {
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

/// Reads the manifests of a catalog in the order of names; `None` for one that cannot be read.
fn read_manifests<'a>(
    store: &'a Store,
    catalog: &'a Catalog,
) -> impl futures::Stream<Item = Result<Option<Manifest>, Failure>> + Unpin + 'a {
    let with_manifest = catalog.iter().filter(|(_, entry)| entry.manifest.is_some());
    let objects: Vec<&str> = with_manifest.map(|(object, _)| object.as_str()).collect();
    stream::iter(objects)
        .map(|object| catalog::read_manifest(store, object))
        .buffered(CONCURRENT_READS)
        .boxed()
}

/// A backup in the output of `etcd-operator list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its manifest, without the index of frames.
    #[serde(flatten)]
    pub manifest: Manifest,
    /// Whether the object exists and has the size in the manifest.
    #[serde(rename = "isThere")]
    pub is_complete: bool,
    /// The size of the object, if it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_size: Option<u64>,
    /// Whether its key is among the given ones; `None` if it is not encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_key: Option<bool>,
}

/// The output of `etcd-operator list`: everything below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The backups.
    pub backups: Vec<Row>,
    /// Objects without a manifest: made by other tools, or incomplete.
    pub without_manifest: Vec<String>,
    /// Objects whose manifest cannot be read or names another object, so that they do not count.
    pub unreadable: Vec<String>,
}

/// Lists everything below a prefix, of all owners, including what is incomplete. `has_key` says whether the key of an
/// ID is available.
pub async fn list_prefix(
    store: &Store,
    prefix: &str,
    has_key: impl Fn(&str) -> bool,
) -> Result<Listing, Failure> {
    let catalog = catalog::read(store, NameFilter::Prefix(prefix)).await?;
    let mut listing = Listing::default();
    for (object, entry) in &catalog {
        if entry.manifest.is_none() && entry.size.is_some() {
            listing.without_manifest.push(object.clone());
        }
    }
    let mut manifests = read_manifests(store, &catalog);
    while let Some(manifest) = manifests.next().await {
        let Some(mut manifest) = manifest? else { continue };
        manifest.frames.clear();
        let stored_size = catalog.get(&manifest.object).and_then(|entry| entry.size);
        listing.backups.push(Row {
            is_complete: stored_size == Some(manifest.object_size),
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

/// Escapes control characters, so that a name cannot move the cursor of a terminal or overwrite other lines.
fn escape_control(text: &str) -> String {
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
            return writeln!(f, "No backups found: no object name starts with this prefix.");
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
            let note = match (row.is_complete, row.has_key) {
                (false, _) if row.stored_size.is_some() => "wrong size",
                (false, _) => "object missing",
                (true, Some(false)) => "key missing",
                (true, Some(true)) => "encrypted",
                (true, None) => "",
            };
            rows.push([
                manifest.completed_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                manifest.revision.to_string(),
                escape_control(&manifest.etcd_version),
                Bytes(manifest.object_size).to_string(),
                escape_control(&manifest.verification),
                escape_control(&manifest.cluster_id),
                note.to_owned(),
                escape_control(&manifest.object),
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
            let object = escape_control(object);
            writeln!(f, "no manifest, owner unknown: {object}")?;
        }
        for object in &self.unreadable {
            let object = escape_control(object);
            writeln!(f, "manifest unreadable or of another object: {object}")?;
        }
        Ok(())
    }
}
