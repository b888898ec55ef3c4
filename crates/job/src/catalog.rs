//! What lies in a store at a path: objects, their manifests, claims on them. Whose something is only its manifest or its
//! claim tells, never its name.

use std::collections::BTreeMap;

use bytes::Bytes;
use etcd_operator_api::contract::{self, Claim, Document, Manifest};
use etcd_operator_store::error::Class;
use etcd_operator_store::{CreateOutcome, Key, Store, backend};
use jiff::Timestamp;

use crate::failure::Failure;
use crate::names::{self, Kind};

/// The largest manifest that is read: one of a terabyte is half as large.
const LARGEST: u64 = 32 << 20;

/// What lies under the name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of the object, if it is there.
    pub size: Option<u64>,
    /// Whether it has a manifest, and since when.
    pub manifest: Option<Written>,
    /// Whether there is a claim on it.
    pub has_claim: bool,
}

/// When something was written, as far as the store says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written(pub Option<Timestamp>);

/// The backups at a path, or below a prefix, by the names of their objects.
pub type Catalog = BTreeMap<String, Entry>;

/// Which names count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach<'a> {
    /// Those of backups to this path.
    Path(&'a str),
    /// Whatever begins so.
    Prefix(&'a str),
}

/// Looks what is there.
pub async fn read(store: &Store, reach: Reach<'_>) -> Result<Catalog, Failure> {
    let (Reach::Path(prefix) | Reach::Prefix(prefix)) = reach;
    let mut catalog = Catalog::new();
    for found in store.list(prefix).await? {
        let (object, kind) = names::parse(&found.name);
        if matches!(reach, Reach::Path(path) if !names::belongs(object, path)) {
            continue;
        }
        let entry = catalog.entry(object.to_owned()).or_default();
        match kind {
            Kind::Object => entry.size = Some(found.size),
            Kind::Manifest => entry.manifest = Some(Written(found.modified)),
            Kind::Claim => entry.has_claim = true,
        }
    }
    Ok(catalog)
}

/// The objects with manifests, the one written last first.
pub fn newest(catalog: &Catalog) -> Vec<&str> {
    let mut with: Vec<(Written, &str)> = catalog
        .iter()
        .filter_map(|(object, entry)| entry.manifest.map(|written| (written, object.as_str())))
        .collect();
    with.sort_unstable();
    with.into_iter().rev().map(|(_, object)| object).collect()
}

/// A name as a key of a store.
pub fn key(name: &str) -> Result<Key, Failure> {
    Key::new(name).map_err(|bad| Failure::order(bad.to_string()))
}

/// A document that may be there. One of a later version, or none at all, is nobody's that is known here.
async fn document<D: Document>(store: &Store, name: &str) -> Result<Option<D>, Failure> {
    match store.read_small(&key(name)?, LARGEST).await {
        Ok(bytes) => match contract::read(&bytes) {
            Ok(document) => Ok(Some(document)),
            Err(error) => {
                tracing::warn!(name, %error, "this document is left alone");
                Ok(None)
            }
        },
        Err(error) if error.class == Class::NotFound => Ok(None),
        Err(error) if is_of_this_one(store, error.class) => {
            tracing::warn!(name, %error, "this document cannot be read and is left alone");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether only this name cannot be read, so that nothing else has to wait for it: what is too large, and on a volume what
/// is no plain file or another user's.
fn is_of_this_one(store: &Store, class: Class) -> bool {
    let is_file = store.location().kind == backend::Kind::Local;
    class == Class::Corrupt || (is_file && matches!(class, Class::Forbidden | Class::Unsupported))
}

/// The manifest of an object, if it has one that is of this object and can be read.
pub async fn manifest(store: &Store, object: &str) -> Result<Option<Manifest>, Failure> {
    let found: Option<Manifest> = document(store, &names::manifest(object)).await?;
    Ok(found.filter(|manifest| manifest.object == object))
}

/// The claim on an object.
pub async fn claim(store: &Store, object: &str) -> Result<Option<Claim>, Failure> {
    let found: Option<Claim> = document(store, &names::claim(object)).await?;
    Ok(found.filter(|claim| claim.object == object))
}

/// Writes a document that must not be there.
pub async fn create<D: Document>(store: &Store, name: &str, document: &D) -> Result<CreateOutcome, Failure> {
    let body = Bytes::from(contract::write(document));
    Ok(store.create(&key(name)?, body).await?)
}

/// Deletes what has this name, if anything does.
pub async fn delete(store: &Store, name: &str) -> Result<(), Failure> {
    Ok(store.delete(&key(name)?).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_told_by_when_its_manifest_was_written() {
        let written = |second| Some(Written(Timestamp::from_second(second).ok()));
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
        assert_eq!(newest(&catalog), ["c", "d", "a"]);
    }
}
