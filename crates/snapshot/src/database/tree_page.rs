//! One page of a tree: its header, its elements, its keys; everything about it that can be judged by itself.

use std::borrow::Cow;

use super::Error;
use super::damage::{Damage, Place, What, shown};
use super::layout::{
    BRANCH, ELEMENT, FREELIST, HEADER, IS_BUCKET, LEAF, LONGEST_KEY, METAPAGE, u16_at, u32_at, u64_at,
};
use super::meta::Meta;
use super::value::Value;
use crate::source::ReadAt;

/// How much of a page is kept: more than any page without a huge value has.
const HEAD: u64 = 256 << 10;

/// Where a page is and how it is called in messages.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// In the file.
    pub place: u64,
    /// All of it, with the pages that continue it.
    pub length: u64,
    /// Its number, if it is not within a value.
    pub number: Option<u64>,
    /// Of its bucket.
    pub bucket: Option<String>,
}

impl Spot {
    pub fn damage(&self, element: Option<usize>, what: What) -> Damage {
        Damage {
            place: self.at(element),
            what,
        }
    }

    pub fn at(&self, element: Option<usize>) -> Place {
        Place {
            page: self.number,
            element,
            bucket: self.bucket.clone(),
        }
    }
}

/// An element of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub is_bucket: bool,
    /// Where its key begins in the page; the value follows.
    key: u64,
    key_length: u32,
    value_length: u32,
    /// Of a branch: the page below.
    pub child: u64,
}

/// A page whose elements are in order.
#[derive(Debug)]
pub(super) struct Page {
    pub spot: Spot,
    pub is_branch: bool,
    pub elements: Vec<Element>,
    head: Vec<u8>,
}

/// What the header of a page says, and as much of the page as was read with it.
pub(super) struct Opened {
    spot: Spot,
    is_branch: bool,
    count: u16,
    /// Pages that continue it.
    pub overflow: u32,
    head: Vec<u8>,
}

/// Reads the head of a page that is known to be within the file, and judges its header.
pub(super) fn open<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    number: u64,
    bucket: Option<String>,
) -> Result<Opened, Error> {
    let mut spot = Spot {
        place: number * meta.page_size,
        length: meta.page_size,
        number: Some(number),
        bucket,
    };
    let mut head = vec![0; usize::try_from(meta.page_size).unwrap_or(0)];
    source.read_at(spot.place, &mut head)?;
    let found = u64_at(&head, 0);
    if found != number {
        return Err(spot.damage(None, What::WrongId { found }).into());
    }
    let is_branch = match u16_at(&head, 8) {
        BRANCH => true,
        LEAF => false,
        METAPAGE => return Err(spot.damage(None, What::WrongType { found: "meta" }).into()),
        FREELIST => return Err(spot.damage(None, What::WrongType { found: "free list" }).into()),
        found => return Err(spot.damage(None, What::UnknownType { found }).into()),
    };
    let overflow = u32_at(&head, 12);
    if number + u64::from(overflow) >= pages {
        let (more, last) = (overflow, pages - 1);
        return Err(spot.damage(None, What::OverflowBeyond { more, last }).into());
    }
    spot.length = (u64::from(overflow) + 1) * meta.page_size;
    let kept = usize::try_from(spot.length.min(HEAD.max(meta.page_size))).unwrap_or(head.len());
    if kept > head.len() {
        let had = head.len();
        head.resize(kept, 0);
        source.read_at(spot.place + had as u64, &mut head[had..])?;
    }
    Ok(Opened {
        spot,
        is_branch,
        count: u16_at(&head, 10),
        overflow,
        head,
    })
}

/// Judges the header of a page within the value of a bucket. Such a value lies within one page, so it is short.
pub(super) fn open_inline<S: ReadAt>(
    source: &mut S,
    page_size: u64,
    place: u64,
    length: u64,
    bucket: Option<String>,
) -> Result<Opened, Error> {
    let spot = Spot {
        place,
        length,
        number: None,
        bucket,
    };
    let wrong = |why| Error::from(spot.damage(None, What::Inline { why }));
    if length > page_size {
        return Err(wrong("it is longer than a page"));
    }
    if length < HEADER as u64 {
        return Err(wrong("it is shorter than the header of a page"));
    }
    let mut head = vec![0; usize::try_from(length).unwrap_or(0)];
    source.read_at(place, &mut head)?;
    if u16_at(&head, 8) != LEAF {
        return Err(wrong("it is not a leaf"));
    }
    if u64_at(&head, 0) != 0 {
        return Err(wrong("it has a number"));
    }
    if u32_at(&head, 12) != 0 {
        return Err(wrong("it has pages that continue it"));
    }
    Ok(Opened {
        is_branch: false,
        count: u16_at(&head, 10),
        overflow: 0,
        head,
        spot,
    })
}

