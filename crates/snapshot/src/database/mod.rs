//! Reads files of bbolt, the database of etcd. The bytes are untrusted: memory and work are bounded, damage
//! is reported with its location, and nothing panics or recurses.
//!
//! A file consists of pages of one size. The first two are meta pages, written alternately. The valid one
//! with the newer transaction refers to the root bucket, a tree that contains all other buckets. Each bucket
//! is a tree of its own, or a page within a value of its parent. [`content`](crate::content) interprets what
//! etcd stores in the buckets.

mod damage;
mod findings;
mod format;
mod freelist;
mod meta;
mod page_set;
mod search;
mod tree;
mod tree_page;
mod value;

pub use damage::{Damage, DamageKind, Location};
pub use findings::Findings;
pub use meta::Meta;
pub use value::Value;

pub(crate) use damage::printable;
pub(crate) use search::Bucket;
pub(crate) use tree::{Direction, Entry, Visitor};

use crate::source::{ReadAt, ReadError};
use page_set::PageSet;

/// Why a database could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading its bytes failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// etcd could not have written these bytes.
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// The size of the SHA-256 that etcd appends to a snapshot, in bytes.
pub const HASH_SIZE: u64 = 32;
/// The size of a database is a multiple of its page size, and therefore of this. An appended hash shows in
/// the remainder.
const SIZE_UNIT: u64 = 512;
/// The maximum number of buckets. etcd creates ten.
const MAX_BUCKETS: usize = 256;

/// An open database.
#[derive(Debug)]
pub struct Database<S> {
    source: S,
    meta: Meta,
    /// The size of the file in bytes, without an appended hash.
    length: u64,
    has_hash: bool,
    /// Damage of the meta pages, of which at least one is valid.
    meta_damage: Vec<Damage>,
}

impl<S: ReadAt> Database<S> {
    /// Opens a database with the newer valid meta page. Reads only the meta pages.
    pub fn open(mut source: S) -> Result<Self, Error> {
        let whole = source.length();
        let has_hash = whole % SIZE_UNIT == HASH_SIZE;
        let length = if has_hash { whole - HASH_SIZE } else { whole };
        let (meta, meta_damage) = meta::read_metas(&mut source, length)?;
        Ok(Self {
            source,
            meta,
            length,
            has_hash,
            meta_damage,
        })
    }

    /// The current meta page.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The size of the database in bytes, without an appended hash.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether a hash is appended. etcd appends it to snapshots, but not to its database file.
    pub fn has_hash(&self) -> bool {
        self.has_hash
    }

    /// Returns the source.
    pub fn into_source(self) -> S {
        self.source
    }

    /// The number of pages according to the meta page, limited by the size of the file.
    fn pages(&self) -> u64 {
        self.meta.pages.min(self.length / self.meta.page_size)
    }

    /// Reads every page and key, and collects everything that bbolt would not have written. Calls `visitor`
    /// for every readable key of every bucket, and collects the damage that it reports.
    ///
    /// Needs three bits of memory per page of the file.
    pub(crate) fn walk(
        &mut self,
        visitor: &mut dyn Visitor<S>,
        findings: &mut Findings,
    ) -> Result<WalkResult, Error> {
        let pages = self.pages();
        let (mut used, mut first_pages) = (PageSet::with_limit(pages), PageSet::with_limit(pages));
        used.insert_run(0, 2);
        for meta_damage in &self.meta_damage {
            findings.add(meta_damage.clone());
        }
        meta::check_length(&self.meta, self.length, self.has_hash, findings);
        if self.has_hash && self.meta_damage.is_empty() {
            meta::check_metas_equal(&mut self.source, &self.meta, findings)?;
        }
        let free = freelist::read_freelist(&mut self.source, &self.meta, pages, &mut used, findings)?;
        let mut result = WalkResult::default();
        let mut buckets = search::BucketCollector::new(MAX_BUCKETS);
        let mut state = tree::WalkState {
            used: &mut used,
            first_pages: &mut first_pages,
            findings: Some(findings),
            result: &mut result,
            pages,
        };
        let (source, meta) = (&mut self.source, &self.meta);
        let root_bucket = Bucket::root_bucket(meta);
        tree::walk(
            source,
            meta,
            &root_bucket,
            Direction::Forward,
            &mut state,
            &mut buckets,
        )?;
        for bucket in &buckets.found {
            visitor.bucket(&bucket.name);
            tree::walk(source, meta, bucket, Direction::Forward, &mut state, visitor)?;
        }
        if let Some(free) = free {
            freelist::check_freelist(&free, &used, pages, findings);
        }
        result.buckets = buckets.found;
        Ok(result)
    }

    /// Visits every key of a bucket in this direction. Stops at the first damage. No page is read twice.
    pub(crate) fn visit_bucket(
        &mut self,
        bucket: &Bucket,
        direction: Direction,
        visitor: &mut dyn Visitor<S>,
    ) -> Result<(), Error> {
        let pages = self.pages();
        let mut state = tree::WalkState {
            used: &mut PageSet::with_limit(pages),
            first_pages: &mut PageSet::with_limit(pages),
            findings: None,
            result: &mut WalkResult::default(),
            pages,
        };
        tree::walk(
            &mut self.source,
            &self.meta,
            bucket,
            direction,
            &mut state,
            visitor,
        )
    }

    /// Finds a bucket by name. Reads only the pages on the way to it.
    pub(crate) fn find_bucket(&mut self, name: &[u8]) -> Result<Option<Bucket>, Error> {
        let pages = self.pages();
        search::find_bucket(&mut self.source, &self.meta, pages, name)
    }

    /// The last key of a bucket. Reads only the pages on the way to it.
    pub(crate) fn last_key(&mut self, bucket: &Bucket) -> Result<Option<Vec<u8>>, Error> {
        let pages = self.pages();
        search::last_key(&mut self.source, &self.meta, pages, bucket)
    }
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    /// The number of pages in trees, including overflow pages.
    pub pages: u64,
    /// The buckets, sorted by name.
    pub buckets: Vec<Bucket>,
}
