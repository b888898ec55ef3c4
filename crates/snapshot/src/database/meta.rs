//! The two meta pages: which is in force, and whether they are whole.

use super::Error;
use super::damage::{Damage, Place, What};
use super::findings::Findings;
use super::layout::{
    HEADER, LONGEST_FILE, MAGIC, META, METAPAGE, NO_FREELIST, PAGE_SIZES, VERSION, u16_at, u32_at, u64_at,
};
use crate::source::ReadAt;

/// What a meta page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Bytes of a page.
    pub page_size: u64,
    /// The page where the tree of buckets begins.
    pub root: u64,
    /// The page of the free list, if it is kept in the file.
    pub freelist: Option<u64>,
    /// How many pages there are: the first number that was never used.
    pub pages: u64,
    /// The transaction that wrote it.
    pub transaction: u64,
}

/// The meta in force, and what is wrong with either.
pub(super) fn read<S: ReadAt>(source: &mut S, length: u64) -> Result<(Meta, Vec<Damage>), Error> {
    let [smallest, ..] = PAGE_SIZES;
    if length < 2 * u64::from(smallest) {
        return Err(damage(0, What::TooShort { length }).into_file().into());
    }
    if length > LONGEST_FILE {
        return Err(damage(0, What::TooLarge { length }).into_file().into());
    }
    let mut torn = Vec::new();
    let first = read_one(source, 0, 0, &mut torn)?;
    let second = match &first {
        Ok(first) => read_one(source, 1, first.page_size, &mut torn)?.and_then(|second| {
            let found = u32::try_from(second.page_size).unwrap_or(u32::MAX);
            let is_other = second.page_size != first.page_size;
            if is_other {
                Err(damage(1, What::PageSize { found }))
            } else {
                Ok(second)
            }
        }),
        Err(_) => anywhere(source, length)?,
    };
    let meta = match (first, second) {
        (Ok(first), Ok(second)) if second.transaction > first.transaction => second,
        (Ok(first), Ok(_)) => first,
        (Ok(meta), Err(why)) | (Err(why), Ok(meta)) => {
            torn.push(why);
            meta
        }
        (Err(why), Err(_)) => return Err(why.into()),
    };
    Ok((meta, torn))
}

/// The second meta where the first does not say how long it is: at the place that its own size gives.
fn anywhere<S: ReadAt>(source: &mut S, length: u64) -> Result<Result<Meta, Damage>, Error> {
    let mut last = Err(damage(1, What::TooShort { length }));
    for size in PAGE_SIZES.map(u64::from) {
        if size + (HEADER + META) as u64 > length {
            break;
        }
        last = read_one(source, 1, size, &mut Vec::new())?;
        if last.as_ref().is_ok_and(|meta| meta.page_size == size) {
            return Ok(last);
        }
    }
    Ok(last.and_then(|meta| {
        let found = u32::try_from(meta.page_size).unwrap_or(u32::MAX);
        Err(damage(1, What::PageSize { found }))
    }))
}

fn read_one<S: ReadAt>(
    source: &mut S,
    number: u64,
    place: u64,
    torn: &mut Vec<Damage>,
) -> Result<Result<Meta, Damage>, Error> {
    let mut page = [0; HEADER + META];
    source.read_at(place, &mut page)?;
    let meta = parse(&page[HEADER..]).map_err(|what| damage(number, what));
    if meta.is_ok() {
        // bbolt does not look at these two; a copy of the file must have them all the same.
        if u64_at(&page, 0) != number {
            torn.push(damage(
                number,
                What::WrongId {
                    found: u64_at(&page, 0),
                },
            ));
        }
        if u16_at(&page, 8) != METAPAGE {
            torn.push(damage(
                number,
                What::UnknownType {
                    found: u16_at(&page, 8),
                },
            ));
        }
    }
    Ok(meta)
}

fn parse(bytes: &[u8]) -> Result<Meta, What> {
    let magic = u32_at(bytes, 0);
    if magic != MAGIC {
        return Err(What::Magic { found: magic });
    }
    let version = u32_at(bytes, 4);
    if version != VERSION {
        return Err(What::Version { found: version });
    }
    let (found, wanted) = (u64_at(bytes, META - 8), checksum(&bytes[..META - 8]));
    if found != wanted {
        return Err(What::Torn { found, wanted });
    }
    let page_size = u32_at(bytes, 8);
    if !PAGE_SIZES.contains(&page_size) {
        return Err(What::PageSize { found: page_size });
    }
    let (root, freelist, pages) = (u64_at(bytes, 16), u64_at(bytes, 32), u64_at(bytes, 40));
    if !(2..pages).contains(&root) {
        return Err(What::Root { root, pages });
    }
    if freelist != NO_FREELIST && !(2..pages).contains(&freelist) {
        return Err(What::FreelistPlace { freelist, pages });
    }
    Ok(Meta {
        page_size: page_size.into(),
        root,
        freelist: Some(freelist).filter(|freelist| *freelist != NO_FREELIST),
        pages,
        transaction: u64_at(bytes, 48),
    })
}

/// FNV-1a of 64 bits.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Whether the file is as long as the meta says. etcd's own file may be longer, a snapshot is not.
pub(super) fn fits(meta: &Meta, length: u64, is_snapshot: bool, findings: &mut Findings) {
    let wanted = meta.pages.saturating_mul(meta.page_size);
    if length < wanted {
        findings.at(Place::file(), What::Truncated { length, wanted });
    } else if length > wanted && is_snapshot {
        findings.at(Place::file(), What::TooLong { length, wanted });
    }
}

/// In a snapshot both metas say the same, the second as if one transaction earlier.
pub(super) fn same<S: ReadAt>(source: &mut S, meta: &Meta, findings: &mut Findings) -> Result<(), Error> {
    let mut ignored = Vec::new();
    let first = read_one(source, 0, 0, &mut ignored)?;
    let second = read_one(source, 1, meta.page_size, &mut ignored)?;
    if let (Ok(first), Ok(mut second)) = (first, second) {
        second.transaction = second.transaction.wrapping_add(1);
        if first != second {
            findings.add(damage(1, What::MetasDiffer));
        }
    }
    Ok(())
}

fn damage(page: u64, what: What) -> Damage {
    Damage {
        place: Place::page(page),
        what,
    }
}

impl Damage {
    fn into_file(self) -> Self {
        Self {
            place: Place::file(),
            ..self
        }
    }
}
