//! The list of free pages, where it is kept in the file. etcd keeps it there up to 3.2; later it is found by a walk.

use super::Error;
use super::bits::Bits;
use super::damage::{Place, What};
use super::findings::Findings;
use super::layout::{COUNT_BEHIND, FREELIST, HEADER, u16_at, u32_at, u64_at};
use super::meta::Meta;
use crate::source::ReadAt;

/// How many numbers are read at once.
const PIECE: u64 = 8192;

/// Reads the list, if there is one, and judges its page. What is listed is not yet compared with what is in use.
pub(super) fn read<S: ReadAt>(
    source: &mut S,
    meta: &Meta,
    pages: u64,
    reached: &mut Bits,
    findings: &mut Findings,
) -> Result<Option<Bits>, Error> {
    let Some(number) = meta.freelist else {
        return Ok(None);
    };
    let place = Place::page(number);
    if number >= pages {
        findings.at(place, What::OutOfBounds { page: number, pages });
        return Ok(None);
    }
    let start = number * meta.page_size;
    let mut header = [0; HEADER + 8];
    source.read_at(start, &mut header)?;
    let found = u64_at(&header, 0);
    if found != number {
        findings.at(place, What::WrongId { found });
        return Ok(None);
    }
    let found = u16_at(&header, 8);
    if found != FREELIST {
        findings.at(place, What::FreelistType { found });
        return Ok(None);
    }
    let (more, last) = (u32_at(&header, 12), pages - 1);
    if number + u64::from(more) > last {
        findings.at(place, What::OverflowBeyond { more, last });
        return Ok(None);
    }
    let length = u64::from(more) + 1;
    reached.set(number, length);
    let room = (length * meta.page_size - HEADER as u64) / 8;
    let (count, first) = match u16_at(&header, 10) {
        COUNT_BEHIND => (u64_at(&header, HEADER), 1),
        count => (count.into(), 0),
    };
    if count > room - first {
        findings.at(
            place,
            What::FreelistCount {
                count,
                room: room - first,
            },
        );
        return Ok(None);
    }
    let mut free = Bits::of(pages);
    let mut before = 1;
    let (mut from, end) = (first, first + count);
    while from < end {
        let numbers = (end - from).min(PIECE);
        let mut bytes = vec![0; usize::try_from(numbers * 8).unwrap_or(0)];
        source.read_at(start + HEADER as u64 + from * 8, &mut bytes)?;
        for index in 0..bytes.len() / 8 {
            let page = u64_at(&bytes, index * 8);
            if page > last || page < 2 {
                findings.at(place.clone(), What::FreeOutOfBounds { page, last });
            } else if page <= before {
                findings.at(place.clone(), What::FreeOrder { page, before });
            } else {
                free.set(page, 1);
                before = page;
            }
        }
        from += numbers;
    }
    Ok(Some(free))
}

/// Each page is either in use or free.
pub(super) fn compare(free: &Bits, reached: &Bits, pages: u64, findings: &mut Findings) {
    for page in 2..pages {
        let what = match (reached.has(page), free.has(page)) {
            (true, true) => What::FreeInUse,
            (false, false) => What::Lost,
            _ => continue,
        };
        findings.at(Place::page(page), what);
    }
}
