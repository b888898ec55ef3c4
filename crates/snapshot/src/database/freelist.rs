//! Reads and checks the freelist stored in the file. etcd up to 3.2 stores it; newer versions find free pages
//! by a walk.

use super::Error;
use super::damage::{DamageKind, Location};
use super::findings::Findings;
use super::format::{COUNT_IN_FIRST_ENTRY, FREELIST_PAGE, PAGE_HEADER_SIZE, u16_at, u32_at, u64_at};
use super::meta::Meta;
use super::page_set::PageSet;
use crate::source::ReadAt;

/// How many entries are read at once.
const CHUNK_ENTRIES: u64 = 8192;

/// Reads the freelist, if the file contains one, and checks its page. [`check_freelist`] compares it with the
/// pages in use.
pub(super) fn read_freelist<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    used: &mut PageSet,
    findings: &mut Findings,
) -> Result<Option<PageSet>, Error> {
    let Some(number) = meta.freelist else {
        return Ok(None);
    };
    let location = Location::page(number);
    if number >= pages {
        findings.add_at(location, DamageKind::OutOfBounds { page: number, pages });
        return Ok(None);
    }
    let start = number * meta.page_size;
    let mut header = [0; PAGE_HEADER_SIZE + 8];
    source.read_at(start, &mut header)?;
    let found = u64_at(&header, 0);
    if found != number {
        findings.add_at(location, DamageKind::WrongId { found });
        return Ok(None);
    }
    let found = u16_at(&header, 8);
    if found != FREELIST_PAGE {
        findings.add_at(location, DamageKind::FreelistType { found });
        return Ok(None);
    }
    let (more, last) = (u32_at(&header, 12), pages - 1);
    if number + u64::from(more) > last {
        findings.add_at(location, DamageKind::OverflowBeyond { more, last });
        return Ok(None);
    }
    let length = u64::from(more) + 1;
    used.insert_run(number, length);
    let room = (length * meta.page_size - PAGE_HEADER_SIZE as u64) / 8;
    let (count, first) = match u16_at(&header, 10) {
        COUNT_IN_FIRST_ENTRY => (u64_at(&header, PAGE_HEADER_SIZE), 1),
        count => (count.into(), 0),
    };
    if count > room - first {
        findings.add_at(
            location,
            DamageKind::FreelistCount {
                count,
                max: room - first,
            },
        );
        return Ok(None);
    }
    let mut free = PageSet::with_limit(pages);
    let mut before = 1;
    let (mut from, end) = (first, first + count);
    while from < end {
        let numbers = (end - from).min(CHUNK_ENTRIES);
        let mut bytes = vec![0; usize::try_from(numbers * 8).unwrap_or(0)];
        source.read_at(start + PAGE_HEADER_SIZE as u64 + from * 8, &mut bytes)?;
        for index in 0..bytes.len() / 8 {
            let page = u64_at(&bytes, index * 8);
            if page > last || page < 2 {
                findings.add_at(location.clone(), DamageKind::FreeOutOfBounds { page, last });
            } else if page <= before {
                findings.add_at(location.clone(), DamageKind::FreeOrder { page, before });
            } else {
                free.insert_run(page, 1);
                before = page;
            }
        }
        from += numbers;
    }
    Ok(Some(free))
}

/// Checks that each page is either in use or free.
pub(super) fn check_freelist(free: &PageSet, used: &PageSet, pages: u64, findings: &mut Findings) {
    for page in 2..pages {
        let kind = match (used.contains(page), free.contains(page)) {
            (true, true) => DamageKind::FreeInUse,
            (false, false) => DamageKind::Leaked,
            _ => continue,
        };
        findings.add_at(Location::page(page), kind);
    }
}
