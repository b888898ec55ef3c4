//! Parses and checks a single branch or leaf page: header, elements, and order of keys.

use std::borrow::Cow;

use super::Error;
use super::damage::{Damage, DamageKind, Location, printable};
use super::format::{
    BRANCH_PAGE, BUCKET_FLAG, ELEMENT_SIZE, FREELIST_PAGE, LEAF_PAGE, MAX_KEY_SIZE, META_PAGE,
    PAGE_HEADER_SIZE, u16_at, u32_at, u64_at,
};
use super::meta::Meta;
use super::value::Value;
use crate::source::ReadAt;

/// The maximum number of bytes of a page kept in memory. Only pages with a huge value are larger.
const MAX_HEAD_SIZE: u64 = 256 << 10;

/// Where a page is, for reading and for messages.
#[derive(Clone, Debug)]
pub(super) struct PageLocation {
    /// The offset in the file.
    pub offset: u64,
    /// The size, including overflow pages.
    pub length: u64,
    /// The page number. `None` for a page within a value.
    pub number: Option<u64>,
    /// The name of the bucket.
    pub bucket: Option<String>,
}

impl PageLocation {
    pub fn damage(&self, element: Option<usize>, kind: DamageKind) -> Damage {
        Damage {
            location: self.at_element(element),
            kind,
        }
    }

    pub fn at_element(&self, element: Option<usize>) -> Location {
        Location {
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
    /// The offset of the key within the page. The value follows it.
    key: u64,
    key_length: u32,
    value_length: u32,
    /// In a branch page: the child page.
    pub child: u64,
}

/// A page with a valid element table.
#[derive(Debug)]
pub(super) struct Page {
    pub location: PageLocation,
    pub is_branch: bool,
    pub elements: Vec<Element>,
    head: Vec<u8>,
}

/// The header of a page, and the bytes read with it.
pub(super) struct PageHead {
    location: PageLocation,
    is_branch: bool,
    count: u16,
    /// The number of overflow pages.
    pub overflow: u32,
    head: Vec<u8>,
}

/// Reads the first bytes of a page within the file and checks its header.
pub(super) fn read_head<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    number: u64,
    bucket: Option<String>,
) -> Result<PageHead, Error> {
    let mut location = PageLocation {
        offset: number * meta.page_size,
        length: meta.page_size,
        number: Some(number),
        bucket,
    };
    let mut head = vec![0; usize::try_from(meta.page_size).unwrap_or(0)];
    source.read_at(location.offset, &mut head)?;
    let found = u64_at(&head, 0);
    if found != number {
        return Err(location.damage(None, DamageKind::WrongId { found }).into());
    }
    let is_branch = match u16_at(&head, 8) {
        BRANCH_PAGE => true,
        LEAF_PAGE => false,
        META_PAGE => {
            return Err(location
                .damage(None, DamageKind::WrongType { found: "meta" })
                .into());
        }
        FREELIST_PAGE => {
            return Err(location
                .damage(None, DamageKind::WrongType { found: "freelist" })
                .into());
        }
        found => return Err(location.damage(None, DamageKind::UnknownType { found }).into()),
    };
    let overflow = u32_at(&head, 12);
    if number + u64::from(overflow) >= pages {
        let (more, last) = (overflow, pages - 1);
        return Err(location
            .damage(None, DamageKind::OverflowBeyond { more, last })
            .into());
    }
    location.length = (u64::from(overflow) + 1) * meta.page_size;
    let head_length =
        usize::try_from(location.length.min(MAX_HEAD_SIZE.max(meta.page_size))).unwrap_or(head.len());
    if head_length > head.len() {
        let old_length = head.len();
        head.resize(head_length, 0);
        source.read_at(location.offset + old_length as u64, &mut head[old_length..])?;
    }
    Ok(PageHead {
        location,
        is_branch,
        count: u16_at(&head, 10),
        overflow,
        head,
    })
}

/// Reads the page within the value of a bucket and checks its header. Such a value is smaller than a page.
pub(super) fn read_inline_head<S: ReadAt>(
    source: &mut S,
    page_size: u64,
    offset: u64,
    length: u64,
    bucket: Option<String>,
) -> Result<PageHead, Error> {
    let location = PageLocation {
        offset,
        length,
        number: None,
        bucket,
    };
    let invalid = |why| Error::from(location.damage(None, DamageKind::InlineBucket { why }));
    if length > page_size {
        return Err(invalid("it is longer than a page"));
    }
    if length < PAGE_HEADER_SIZE as u64 {
        return Err(invalid("it is shorter than a page header"));
    }
    let mut head = vec![0; usize::try_from(length).unwrap_or(0)];
    source.read_at(offset, &mut head)?;
    if u16_at(&head, 8) != LEAF_PAGE {
        return Err(invalid("it is not a leaf"));
    }
    if u64_at(&head, 0) != 0 {
        return Err(invalid("it has a page number"));
    }
    if u32_at(&head, 12) != 0 {
        return Err(invalid("it has overflow pages"));
    }
    Ok(PageHead {
        is_branch: false,
        count: u16_at(&head, 10),
        overflow: 0,
        head,
        location,
    })
}

impl PageHead {
    /// Parses the element table. Checks that keys and values follow one another without gaps and fill the
    /// page, as bbolt writes them.
    pub fn parse_elements<S: ReadAt>(self, source: &mut S, page_size: u64) -> Result<Page, Error> {
        let mut page = Page {
            location: self.location,
            is_branch: self.is_branch,
            elements: Vec::with_capacity(self.count.into()),
            head: self.head,
        };
        let location = &page.location;
        let count = self.count;
        let room = (location.length - PAGE_HEADER_SIZE as u64) / ELEMENT_SIZE as u64;
        if u64::from(count) > room {
            return Err(location
                .damage(None, DamageKind::ElementCount { count, max: room })
                .into());
        }
        let mut next = (PAGE_HEADER_SIZE + usize::from(count) * ELEMENT_SIZE) as u64;
        for index in 0..usize::from(count) {
            let from = PAGE_HEADER_SIZE + index * ELEMENT_SIZE;
            let bytes = page.bytes(source, from as u64, ELEMENT_SIZE)?;
            let element = if page.is_branch {
                Ok(parse_branch_element(&bytes))
            } else {
                parse_leaf_element(&bytes)
            };
            let element = element.map_err(|kind| location.damage(Some(index), kind))?;
            // Offsets are relative to the entry in the element table.
            let element = Element {
                key: element.key + from as u64,
                ..element
            };
            next = element
                .check(next, location.length)
                .map_err(|kind| location.damage(Some(index), kind))?;
            page.elements.push(element);
        }
        page.check_length(self.overflow, next, page_size)?;
        Ok(page)
    }
}

fn parse_branch_element(bytes: &[u8]) -> Element {
    Element {
        is_bucket: false,
        key: u32_at(bytes, 0).into(),
        key_length: u32_at(bytes, 4),
        value_length: 0,
        child: u64_at(bytes, 8),
    }
}

fn parse_leaf_element(bytes: &[u8]) -> Result<Element, DamageKind> {
    let found = u32_at(bytes, 0);
    if found & !BUCKET_FLAG != 0 {
        return Err(DamageKind::ElementFlags { found });
    }
    Ok(Element {
        is_bucket: found == BUCKET_FLAG,
        key: u32_at(bytes, 4).into(),
        key_length: u32_at(bytes, 8),
        value_length: u32_at(bytes, 12),
        child: 0,
    })
}

impl Element {
    /// Checks the offset and size of an element. Returns where the next one must start.
    fn check(&self, expected: u64, room: u64) -> Result<u64, DamageKind> {
        let length = u64::from(self.key_length);
        if self.key != expected {
            return Err(DamageKind::ElementGap {
                found: self.key,
                expected,
            });
        }
        if length == 0 {
            return Err(DamageKind::EmptyKey);
        }
        let end = expected + length + u64::from(self.value_length);
        if end > room {
            return Err(DamageKind::ElementBeyondPage { end, length: room });
        }
        if length > MAX_KEY_SIZE as u64 {
            return Err(DamageKind::LongKey { length });
        }
        Ok(end)
    }
}

impl Page {
    /// bbolt allocates as many pages as needed. Older versions allocate one more if the last page is exactly
    /// full.
    fn check_length(&self, more: u32, used: u64, page_size: u64) -> Result<(), Damage> {
        if self.location.number.is_none() {
            let why = "its length does not match its content";
            let fits = used == self.location.length;
            return if fits {
                Ok(())
            } else {
                Err(self.location.damage(None, DamageKind::InlineBucket { why }))
            };
        }
        let expected = (used - 1) / page_size;
        if u64::from(more) == expected || u64::from(more) == used / page_size {
            return Ok(());
        }
        Err(self
            .location
            .damage(None, DamageKind::OverflowLength { more, expected }))
    }

