//! Finds a bucket or the last key of a bucket. Reads only the pages on the way to it.

use super::Error;
use super::damage::{Damage, DamageKind, Location, printable};
use super::format::{BUCKET_HEADER_SIZE, MAX_DEPTH, u64_at};
use super::meta::Meta;
use super::tree::{Entry, Visitor, check_reference};
use super::tree_page::{self, Page};
use crate::source::ReadAt;

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// The name. Empty for the root bucket.
    pub name: Vec<u8>,
    /// Where the keys are.
    pub root: BucketRoot,
}

/// Where the keys of a bucket are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketRoot {
    /// In a tree with this root page.
    Page(u64),
    /// In a page within the value of the bucket.
    Inline {
        /// The offset in the file.
        offset: u64,
        /// The size of the page.
        length: u64,
    },
}

impl Bucket {
    /// The root bucket, which contains all other buckets.
    pub(super) fn root_bucket(meta: &Meta) -> Self {
        Self {
            name: Vec::new(),
            root: BucketRoot::Page(meta.root),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.name.is_empty()
    }

    pub(super) fn display_name(&self) -> Option<String> {
        (!self.is_root()).then(|| printable(&self.name))
    }

    /// Parses an entry of the root bucket.
    fn parse<S: ReadAt>(source: &mut S, entry: &Entry<'_>) -> Result<Self, Error> {
        let length = entry.value.length;
        let damage = |kind| Damage {
            location: entry.location.clone(),
            kind,
        };
        let head = entry.value.slice(0, BUCKET_HEADER_SIZE as u64);
        let head = head.read_all(source, BUCKET_HEADER_SIZE)?.unwrap_or_default();
        if head.len() < BUCKET_HEADER_SIZE {
            return Err(damage(DamageKind::BucketHeader { length }).into());
        }
        let root = match u64_at(&head, 0) {
            0 => BucketRoot::Inline {
                offset: entry.value.offset + BUCKET_HEADER_SIZE as u64,
                length: length - BUCKET_HEADER_SIZE as u64,
            },
            _ if length > BUCKET_HEADER_SIZE as u64 => {
                let why = "it has both a root page and an inline page";
                return Err(damage(DamageKind::InlineBucket { why }).into());
            }
            page => BucketRoot::Page(page),
        };
        Ok(Self {
            name: entry.key.to_vec(),
            root,
        })
    }
}

/// A visitor that collects the entries of the root bucket.
pub(super) struct BucketCollector {
    pub found: Vec<Bucket>,
    max: usize,
}

impl BucketCollector {
    pub fn new(max: usize) -> Self {
        Self {
            found: Vec::new(),
            max,
        }
    }
}

impl<S: ReadAt> Visitor<S> for BucketCollector {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        if self.found.len() == self.max {
            let (location, kind) = (Location::file(), DamageKind::TooManyBuckets { max: self.max });
            return Err(Damage { location, kind }.into());
        }
        self.found.push(Bucket::parse(source, entry)?);
        Ok(())
    }
}

/// What to descend to.
enum Target<'a> {
    Key(&'a [u8]),
    Last,
}

/// Descends to a leaf page.
fn find_leaf<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    bucket: &Bucket,
    target: &Target<'_>,
) -> Result<Page, Error> {
    let mut number = match bucket.root {
        BucketRoot::Page(number) => number,
        BucketRoot::Inline { offset, length } => {
            let head =
                tree_page::read_inline_head(source, meta.page_size, offset, length, bucket.display_name())?;
            let page = head.parse_elements(source, meta.page_size)?;
            page.check_keys(source, None, None)?;
            return Ok(page);
        }
    };
    let mut from = Location {
        bucket: bucket.display_name(),
        ..Location::file()
    };
    for _ in 0..MAX_DEPTH {
        check_reference(number, pages, from)?;
        let page = tree_page::read_head(source, meta, pages, number, bucket.display_name())?
            .parse_elements(source, meta.page_size)?;
        page.check_keys(source, None, None)?;
        if !page.is_branch {
            return Ok(page);
        }
        let Some(last) = page.elements.len().checked_sub(1) else {
            return Err(page.location.damage(None, DamageKind::EmptyBranch).into());
        };
        let index = match target {
            Target::Last => last,
            Target::Key(key) => child_for_key(source, &page, key)?,
        };
        number = page.elements[index].child;
        from = page.location.at_element(Some(index));
    }
    let kind = DamageKind::TooDeep { max: MAX_DEPTH };
    Err(Damage { location: from, kind }.into())
}

/// The last child whose first key is not after `key`, or the first child.
fn child_for_key<S: ReadAt>(source: &mut S, page: &Page, key: &[u8]) -> Result<usize, Error> {
    let (mut from, mut until) = (0, page.elements.len());
    while from < until {
        let middle = usize::midpoint(from, until);
        if *page.key(source, middle)? <= *key {
            from = middle + 1;
        } else {
            until = middle;
        }
    }
    Ok(from.saturating_sub(1))
}

/// Finds a bucket by name.
pub(super) fn find_bucket<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    name: &[u8],
) -> Result<Option<Bucket>, Error> {
    let root_bucket = Bucket::root_bucket(meta);
    let page = find_leaf(source, meta, pages, &root_bucket, &Target::Key(name))?;
    for index in 0..page.elements.len() {
        let key = page.key(source, index)?;
        if *key != *name {
            continue;
        }
        if !page.elements[index].is_bucket {
            return Err(page.location.damage(Some(index), DamageKind::NotABucket).into());
        }
        let entry = Entry {
            location: page.location.at_element(Some(index)),
            bucket: &[],
            key: &key,
            value: page.value(index),
        };
        return Bucket::parse(source, &entry).map(Some);
    }
    Ok(None)
}

/// The last key of a bucket.
pub(super) fn last_key<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    bucket: &Bucket,
) -> Result<Option<Vec<u8>>, Error> {
    let page = find_leaf(source, meta, pages, bucket, &Target::Last)?;
    match page.elements.len().checked_sub(1) {
        Some(last) => Ok(Some(page.key(source, last)?.into_owned())),
        None => Ok(None),
    }
}