impl Opened {
    /// Judges the table of elements: that keys and values lie one behind the other and fill the page as bbolt fills it.
    pub fn elements<S: ReadAt>(self, source: &mut S, page_size: u64) -> Result<Page, Error> {
        let mut page = Page {
            spot: self.spot,
            is_branch: self.is_branch,
            elements: Vec::with_capacity(self.count.into()),
            head: self.head,
        };
        let spot = &page.spot;
        let count = self.count;
        let room = (spot.length - HEADER as u64) / ELEMENT as u64;
        if u64::from(count) > room {
            return Err(spot.damage(None, What::Count { count, room }).into());
        }
        let mut next = (HEADER + usize::from(count) * ELEMENT) as u64;
        for index in 0..usize::from(count) {
            let from = HEADER + index * ELEMENT;
            let bytes = page.bytes(source, from as u64, ELEMENT)?;
            let element = if page.is_branch {
                Ok(branch(&bytes))
            } else {
                leaf(&bytes)
            };
            let element = element.map_err(|what| spot.damage(Some(index), what))?;
            // Positions count from the element's own place in the table.
            let element = Element {
                key: element.key + from as u64,
                ..element
            };
            next = element
                .judge(next, spot.length)
                .map_err(|what| spot.damage(Some(index), what))?;
            page.elements.push(element);
        }
        page.judge_length(self.overflow, next, page_size)?;
        Ok(page)
    }
}

fn branch(bytes: &[u8]) -> Element {
    Element {
        is_bucket: false,
        key: u32_at(bytes, 0).into(),
        key_length: u32_at(bytes, 4),
        value_length: 0,
        child: u64_at(bytes, 8),
    }
}

fn leaf(bytes: &[u8]) -> Result<Element, What> {
    let found = u32_at(bytes, 0);
    if found & !IS_BUCKET != 0 {
        return Err(What::ElementFlags { found });
    }
    Ok(Element {
        is_bucket: found == IS_BUCKET,
        key: u32_at(bytes, 4).into(),
        key_length: u32_at(bytes, 8),
        value_length: u32_at(bytes, 12),
        child: 0,
    })
}

impl Element {
    /// Where the next one has to begin.
    fn judge(&self, wanted: u64, room: u64) -> Result<u64, What> {
        let length = u64::from(self.key_length);
        if self.key != wanted {
            return Err(What::NotNext {
                found: self.key,
                wanted,
            });
        }
        if length == 0 {
            return Err(What::EmptyKey);
        }
        let end = wanted + length + u64::from(self.value_length);
        if end > room {
            return Err(What::BeyondPage { end, length: room });
        }
        if length > LONGEST_KEY as u64 {
            return Err(What::LongKey { length });
        }
        Ok(end)
    }
}

impl Page {
    /// bbolt allocates as many pages as are needed; older ones took one more when the last was exactly full.
    fn judge_length(&self, more: u32, used: u64, page_size: u64) -> Result<(), Damage> {
        if self.spot.number.is_none() {
            let why = "it is not as long as what it holds";
            let fits = used == self.spot.length;
            return if fits {
                Ok(())
            } else {
                Err(self.spot.damage(None, What::Inline { why }))
            };
        }
        let wanted = (used - 1) / page_size;
        if u64::from(more) == wanted || u64::from(more) == used / page_size {
            return Ok(());
        }
        Err(self.spot.damage(None, What::OverflowWrong { more, wanted }))
    }

    /// Keys ascend, from the parent's key on and up to its next.
    pub fn judge_keys<S: ReadAt>(
        &self,
        source: &mut S,
        from: Option<&[u8]>,
        until: Option<&[u8]>,
    ) -> Result<(), Error> {
        let mut before: Option<Cow<'_, [u8]>> = None;
        for index in 0..self.elements.len() {
            let key = self.key(source, index)?;
            let found = || shown(&key);
            let what = match (&before, from, until) {
                (Some(before), _, _) if *key <= **before => Some(What::Order {
                    found: found(),
                    before: shown(before),
                }),
                (None, Some(from), _) if *key < *from => Some(What::BeforeParent {
                    found: found(),
                    from: shown(from),
                }),
                (_, _, Some(until)) if *key >= *until => Some(What::BehindParent {
                    found: found(),
                    until: shown(until),
                }),
                _ => None,
            };
            if let Some(what) = what {
                return Err(self.spot.damage(Some(index), what).into());
            }
            before = Some(key);
        }
        Ok(())
    }

    /// The key of an element.
    pub fn key<S: ReadAt>(&self, source: &mut S, index: usize) -> Result<Cow<'_, [u8]>, Error> {
        let element = self.elements[index];
        self.bytes(source, element.key, element.key_length as usize)
    }

    /// The value of an element.
    pub fn value(&self, index: usize) -> Value<'_> {
        let element = self.elements[index];
        let from = element.key + u64::from(element.key_length);
        let at_hand = usize::try_from(from).unwrap_or(usize::MAX).min(self.head.len());
        Value::new(
            self.spot.place + from,
            element.value_length.into(),
            &self.head[at_hand..],
        )
    }

    fn bytes<S: ReadAt>(&self, source: &mut S, from: u64, length: usize) -> Result<Cow<'_, [u8]>, Error> {
        let at_hand = usize::try_from(from)
            .ok()
            .and_then(|from| self.head.get(from..from.checked_add(length)?));
        if let Some(bytes) = at_hand {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = vec![0; length];
        source.read_at(self.spot.place + from, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }
}
