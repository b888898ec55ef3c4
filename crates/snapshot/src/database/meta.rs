//! The two meta pages: validates them and selects the current one.

use super::Error;
use super::damage::{Damage, DamageKind, Location};
use super::findings::Findings;
use super::format::{
    MAGIC, MAX_FILE_SIZE, META_PAGE, META_SIZE, NO_FREELIST, PAGE_HEADER_SIZE, PAGE_SIZES, VERSION, u16_at,
    u32_at, u64_at,
};
use crate::source::ReadAt;

/// The content of a meta page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The page size, in bytes.
    pub page_size: u64,
    /// The root page of the root bucket.
    pub root: u64,
    /// The freelist page, if the file contains a freelist.
    pub freelist: Option<u64>,
    /// The number of pages: the lowest page number that was never used.
    pub pages: u64,
    /// The transaction that wrote the meta page.
    pub transaction: u64,
}

/// Returns the current meta page, and the damage of both meta pages.
pub(super) fn read_metas<S: ReadAt>(source: &mut S, length: u64) -> Result<(Meta, Vec<Damage>), Error> {
    let [smallest, ..] = PAGE_SIZES;
    if length < 2 * u64::from(smallest) {
        return Err(damage(0, DamageKind::TooShort { length }).for_whole_file().into());
    }
    if length > MAX_FILE_SIZE {
        return Err(damage(0, DamageKind::TooLarge { length }).for_whole_file().into());
    }
    let mut damaged = Vec::new();
    let first = read_meta(source, 0, 0, &mut damaged)?;
    let second = match &first {
        Ok(first) => read_meta(source, 1, first.page_size, &mut damaged)?.and_then(|second| {
            let found = u32::try_from(second.page_size).unwrap_or(u32::MAX);
            let differs = second.page_size != first.page_size;
            if differs {
                Err(damage(1, DamageKind::PageSize { found }))
            } else {
                Ok(second)
            }
        }),
        Err(_) => find_second_meta(source, length)?,
    };
    let meta = match (first, second) {
        (Ok(first), Ok(second)) if second.transaction > first.transaction => second,
        (Ok(first), Ok(_)) => first,
        (Ok(meta), Err(damage)) | (Err(damage), Ok(meta)) => {
            damaged.push(damage);
            meta
        }
        (Err(damage), Err(_)) => return Err(damage.into()),
    };
    Ok((meta, damaged))
}

/// Finds the second meta page if the first is damaged and its page size unknown: the second page stores its
/// own page size, which must match its offset.
fn find_second_meta<S: ReadAt>(source: &mut S, length: u64) -> Result<Result<Meta, Damage>, Error> {
    let mut last = Err(damage(1, DamageKind::TooShort { length }));
    for size in PAGE_SIZES.map(u64::from) {
        if size + (PAGE_HEADER_SIZE + META_SIZE) as u64 > length {
            break;
        }
        last = read_meta(source, 1, size, &mut Vec::new())?;
        if last.as_ref().is_ok_and(|meta| meta.page_size == size) {
            return Ok(last);
        }
    }
    Ok(last.and_then(|meta| {
        let found = u32::try_from(meta.page_size).unwrap_or(u32::MAX);
        Err(damage(1, DamageKind::PageSize { found }))
    }))
}

fn read_meta<S: ReadAt>(
    source: &mut S,
    number: u64,
    offset: u64,
    damaged: &mut Vec<Damage>,
) -> Result<Result<Meta, Damage>, Error> {
    let mut page = [0; PAGE_HEADER_SIZE + META_SIZE];
    source.read_at(offset, &mut page)?;
    let meta = parse_meta(&page[PAGE_HEADER_SIZE..]).map_err(|kind| damage(number, kind));
    if meta.is_ok() {
        // bbolt ignores these two fields. A copy of the file must contain them nevertheless.
        if u64_at(&page, 0) != number {
            damaged.push(damage(
                number,
                DamageKind::WrongId {
                    found: u64_at(&page, 0),
                },
            ));
        }
        if u16_at(&page, 8) != META_PAGE {
            damaged.push(damage(
                number,
                DamageKind::UnknownType {
                    found: u16_at(&page, 8),
                },
            ));
        }
    }
    Ok(meta)
}

fn parse_meta(bytes: &[u8]) -> Result<Meta, DamageKind> {
    let magic = u32_at(bytes, 0);
    if magic != MAGIC {
        return Err(DamageKind::Magic { found: magic });
    }
    let version = u32_at(bytes, 4);
    if version != VERSION {
        return Err(DamageKind::Version { found: version });
    }
    let (found, expected) = (u64_at(bytes, META_SIZE - 8), checksum(&bytes[..META_SIZE - 8]));
    if found != expected {
        return Err(DamageKind::Checksum { found, expected });
    }
    let page_size = u32_at(bytes, 8);
    if !PAGE_SIZES.contains(&page_size) {
        return Err(DamageKind::PageSize { found: page_size });
    }
    let (root, freelist, pages) = (u64_at(bytes, 16), u64_at(bytes, 32), u64_at(bytes, 40));
    if !(2..pages).contains(&root) {
        return Err(DamageKind::RootPage { root, pages });
    }
    if freelist != NO_FREELIST && !(2..pages).contains(&freelist) {
        return Err(DamageKind::FreelistPage { freelist, pages });
    }
    Ok(Meta {
        page_size: page_size.into(),
        root,
        freelist: Some(freelist).filter(|freelist| *freelist != NO_FREELIST),
        pages,
        transaction: u64_at(bytes, 48),
    })
}

/// The 64-bit FNV-1a checksum.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Checks the size of the file against the meta page. etcd's database file may be longer; a snapshot may not.
pub(super) fn check_length(meta: &Meta, length: u64, is_snapshot: bool, findings: &mut Findings) {
    let expected = meta.pages.saturating_mul(meta.page_size);
    if length < expected {
        findings.add_at(Location::file(), DamageKind::Truncated { length, expected });
    } else if length > expected && is_snapshot {
        findings.add_at(Location::file(), DamageKind::TooLong { length, expected });
    }
}

/// Checks that both meta pages of a snapshot are equal, except that the second has the previous transaction.
pub(super) fn check_metas_equal<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    findings: &mut Findings,
) -> Result<(), Error> {
    let mut ignored = Vec::new();
    let first = read_meta(source, 0, 0, &mut ignored)?;
    let second = read_meta(source, 1, meta.page_size, &mut ignored)?;
    if let (Ok(first), Ok(mut second)) = (first, second) {
        second.transaction = second.transaction.wrapping_add(1);
        if first != second {
            findings.add(damage(1, DamageKind::MetasDiffer));
        }
    }
    Ok(())
}

fn damage(page: u64, kind: DamageKind) -> Damage {
    Damage {
        location: Location::page(page),
        kind,
    }
}

impl Damage {
    fn for_whole_file(self) -> Self {
        Self {
            location: Location::file(),
            ..self
        }
    }
}
