//! Walks a tree without recursion. Each page is read once and checked before its elements are visited.

use super::damage::{Damage, DamageKind, Location, printable};
use super::findings::Findings;
use super::format::MAX_DEPTH;
use super::meta::Meta;
use super::page_set::PageSet;
use super::search::{Bucket, BucketRoot};
use super::tree_page::{self, Page};
use super::value::Value;
use super::{Error, WalkResult};
use crate::source::ReadAt;

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// A key of a bucket with its value.
pub(crate) struct Entry<'a> {
    /// Where the element is.
    pub location: Location,
    /// The name of the bucket.
    pub bucket: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

impl Entry<'_> {
    /// Reports that etcd would not have written this entry.
    pub fn damage(&self, why: &str) -> Error {
        Error::from(Damage {
            location: self.location.clone(),
            kind: DamageKind::InvalidContent {
                key: printable(self.key),
                why: why.to_owned(),
            },
        })
    }
}

/// Receives the keys of a walk.
pub(crate) trait Visitor<S> {
    /// Called when a bucket begins.
    fn bucket(&mut self, _name: &[u8]) {}
    /// Called for each key. The walk collects reported damage, or ends with it.
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error>;
}

/// The state of a walk: the pages seen so far, the damage and the result.
pub(super) struct WalkState<'a> {
    /// All pages seen, including overflow pages.
    pub used: &'a mut PageSet,
    /// The pages seen, without overflow pages.
    pub first_pages: &'a mut PageSet,
    /// Collects damage. If it is `None`, damage ends the walk.
    pub findings: Option<&'a mut Findings>,
    /// The result.
    pub result: &'a mut WalkResult,
    /// The number of pages in the file.
    pub pages: u64,
}

impl WalkState<'_> {
    /// Collects damage if `findings` is set, else returns it.
    fn collect<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match (result, &mut self.findings) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(Error::Damage(damage)), Some(findings)) => {
                findings.add(damage);
                Ok(None)
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// A page on the current path, and the elements that are left to visit.
struct Level {
    page: Page,
    left: std::ops::Range<usize>,
    until: Option<Vec<u8>>,
}

/// Visits every key of a bucket.
pub(super) fn walk<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    direction: Direction,
    state: &mut WalkState<'_>,
    visitor: &mut dyn Visitor<S>,
) -> Result<(), Error> {
    let mut levels: Vec<Level> = Vec::new();
    let root = load_root(source, meta, bucket, state);
    if let Some(page) = state.collect(root)? {
        push(&mut levels, page, None);
    }
    while let Some(level) = levels.last_mut() {
        let index = match direction {
            Direction::Forward => level.left.next(),
            Direction::Backward => level.left.next_back(),
        };
        let Some(index) = index else {
            levels.pop();
            continue;
        };
        if level.page.is_branch {
            let result = load_child(source, meta, bucket, &levels, index, state);
            if let Some((page, until)) = state.collect(result)? {
                push(&mut levels, page, until);
            }
        } else {
            let result = visit_element(source, bucket, &level.page, index, visitor);
            state.collect(result)?;
        }
    }
    Ok(())
}

fn push(levels: &mut Vec<Level>, page: Page, until: Option<Vec<u8>>) {
    let left = 0..page.elements.len();
    levels.push(Level { page, left, until });
}

fn visit_element<S: ReadAt>(
    source: &mut S,
    bucket: &Bucket,
    page: &Page,
    index: usize,
    visitor: &mut dyn Visitor<S>,
) -> Result<(), Error> {
    let is_bucket = page.elements[index].is_bucket;
    if is_bucket != bucket.is_root() {
        let kind = if is_bucket {
            DamageKind::NestedBucket
        } else {
            DamageKind::NotABucket
        };
        return Err(page.location.damage(Some(index), kind).into());
    }
    let key = page.key(source, index)?;
    let entry = Entry {
        location: page.location.at_element(Some(index)),
        bucket: &bucket.name,
        key: &key,
        value: page.value(index),
    };
    visitor.entry(source, &entry)
}

fn load_root<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    state: &mut WalkState<'_>,
) -> Result<Page, Error> {
    let page = match bucket.root {
        BucketRoot::Page(number) => {
            let from = Location {
                bucket: bucket.display_name(),
                ..Location::file()
            };
            load_page(source, meta, bucket, number, from, state)?
        }
        BucketRoot::Inline { offset, length } => {
            let head =
                tree_page::read_inline_head(source, meta.page_size, offset, length, bucket.display_name())?;
            head.parse_elements(source, meta.page_size)?
        }
    };
    page.check_keys(source, None, None)?;
    // bbolt moves an empty bucket into its parent's page, so no bucket has an empty root page.
    if page.elements.is_empty() && page.location.number.is_some() && !bucket.is_root() {
        return Err(page.location.damage(None, DamageKind::EmptyLeaf).into());
    }
    Ok(page)
}

fn load_child<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    levels: &[Level],
    index: usize,
    state: &mut WalkState<'_>,
) -> Result<(Page, Option<Vec<u8>>), Error> {
    let level = levels.last().expect("the parent page is on the path");
    let parent = &level.page;
    let number = parent.elements[index].child;
    if levels.len() >= MAX_DEPTH {
        let kind = DamageKind::TooDeep { max: MAX_DEPTH };
        return Err(parent.location.damage(Some(index), kind).into());
    }
    if levels
        .iter()
        .any(|level| level.page.location.number == Some(number))
    {
        let location = Location {
            page: Some(number),
            element: None,
            bucket: bucket.display_name(),
        };
        return Err(Damage {
            location,
            kind: DamageKind::Cycle,
        }
        .into());
    }
    let from = parent.key(source, index)?;
    let until = if index + 1 < parent.elements.len() {
        Some(parent.key(source, index + 1)?.into_owned())
    } else {
        level.until.clone()
    };
    let page = load_page(
        source,
        meta,
        bucket,
        number,
        parent.location.at_element(Some(index)),
        state,
    )?;
    page.check_keys(source, Some(&from), until.as_deref())?;
    if page.elements.is_empty() {
        return Err(page.location.damage(None, DamageKind::EmptyLeaf).into());
    }
    Ok((page, until))
}

/// Loads a page that `from` refers to. Fails if another element refers to the page, too.
fn load_page<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    number: u64,
    from: Location,
    state: &mut WalkState<'_>,
) -> Result<Page, Error> {
    check_reference(number, state.pages, from)?;
    let head = tree_page::read_head(source, meta, state.pages, number, bucket.display_name())?;
    let length = u64::from(head.overflow) + 1;
    if let Some(page) = state.used.insert_run(number, length) {
        let kind = if state.first_pages.contains(number) {
            DamageKind::ReferencedTwice
        } else {
            DamageKind::Overlap { page }
        };
        let location = Location {
            bucket: bucket.display_name(),
            ..Location::page(number)
        };
        return Err(Damage { location, kind }.into());
    }
    state.first_pages.insert_run(number, 1);
    state.result.pages += length;
    let page = head.parse_elements(source, meta.page_size)?;
    if page.is_branch && page.elements.is_empty() {
        return Err(page.location.damage(None, DamageKind::EmptyBranch).into());
    }
    Ok(page)
}

/// Checks that a page may be referred to: it is in the file and not a meta page.
pub(super) fn check_reference(page: u64, pages: u64, from: Location) -> Result<(), Damage> {
    let kind = match page {
        0 | 1 => DamageKind::RefersToMeta { page },
        page if page >= pages => DamageKind::OutOfBounds { page, pages },
        _ => return Ok(()),
    };
    Err(Damage { location: from, kind })
}
