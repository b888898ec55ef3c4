//! Walking a tree without recursion: each page once, judged before its elements are visited.

use super::bits::Bits;
use super::damage::{Damage, Place, What, shown};
use super::findings::Findings;
use super::layout::DEEPEST;
use super::meta::Meta;
use super::page::{self, Page};
use super::search::{Bucket, Root};
use super::value::Value;
use super::{Error, Walked};
use crate::source::ReadAt;

/// Which way a tree is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Forward,
    Backward,
}

/// A key of a bucket.
pub(crate) struct Entry<'a> {
    /// Where it is.
    pub place: Place,
    /// Its bucket.
    pub bucket: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Value<'a>,
}

impl Entry<'_> {
    /// The damage of an entry that is not as etcd writes it.
    pub fn wrong(&self, why: &str) -> Error {
        Error::from(Damage {
            place: self.place.clone(),
            what: What::Content {
                key: shown(self.key),
                why: why.to_owned(),
            },
        })
    }
}

/// What is done with each key.
pub(crate) trait Visit<S> {
    /// Another bucket begins.
    fn bucket(&mut self, _name: &[u8]) {}
    /// Looks at a key. Damage is collected or ends the walk, as whoever walks wants it.
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error>;
}

/// What a walk must not do, and where it says what it found.
pub(super) struct Guard<'a> {
    /// Pages that were reached, with those that continue them.
    pub reached: &'a mut Bits,
    /// Pages that were reached, without.
    pub heads: &'a mut Bits,
    /// Where damage goes; without it, it ends the walk.
    pub findings: Option<&'a mut Findings>,
    /// What was seen.
    pub walked: &'a mut Walked,
    /// How many pages there are.
    pub pages: u64,
}

impl Guard<'_> {
    /// Collects damage if that is wanted.
    fn take<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
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

/// A page on the way, and the elements of it that are left.
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
    order: Order,
    guard: &mut Guard<'_>,
    visit: &mut dyn Visit<S>,
) -> Result<(), Error> {
    let mut levels: Vec<Level> = Vec::new();
    let root = root(source, meta, bucket, guard);
    if let Some(page) = guard.take(root)? {
        push(&mut levels, page, None);
    }
    while let Some(level) = levels.last_mut() {
        let index = match order {
            Order::Forward => level.left.next(),
            Order::Backward => level.left.next_back(),
        };
        let Some(index) = index else {
            levels.pop();
            continue;
        };
        if level.page.is_branch {
            let result = child(source, meta, bucket, &levels, index, guard);
            if let Some((page, until)) = guard.take(result)? {
                push(&mut levels, page, until);
            }
        } else {
            let result = visit_one(source, bucket, &level.page, index, visit);
            guard.take(result)?;
        }
    }
    Ok(())
}

fn push(levels: &mut Vec<Level>, page: Page, until: Option<Vec<u8>>) {
    let left = 0..page.elements.len();
    levels.push(Level { page, left, until });
}

fn visit_one<S: ReadAt>(
    source: &mut S,
    bucket: &Bucket,
    page: &Page,
    index: usize,
    visit: &mut dyn Visit<S>,
) -> Result<(), Error> {
    let is_bucket = page.elements[index].is_bucket;
    if is_bucket != bucket.is_top() {
        let what = if is_bucket { What::Nested } else { What::NoBucket };
        return Err(page.spot.damage(Some(index), what).into());
    }
    let key = page.key(source, index)?;
    let entry = Entry {
        place: page.spot.at(Some(index)),
        bucket: &bucket.name,
        key: &key,
        value: page.value(index),
    };
    visit.entry(source, &entry)
}

fn root<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    guard: &mut Guard<'_>,
) -> Result<Page, Error> {
    let page = match bucket.root {
        Root::Page(number) => {
            let from = Place {
                bucket: bucket.shown(),
                ..Place::file()
            };
            load(source, meta, bucket, number, from, guard)?
        }
        Root::Inline { place, length } => {
            let opened = page::open_inline(source, meta.page_size, place, length, bucket.shown())?;
            opened.elements(source, meta.page_size)?
        }
    };
    page.judge_keys(source, None, None)?;
    // A bucket that is emptied moves into its parent's page, so none has an empty page of its own.
    if page.elements.is_empty() && page.spot.number.is_some() && !bucket.is_top() {
        return Err(page.spot.damage(None, What::EmptyLeaf).into());
    }
    Ok(page)
}

fn child<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    levels: &[Level],
    index: usize,
    guard: &mut Guard<'_>,
) -> Result<(Page, Option<Vec<u8>>), Error> {
    let level = levels
        .last()
        .expect("the page whose child is asked for is on the way");
    let parent = &level.page;
    let number = parent.elements[index].child;
    if levels.len() >= DEEPEST {
        let what = What::TooDeep { deepest: DEEPEST };
        return Err(parent.spot.damage(Some(index), what).into());
    }
    if levels.iter().any(|level| level.page.spot.number == Some(number)) {
        let place = Place {
            page: Some(number),
            element: None,
            bucket: bucket.shown(),
        };
        return Err(Damage {
            place,
            what: What::Cycle,
        }
        .into());
    }
    let from = parent.key(source, index)?;
    let until = if index + 1 < parent.elements.len() {
        Some(parent.key(source, index + 1)?.into_owned())
    } else {
        level.until.clone()
    };
    let page = load(source, meta, bucket, number, parent.spot.at(Some(index)), guard)?;
    page.judge_keys(source, Some(&from), until.as_deref())?;
    if page.elements.is_empty() {
        return Err(page.spot.damage(None, What::EmptyLeaf).into());
    }
    Ok((page, until))
}

/// Reads a page that `from` refers to, if it may be part of a tree and of this one alone.
fn load<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    bucket: &Bucket,
    number: u64,
    from: Place,
    guard: &mut Guard<'_>,
) -> Result<Page, Error> {
    within(number, guard.pages, from)?;
    let opened = page::open(source, meta, guard.pages, number, bucket.shown())?;
    let length = u64::from(opened.overflow) + 1;
    if let Some(page) = guard.reached.set(number, length) {
        let what = if guard.heads.has(number) {
            What::Twice
        } else {
            What::Overlap { page }
        };
        let place = Place {
            bucket: bucket.shown(),
            ..Place::page(number)
        };
        return Err(Damage { place, what }.into());
    }
    guard.heads.set(number, 1);
    guard.walked.pages += length;
    let page = opened.elements(source, meta.page_size)?;
    if page.is_branch && page.elements.is_empty() {
        return Err(page.spot.damage(None, What::EmptyBranch).into());
    }
    Ok(page)
}

/// Whether a page may be referred to at all.
pub(super) fn within(page: u64, pages: u64, from: Place) -> Result<(), Damage> {
    let what = match page {
        0 | 1 => What::PointsToMeta { page },
        page if page >= pages => What::OutOfBounds { page, pages },
        _ => return Ok(()),
    };
    Err(Damage { place: from, what })
}
