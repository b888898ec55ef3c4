//! Finding a bucket, a key or the right edge by reading only the way to it.

use super::Error;
use super::damage::{Damage, Place, What, shown};
use super::layout::{BUCKET, DEEPEST, u64_at};
use super::meta::Meta;
use super::page::{self, Page};
use super::tree::{Entry, Visit, within};
use crate::source::ReadAt;

/// A bucket: where its keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Its name; empty for the tree of buckets itself.
    pub name: Vec<u8>,
    /// Where its keys are.
    pub root: Root,
}

/// Where the keys of a bucket are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// In a tree from this page on.
    Page(u64),
    /// In a page within the bucket's own value.
    Inline {
        /// In the file.
        place: u64,
        /// Of the page.
        length: u64,
    },
}

impl Bucket {
    /// The tree of buckets.
    pub(super) fn top(meta: &Meta) -> Self {
        Self {
            name: Vec::new(),
            root: Root::Page(meta.root),
        }
    }

    pub(super) fn is_top(&self) -> bool {
        self.name.is_empty()
    }

    pub(super) fn shown(&self) -> Option<String> {
        (!self.is_top()).then(|| shown(&self.name))
    }

    /// What an entry of the tree of buckets is.
    fn of<S: ReadAt>(source: &mut S, entry: &Entry<'_>) -> Result<Self, Error> {
        let length = entry.value.length;
        let wrong = |what| Damage {
            place: entry.place.clone(),
            what,
        };
        let head = entry.value.part(0, BUCKET as u64);
        let head = head.whole(source, BUCKET)?.unwrap_or_default();
        if head.len() < BUCKET {
            return Err(wrong(What::ShortBucket { length }).into());
        }
        let root = match u64_at(&head, 0) {
            0 => Root::Inline {
                place: entry.value.place + BUCKET as u64,
                length: length - BUCKET as u64,
            },
            _ if length > BUCKET as u64 => {
                let why = "it has both a page of its own and one within";
                return Err(wrong(What::Inline { why }).into());
            }
            page => Root::Page(page),
        };
        Ok(Self {
            name: entry.key.to_vec(),
            root,
        })
    }
}

/// Collects the buckets of a walk over the tree of buckets.
pub(super) struct Collector {
    pub found: Vec<Bucket>,
    most: usize,
}

impl Collector {
    pub fn new(most: usize) -> Self {
        Self {
            found: Vec::new(),
            most,
        }
    }
}

impl<S: ReadAt> Visit<S> for Collector {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        if self.found.len() == self.most {
            let (place, what) = (Place::file(), What::Buckets { most: self.most });
            return Err(Damage { place, what }.into());
        }
        self.found.push(Bucket::of(source, entry)?);
        Ok(())
    }
}

/// Which child to go to.
enum Way<'a> {
    To(&'a [u8]),
    Last,
}

/// The leaf where a way ends.
fn leaf<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    bucket: &Bucket,
    way: &Way<'_>,
) -> Result<Page, Error> {
    let mut number = match bucket.root {
        Root::Page(number) => number,
        Root::Inline { place, length } => {
            let opened = page::open_inline(source, meta.page_size, place, length, bucket.shown())?;
            let page = opened.elements(source, meta.page_size)?;
            page.judge_keys(source, None, None)?;
            return Ok(page);
        }
    };
    let mut from = Place {
        bucket: bucket.shown(),
        ..Place::file()
    };
    for _ in 0..DEEPEST {
        within(number, pages, from)?;
        let page =
            page::open(source, meta, pages, number, bucket.shown())?.elements(source, meta.page_size)?;
        page.judge_keys(source, None, None)?;
        if !page.is_branch {
            return Ok(page);
        }
        let Some(last) = page.elements.len().checked_sub(1) else {
            return Err(page.spot.damage(None, What::EmptyBranch).into());
        };
        let index = match way {
            Way::Last => last,
            Way::To(key) => before_or_at(source, &page, key)?,
        };
        number = page.elements[index].child;
        from = page.spot.at(Some(index));
    }
    let what = What::TooDeep { deepest: DEEPEST };
    Err(Damage { place: from, what }.into())
}

/// The last child whose first key is not behind this one; the first if there is none.
fn before_or_at<S: ReadAt>(source: &mut S, page: &Page, key: &[u8]) -> Result<usize, Error> {
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

/// The bucket of this name.
pub(super) fn bucket<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    name: &[u8],
) -> Result<Option<Bucket>, Error> {
    let top = Bucket::top(meta);
    let page = leaf(source, meta, pages, &top, &Way::To(name))?;
    for index in 0..page.elements.len() {
        let key = page.key(source, index)?;
        if *key != *name {
            continue;
        }
        if !page.elements[index].is_bucket {
            return Err(page.spot.damage(Some(index), What::NoBucket).into());
        }
        let entry = Entry {
            place: page.spot.at(Some(index)),
            bucket: &[],
            key: &key,
            value: page.value(index),
        };
        return Bucket::of(source, &entry).map(Some);
    }
    Ok(None)
}

/// The last key of a bucket.
pub(super) fn last<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    bucket: &Bucket,
) -> Result<Option<Vec<u8>>, Error> {
    let page = leaf(source, meta, pages, bucket, &Way::Last)?;
    match page.elements.len().checked_sub(1) {
        Some(last) => Ok(Some(page.key(source, last)?.into_owned())),
        None => Ok(None),
    }
}
