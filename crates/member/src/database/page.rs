//! Pages of a database, and the trees they make. Damage is an error, never an endless walk or a huge allocation.

use std::io::{Read, Seek, SeekFrom};

/// Flags of a page.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// What a page and an element of one begin with.
const HEADER: usize = 16;
const ELEMENT: usize = 16;
/// The flag of an element that is a bucket, and what its value begins with.
const IS_BUCKET: u32 = 0x01;
const BUCKET: usize = 16;

/// What is read at most: lists of members are short, and so is the way to them.
const DEEPEST: usize = 16;
const MOST_PAGES: usize = 256;
const LONGEST: u64 = 4 << 20;

/// A database file, of which pages are read. `size` is 0 until a meta page has been read.
pub(super) struct Pages<'a, F> {
    file: &'a mut F,
    /// Of the file.
    pub(super) length: u64,
    /// Of a page.
    pub(super) size: u64,
}

/// A bucket: a tree of its own, or a page within the value.
pub(super) enum Bucket {
    Root(u64),
    Inline(Vec<u8>),
}

/// What is done with a key and its value.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), String> + 'a;

impl<'a, F: Read + Seek> Pages<'a, F> {
    pub(super) fn of(file: &'a mut F) -> Result<Self, String> {
        let length = file.seek(SeekFrom::End(0)).map_err(|error| failed(&error))?;
        Ok(Self {
            file,
            length,
            size: 0,
        })
    }

    /// Bytes of the file. `None` if the file ends before them.
    pub(super) fn bytes(&mut self, place: u64, count: usize) -> Result<Option<Vec<u8>>, String> {
        if place.saturating_add(count as u64) > self.length {
            return Ok(None);
        }
        self.file
            .seek(SeekFrom::Start(place))
            .map_err(|error| failed(&error))?;
        let mut bytes = vec![0; count];
        self.file.read_exact(&mut bytes).map_err(|error| failed(&error))?;
        Ok(Some(bytes))
    }

    /// A page with its overflow pages, cut off at [`LONGEST`] bytes. An error if the file does not have it.
    fn page(&mut self, number: u64) -> Result<Vec<u8>, String> {
        let outside = || format!("the database refers to page {number}, which it does not have");
        let place = number.checked_mul(self.size).ok_or_else(outside)?;
        let header = self.bytes(place, HEADER)?.ok_or_else(outside)?;
        let length = (u64::from(u32_at(&header, 12)) + 1) * self.size;
        let length = usize::try_from(length.min(LONGEST)).map_err(|_| outside())?;
        self.bytes(place, length)?.ok_or_else(outside)
    }

    /// The bucket of this name below a root page. `None` if there is none; an error if the pages are damaged or too
    /// many lie over one another.
    pub(super) fn bucket(&mut self, root: u64, name: &[u8]) -> Result<Option<Bucket>, String> {
        let mut number = root;
        for _ in 0..DEEPEST {
            let page = self.page(number)?;
            if flags(&page) & BRANCH == 0 {
                return leaf_elements(&page)?
                    .into_iter()
                    .find(|element| element.key == name && element.flags & IS_BUCKET != 0)
                    .map(|element| bucket(element.value))
                    .transpose();
            }
            // The last child whose first key is not behind the name.
            let children = branch_elements(&page)?;
            let place = children.partition_point(|(key, _)| *key <= name);
            match children.get(place.saturating_sub(1)) {
                Some((_, child)) => number = *child,
                None => return Ok(None),
            }
        }
        Err("the database is too deep".to_owned())
    }

    /// Calls `visit` with every key of a bucket and its value. An error if the bucket has more than [`MOST_PAGES`]
    /// pages.
    pub(super) fn walk(&mut self, bucket: &Bucket, visit: &mut Visit<'_>) -> Result<(), String> {
        let mut waiting = match bucket {
            Bucket::Root(root) => vec![*root],
            Bucket::Inline(page) => return each(page, visit),
        };
        let mut seen = 0;
        while let Some(number) = waiting.pop() {
            seen += 1;
            if seen > MOST_PAGES {
                return Err("the list of members in the database is too long".to_owned());
            }
            let page = self.page(number)?;
            if flags(&page) & BRANCH == 0 {
                each(&page, visit)?;
            } else {
                waiting.extend(branch_elements(&page)?.into_iter().map(|(_, child)| child));
            }
        }
        Ok(())
    }
}

fn failed(error: &std::io::Error) -> String {
    format!("the database cannot be read: {error}")
}

fn each(page: &[u8], visit: &mut Visit<'_>) -> Result<(), String> {
    for element in leaf_elements(page)? {
        visit(element.key, element.value)?;
    }
    Ok(())
}

struct Element<'a> {
    flags: u32,
    key: &'a [u8],
    value: &'a [u8],
}

fn leaf_elements(page: &[u8]) -> Result<Vec<Element<'_>>, String> {
    if flags(page) & LEAF == 0 {
        return Err("the database has another page where keys should be".to_owned());
    }
    elements(page, |page, at| {
        let element = page.get(at..at + ELEMENT)?;
        let key = at + size(element, 4)?;
        let value = key + size(element, 8)?;
        Some(Element {
            flags: u32_at(element, 0),
            key: page.get(key..value)?,
            value: page.get(value..value + size(element, 12)?)?,
        })
    })
}

fn branch_elements(page: &[u8]) -> Result<Vec<(&[u8], u64)>, String> {
    elements(page, |page, at| {
        let element = page.get(at..at + ELEMENT)?;
        let key = at + size(element, 0)?;
        let key = page.get(key..key + size(element, 4)?)?;
        Some((key, u64_at(element, 8)))
    })
}

fn elements<'a, T>(page: &'a [u8], read: impl Fn(&'a [u8], usize) -> Option<T>) -> Result<Vec<T>, String> {
    let count = usize::from(u16_at(page, 10));
    let all: Option<Vec<T>> = (0..count)
        .map(|number| read(page, HEADER + number * ELEMENT))
        .collect();
    all.ok_or_else(|| "a page of the database is damaged".to_owned())
}

/// Parses the value that stands for a bucket: the number of its root page, or a page of its own.
fn bucket(value: &[u8]) -> Result<Bucket, String> {
    let short = || "a bucket of the database is damaged".to_owned();
    let (header, inline) = value.split_at_checked(BUCKET).ok_or_else(short)?;
    match u64_at(header, 0) {
        0 if inline.len() < HEADER => Err(short()),
        0 => Ok(Bucket::Inline(inline.to_vec())),
        root => Ok(Bucket::Root(root)),
    }
}

fn flags(page: &[u8]) -> u16 {
    u16_at(page, 8)
}

fn size(element: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(element, at)).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// A number in a page; what lies outside is zero, which no valid page says.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A number in a page; what lies outside is zero, which no valid page says.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
