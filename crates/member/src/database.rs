//! etcd's database, read as far as judging a disk needs it: whether it can be begun with, and which members it lists.
//! Nothing is opened here, and nothing is ever written.
//!
//! A file of pages. The first two say where everything begins; the valid one with the higher number counts, the other
//! is that of the transaction before.

mod page;
#[cfg(test)]
pub(crate) mod samples;

use std::io::{Read, Seek};

use etcd_operator_api::contract::ListedMember;
use etcd_operator_etcd::id::MemberId;
use page::{Pages, u32_at, u64_at};
use serde::Deserialize;

/// What marks a page of this kind, and the version of the format.
const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
/// Where fields are, after the header of the page, and what the checksum covers.
const FIELDS: std::ops::Range<usize> = 16..80;
const COVERED: usize = 56;
/// Sizes of pages that machines have.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 9..=16;
/// Where the members are listed.
const MEMBERS: &[u8] = b"members";

/// The fields of a meta page: where the tree of a transaction begins, and how many pages the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    page_size: u64,
    root: u64,
    pages: u64,
    transaction: u64,
}

/// Whether the database has a valid meta page and is as long as that says. Nothing else is checked: other pages may be
/// damaged.
pub fn check(file: &mut (impl Read + Seek)) -> Result<(), String> {
    let mut pages = Pages::of(file)?;
    begin(&mut pages).map(|_| ())
}

/// The members as the file lists them, in the order of their IDs. A change that is only in the log is not among them.
pub fn members(file: &mut (impl Read + Seek)) -> Result<Vec<ListedMember>, String> {
    let mut pages = Pages::of(file)?;
    let meta = begin(&mut pages)?;
    pages.size = meta.page_size;
    let Some(bucket) = pages.bucket(meta.root, MEMBERS)? else {
        return Ok(Vec::new());
    };
    let mut members = Vec::new();
    pages.walk(&bucket, &mut |key, value| {
        members.push(member(key, value)?);
        Ok(())
    })?;
    members.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(members)
}

/// The fields of a member that are read.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
}

/// Parses a member. Its key is its ID in hexadecimal.
fn member(key: &[u8], value: &[u8]) -> Result<ListedMember, String> {
    let id = std::str::from_utf8(key)
        .ok()
        .and_then(|text| text.parse::<MemberId>().ok());
    let id = id.ok_or("a member in the database has no ID")?;
    let Stored { name, peer_urls } =
        serde_json::from_slice(value).map_err(|error| format!("member {id} in the database: {error}"))?;
    Ok(ListedMember {
        id: id.to_string(),
        name,
        peer_urls,
    })
}

/// The valid meta page with the later transaction. An error if none is valid, or if the file is shorter than it says.
fn begin(pages: &mut Pages<'_, impl Read + Seek>) -> Result<Meta, String> {
    let first = meta(pages, 0)?;
    // Where the second one is depends on the size of pages, which only a valid one tells.
    let second = match first {
        Some(first) => meta(pages, first.page_size)?,
        None => PAGE_SIZES
            .map(|bits| meta(pages, 1 << bits))
            .find_map(Result::transpose)
            .transpose()?,
    };
    let newest = [first, second]
        .into_iter()
        .flatten()
        .max_by_key(|meta| meta.transaction);
    let meta = newest.ok_or("the database has no valid page to begin with")?;
    let needed = meta.pages.saturating_mul(meta.page_size);
    if pages.length < needed {
        return Err(format!("the database has {} bytes of {needed}", pages.length));
    }
    Ok(meta)
}

/// The meta page at this offset. `None` if it is not valid.
fn meta(pages: &mut Pages<'_, impl Read + Seek>, place: u64) -> Result<Option<Meta>, String> {
    let Some(page) = pages.bytes(place, FIELDS.end)? else {
        return Ok(None);
    };
    let fields = &page[FIELDS];
    let is_valid = u32_at(fields, 0) == MAGIC
        && u32_at(fields, 4) == VERSION
        && u64_at(fields, COVERED) == checksum(&fields[..COVERED]);
    let meta = Meta {
        page_size: u32_at(fields, 8).into(),
        root: u64_at(fields, 16),
        pages: u64_at(fields, 40),
        transaction: u64_at(fields, 48),
    };
    Ok(Some(meta).filter(|meta| is_valid && meta.page_size.is_power_of_two()))
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::samples::database;
    use super::*;

    const TWO: [(&str, &str); 2] = [
        (
            "8e9e05c52164694d",
            r#"{"id":1,"peerURLs":["http://a:2380"],"name":"c-0","clientURLs":[]}"#,
        ),
        ("a", r#"{"id":10,"peerURLs":["http://b:2380"]}"#),
    ];

    fn check_bytes(bytes: &[u8]) -> Result<(), String> {
        check(&mut Cursor::new(bytes))
    }

    #[test]
    fn members_are_found_within_the_root_and_in_a_tree_of_their_own() {
        let listed = |id: &str, name: &str, url: &str| ListedMember {
            id: id.into(),
            name: name.into(),
            peer_urls: vec![url.into()],
        };
        let wanted = [
            listed("8e9e05c52164694d", "c-0", "http://a:2380"),
            listed("a", "", "http://b:2380"),
        ];
        for is_inline in [true, false] {
            let found = members(&mut Cursor::new(database(&TWO, is_inline)));
            assert_eq!(found.as_deref(), Ok(&wanted[..]), "{is_inline}");
        }
        assert_eq!(members(&mut Cursor::new(database(&[], true))), Ok(vec![]));
    }

    #[test]
    fn one_of_the_two_beginnings_is_enough() {
        let whole = database(&TWO, true);
        assert_eq!(check_bytes(&whole), Ok(()));
        for page in [0, 1] {
            for field in [0, 4, 8, 16, 48, 56] {
                let mut damaged = whole.clone();
                damaged[page * 4096 + 16 + field] ^= 0xff;
                assert_eq!(check_bytes(&damaged), Ok(()), "page {page}, field {field}");
                damaged[(1 - page) * 4096 + 16 + field] ^= 0xff;
                assert!(check_bytes(&damaged).is_err(), "both, field {field}");
            }
        }
    }

    #[test]
    fn a_file_shorter_than_it_says_is_damaged() {
        let whole = database(&TWO, true);
        for length in [0, 1, 100, 4096, 8192, whole.len() - 1] {
            assert!(check_bytes(&whole[..length]).is_err(), "{length} bytes");
        }
        assert!(check_bytes(&vec![0; 65_536]).is_err());
    }

    #[test]
    fn whatever_a_damaged_page_says_reading_ends() {
        for is_inline in [true, false] {
            let whole = database(&TWO, is_inline);
            for place in (3 * 4096..whole.len()).filter(|place| place % 4096 < 200) {
                for value in [0xff, 0x00, 0x04] {
                    let mut damaged = whole.clone();
                    damaged[place] = value;
                    let _ = members(&mut Cursor::new(damaged));
                }
            }
        }
    }
}
