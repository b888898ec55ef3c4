//! Files of bbolt, the database below etcd, as bytes that nobody vouches for: read only, with bounded memory and
//! bounded work. Damage is an error that says where; nothing here panics, recurses or allocates as the file wishes.
//!
//! A file is pages of one size. The first two are metas that take turns; the valid one of the last transaction names
//! the root: a tree of buckets, each of which is a tree, or a page within its parent's value. What etcd keeps in the
//! buckets is for [`content`](crate::content) to know.

mod bits;
mod damage;
mod findings;
mod freelist;
mod layout;
mod meta;
mod page;
mod search;
mod tree;
mod value;

pub use damage::{Damage, Place, What};
pub use findings::Findings;
pub use meta::Meta;
pub use value::Value;

pub(crate) use damage::shown;
pub(crate) use search::Bucket;
pub(crate) use tree::{Entry, Order, Visit};

use crate::source::{ReadAt, ReadError};
use bits::Bits;

/// Why a database was not read to the end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its bytes did not come.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its bytes are no database that etcd could have written.
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// What etcd appends to a snapshot: the SHA-256 of all before it.
pub const HASH: u64 = 32;
/// The unit every file of a database is a multiple of, so that an appended hash shows.
const UNIT: u64 = 512;
/// etcd makes ten; more than this is no database of its.
const MOST_BUCKETS: usize = 256;

/// An open database.
#[derive(Debug)]
pub struct Database<S> {
    source: S,
    meta: Meta,
    /// Bytes of the file without an appended hash.
    length: u64,
    has_hash: bool,
    /// What is wrong with the metas, of which one is good enough to go on.
    torn: Vec<Damage>,
}

impl<S: ReadAt> Database<S> {
    /// Opens a database by whichever meta page is valid and newer. Reads only the head of the file.
    pub fn open(mut source: S) -> Result<Self, Error> {
        let whole = source.length();
        let has_hash = whole % UNIT == HASH;
        let length = if has_hash { whole - HASH } else { whole };
        let (meta, torn) = meta::read(&mut source, length)?;
        Ok(Self {
            source,
            meta,
            length,
            has_hash,
            torn,
        })
    }

    /// The meta page in force.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Bytes of the database, without an appended hash.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether a hash is appended, as etcd does to a snapshot and not to its own file.
    pub fn has_hash(&self) -> bool {
        self.has_hash
    }

    /// Gives the source back.
    pub fn into_source(self) -> S {
        self.source
    }

    /// How many pages there are, by the meta and by the file.
    fn pages(&self) -> u64 {
        self.meta.pages.min(self.length / self.meta.page_size)
    }

    /// Walks every page and every key, and collects whatever is not as bbolt writes it. `visit` is given every key of
    /// every bucket that could be read; what it says of a key's meaning is collected too.
    ///
    /// Memory is bounded by three bits for each page of the file.
    pub(crate) fn walk(
        &mut self,
        visit: &mut dyn Visit<S>,
        findings: &mut Findings,
    ) -> Result<Walked, Error> {
        let pages = self.pages();
        let (mut reached, mut heads) = (Bits::of(pages), Bits::of(pages));
        reached.set(0, 2);
        for torn in &self.torn {
            findings.add(torn.clone());
        }
        meta::fits(&self.meta, self.length, self.has_hash, findings);
        if self.has_hash && self.torn.is_empty() {
            meta::same(&mut self.source, &self.meta, findings)?;
        }
        let free = freelist::read(&mut self.source, &self.meta, pages, &mut reached, findings)?;
        let mut walked = Walked::default();
        let mut buckets = search::Collector::new(MOST_BUCKETS);
        let mut guard = tree::Guard {
            reached: &mut reached,
            heads: &mut heads,
            findings: Some(findings),
            walked: &mut walked,
            pages,
        };
        let (source, meta) = (&mut self.source, &self.meta);
        let top = Bucket::top(meta);
        tree::walk(source, meta, &top, Order::Forward, &mut guard, &mut buckets)?;
        for bucket in &buckets.found {
            visit.bucket(&bucket.name);
            tree::walk(source, meta, bucket, Order::Forward, &mut guard, visit)?;
        }
        if let Some(free) = free {
            freelist::compare(&free, &reached, pages, findings);
        }
        walked.buckets = buckets.found;
        Ok(walked)
    }

    /// Visits every key of a bucket in this order, and stops at the first damage. No page is visited twice.
    pub(crate) fn each(
        &mut self,
        bucket: &Bucket,
        order: Order,
        visit: &mut dyn Visit<S>,
    ) -> Result<(), Error> {
        let pages = self.pages();
        let mut guard = tree::Guard {
            reached: &mut Bits::of(pages),
            heads: &mut Bits::of(pages),
            findings: None,
            walked: &mut Walked::default(),
            pages,
        };
        tree::walk(&mut self.source, &self.meta, bucket, order, &mut guard, visit)
    }

    /// The bucket of this name, if there is one. Reads only the way to it.
    pub(crate) fn bucket(&mut self, name: &[u8]) -> Result<Option<Bucket>, Error> {
        let pages = self.pages();
        search::bucket(&mut self.source, &self.meta, pages, name)
    }

    /// The last key of a bucket: its right edge. Reads only the way to it.
    pub(crate) fn last(&mut self, bucket: &Bucket) -> Result<Option<Vec<u8>>, Error> {
        let pages = self.pages();
        search::last(&mut self.source, &self.meta, pages, bucket)
    }
}

/// What a walk has seen.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Pages in trees, those that only continue another one included.
    pub pages: u64,
    /// The buckets, in the order of their names.
    pub buckets: Vec<Bucket>,
}