    /// Checks that the keys ascend and lie between the key in the parent and the parent's next key.
    pub fn check_keys<S: ReadAt>(
        &self,
        source: &mut S,
        from: Option<&[u8]>,
        until: Option<&[u8]>,
    ) -> Result<(), Error> {
        let mut before: Option<Cow<'_, [u8]>> = None;
        for index in 0..self.elements.len() {
            let key = self.key(source, index)?;
            let found = || printable(&key);
            let kind = match (&before, from, until) {
                (Some(before), _, _) if *key <= **before => Some(DamageKind::KeyOrder {
                    found: found(),
                    before: printable(before),
                }),
                (None, Some(from), _) if *key < *from => Some(DamageKind::KeyBeforeParent {
                    found: found(),
                    from: printable(from),
                }),
                (_, _, Some(until)) if *key >= *until => Some(DamageKind::KeyAfterParent {
                    found: found(),
                    until: printable(until),
                }),
                _ => None,
            };
            if let Some(kind) = kind {
                return Err(self.location.damage(Some(index), kind).into());
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
        let cached = usize::try_from(from).unwrap_or(usize::MAX).min(self.head.len());
        Value::new(
            self.location.offset + from,
            element.value_length.into(),
            &self.head[cached..],
        )
    }

    fn bytes<S: ReadAt>(&self, source: &mut S, from: u64, length: usize) -> Result<Cow<'_, [u8]>, Error> {
        let cached = usize::try_from(from)
            .ok()
            .and_then(|from| self.head.get(from..from.checked_add(length)?));
        if let Some(bytes) = cached {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = vec![0; length];
        source.read_at(self.location.offset + from, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }
}
