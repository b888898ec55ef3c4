//! The catalog of a path in a store: objects, their manifests, and claims on them.
//!
//! Only the manifest or the claim says to which `EtcdBackup` an object belongs; its name does not.

use std::collections::BTreeMap;

use bytes::Bytes;
use etcd_operator_api::contract::{self, Claim, Document, Manifest};
use etcd_operator_store::error::Class;
use etcd_operator_store::{CreateOutcome, Key, Store, backend};
use jiff::Timestamp;

use crate::failure::Failure;
use crate::names::{self, NameKind};

/// The largest manifest or claim that is read: the manifest of a terabyte is half as large.
const MAX_DOCUMENT: u64 = 32 << 20;

/// What a store holds under the name of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The size of the object, if it exists.
    pub size: Option<u64>,
    /// When its manifest was written, if it has one.
    pub manifest: Option<WrittenAt>,
    /// Whether there is a claim on it.
    pub has_claim: bool,
}

/// When a file was written, if the store says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrittenAt(pub Option<Timestamp>);

/// What a store holds at a path or below a prefix, by object name.
pub type Catalog = BTreeMap<String, Entry>;

/// Which names a catalog includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFilter<'a> {
    /// The names of backups to this path.
    Path(&'a str),
    /// All names with this prefix.
    Prefix(&'a str),
}

/// Lists a store: names, sizes and times. No manifest or claim is read.
pub async fn read(store: &Store, filter: NameFilter<'_>) -> Result<Catalog, Failure> {
    let (NameFilter::Path(prefix) | NameFilter::Prefix(prefix)) = filter;
    let mut catalog = Catalog::new();
    for found in store.list(prefix).await? {
        let (object, kind) = names::parse(&found.name);
        if matches!(filter, NameFilter::Path(path) if !names::belongs(object, path)) {
            continue;
        }
        let entry = catalog.entry(object.to_owned()).or_default();
        match kind {
            NameKind::Object => entry.size = Some(found.size),
            NameKind::Manifest => entry.manifest = Some(WrittenAt(found.modified)),
            NameKind::Claim => entry.has_claim = true,
        }
    }
    Ok(catalog)
}

/// The objects with a manifest, the newest manifest first.
pub fn newest_first(catalog: &Catalog) -> Vec<&str> {
    let mut objects: Vec<(WrittenAt, &str)> = catalog
        .iter()
        .filter_map(|(object, entry)| entry.manifest.map(|written| (written, object.as_str())))
        .collect();
    objects.sort_unstable();
    objects.into_iter().rev().map(|(_, object)| object).collect()
}

/// Converts a name to a key of a store.
pub fn object_key(name: &str) -> Result<Key, Failure> {
    Key::new(name).map_err(|bad| Failure::bad_order(bad.to_string()))
}

/// Reads a manifest or claim. `None` if it does not exist, cannot be read, or has a newer version.
async fn read_document<D: Document>(store: &Store, name: &str) -> Result<Option<D>, Failure> {
    match store.read_small(&object_key(name)?, MAX_DOCUMENT).await {
        Ok(bytes) => match contract::read(&bytes) {
            Ok(document) => Ok(Some(document)),
            Err(error) => {
                tracing::warn!(name, %error, "ignoring a document that cannot be parsed");
                Ok(None)
            }
        },
        Err(error) if error.class == Class::NotFound => Ok(None),
        Err(error) if concerns_only_this_name(store, error.class) => {
            tracing::warn!(name, %error, "ignoring a document that cannot be read");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether an error concerns only this name, so that other backups are not held up by it.
///
/// That is a document that is too large, and on a volume one that is no regular file or belongs to another user.
fn concerns_only_this_name(store: &Store, class: Class) -> bool {
    let is_file = store.location().kind == backend::Kind::Local;
    class == Class::Corrupt || (is_file && matches!(class, Class::Forbidden | Class::Unsupported))
}

/// Reads the manifest of an object. `None` if there is none, it cannot be read, or it names another object.
pub async fn read_manifest(store: &Store, object: &str) -> Result<Option<Manifest>, Failure> {
    let found: Option<Manifest> = read_document(store, &names::manifest_name(object)).await?;
    Ok(found.filter(|manifest| manifest.object == object))
}

/// Reads the claim on an object. `None` if there is none, it cannot be read, or it names another object.
pub async fn read_claim(store: &Store, object: &str) -> Result<Option<Claim>, Failure> {
    let found: Option<Claim> = read_document(store, &names::claim_name(object)).await?;
    Ok(found.filter(|claim| claim.object == object))
}

/// Writes a document that must not exist yet. If it does, it stays as it is, and the answer is `AlreadyExists`.
pub async fn create<D: Document>(store: &Store, name: &str, document: &D) -> Result<CreateOutcome, Failure> {
    let body = Bytes::from(contract::write(document));
    Ok(store.create(&object_key(name)?, body).await?)
}

/// Deletes what has this name, if it exists.
pub async fn delete(store: &Store, name: &str) -> Result<(), Failure> {
    Ok(store.delete(&object_key(name)?).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_sort_by_the_time_their_manifest_was_written() {
        let written = |second| Some(WrittenAt(Timestamp::from_second(second).ok()));
        let catalog: Catalog = [
            ("a", written(5)),
            ("b", None),
            ("c", written(9)),
            ("d", written(7)),
        ]
        .into_iter()
        .map(|(object, manifest)| {
            let entry = Entry {
                manifest,
                ..Entry::default()
            };
            (object.to_owned(), entry)
        })
        .collect();
        assert_eq!(newest_first(&catalog), ["c", "d", "a"]);
    }
}
