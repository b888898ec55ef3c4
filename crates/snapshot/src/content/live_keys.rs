//! Finds the live keys at a revision: their number, their size, the size per prefix, and their digest.
//!
//! The bucket `key` is ordered by revision, so a scan must remember keys to know which entry of a key is its
//! last. The scan runs backward: the first entry found of a key counts. It remembers 16 bytes of the SHA-256
//! of each key. To bound memory, a large database is scanned several times, each time for the keys whose
//! hashes are in one range.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::KEY;
use super::digest::Digest;
use super::record::{Record, Revision};
use crate::database::{Database, Direction, Entry, Error, Value, Visitor, printable};
use crate::source::ReadAt;

/// How many keys are remembered at once, in 32 MiB.
const MAX_REMEMBERED: usize = 1_500_000;
/// How many prefixes are counted separately. The keys of all others are counted together.
const MAX_PREFIXES: usize = 512;
/// The maximum length of a prefix, in bytes.
const MAX_PREFIX_SIZE: u64 = 128;

/// The live keys at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveKeys {
    /// The number of keys.
    pub keys: u64,
    /// The number of bytes of keys and values.
    pub bytes: u64,
    /// The number of bytes of the largest key with its value. Range reads choose their page size by it.
    #[serde(skip)]
    pub largest: u64,
    /// The digest of the keys.
    pub digest: Digest,
    /// The size per prefix: the first two segments of a key, separated by slashes.
    pub prefixes: BTreeMap<String, PrefixSize>,
    /// The size of all further prefixes.
    pub others: PrefixSize,
}

/// The size of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixSize {
    /// The number of live keys.
    pub keys: u64,
    /// The number of bytes of the live keys and their values.
    pub bytes: u64,
    /// The number of entries that are older revisions or deletions.
    pub records: u64,
    /// The number of bytes of these entries.
    pub record_bytes: u64,
}

/// Finds the live keys at a revision, or at the latest one. `records` is the number of entries in the bucket
/// `key`. Stops at damage, so check the database first.
pub fn find_live_keys<S: ReadAt>(
    database: &mut Database<S>,
    at: Option<i64>,
    records: u64,
) -> Result<LiveKeys, Error> {
    find_live_keys_within(database, at, records, MAX_REMEMBERED)
}

/// Like [`find_live_keys`], with another limit of keys remembered at once.
pub fn find_live_keys_within<S: ReadAt>(
    database: &mut Database<S>,
    at: Option<i64>,
    records: u64,
    remembered: usize,
) -> Result<LiveKeys, Error> {
    let Some(bucket) = database.find_bucket(KEY)? else {
        return Err(super::quick_look::missing_bucket(KEY).into());
    };
    let parts = (records / (remembered as u64 * 4 / 5).max(1) + 1).min(1 << 16);
    let mut ranges = split_range(0..=u64::MAX, parts);
    let mut sum = LiveKeys::default();
    let mut seen =
        SeenKeys::with_capacity(remembered.min(usize::try_from(records).unwrap_or(remembered)) + 1);
    while let Some(range) = ranges.pop() {
        seen.clear();
        let mut scan = RangeScan {
            at: at.unwrap_or(i64::MAX),
            range: range.clone(),
            seen: &mut seen,
            is_full: false,
            sum: sum.clone(),
        };
        database.visit_bucket(&bucket, Direction::Backward, &mut scan)?;
        if scan.is_full && range.start() < range.end() {
            ranges.extend(split_range(range, 2));
        } else {
            sum = scan.sum;
        }
    }
    Ok(sum)
}

/// Splits a range into adjacent ranges of about the same length.
fn split_range(range: RangeInclusive<u64>, parts: u64) -> Vec<RangeInclusive<u64>> {
    let (start, end) = range.into_inner();
    let length = u128::from(end - start) + 1;
    let boundary = |part: u64| length * u128::from(part) / u128::from(parts);
    let number = |offset: u128| start + u64::try_from(offset).unwrap_or(end - start);
    (0..parts)
        .map(|part| number(boundary(part))..=number(boundary(part + 1) - 1))
        .collect()
}

/// A hash table of the keys seen in a scan. It has a fixed size.
struct SeenKeys {
    table: Vec<u128>,
    count: usize,
    max: usize,
}

impl SeenKeys {
    fn with_capacity(max: usize) -> Self {
        let slots = (max + max / 3 + 1).next_power_of_two();
        Self {
            table: vec![0; slots],
            count: 0,
            max,
        }
    }

    fn clear(&mut self) {
        self.table.fill(0);
        self.count = 0;
    }

    /// Adds a hash. Returns whether it is new, or `None` if the table is full.
    fn insert(&mut self, hash: u128) -> Option<bool> {
        // Zero marks a free slot.
        let hash = hash.max(1);
        let [.., a, b, c, d] = hash.to_be_bytes();
        let mut slot = u32::from_be_bytes([a, b, c, d]) as usize % self.table.len();
        loop {
            match self.table[slot] {
                found if found == hash => return Some(false),
                0 if self.count == self.max => return None,
                0 => {
                    self.table[slot] = hash;
                    self.count += 1;
                    return Some(true);
                }
                _ => slot = (slot + 1) % self.table.len(),
            }
        }
    }
}

/// One scan, for the keys whose hashes are in one range.
struct RangeScan<'a> {
    at: i64,
    range: RangeInclusive<u64>,
    seen: &'a mut SeenKeys,
    is_full: bool,
    sum: LiveKeys,
}

impl<S: ReadAt> Visitor<S> for RangeScan<'_> {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        if self.is_full {
            return Ok(());
        }
        let (revision, is_deletion) = Revision::parse(entry.key).map_err(|why| entry.damage(why))?;
        let is_empty_record = entry.value.length == 0;
        if revision.main > self.at || is_empty_record {
            return Ok(());
        }
        let record = Record::parse_entry(source, entry)?;
        let hash = hash_key(source, &record.key)?;
        let [first, ..] = [hash >> 64];
        if !self.range.contains(&u64::try_from(first).unwrap_or(u64::MAX)) {
            return Ok(());
        }
        let Some(is_new) = self.seen.insert(hash) else {
            self.is_full = true;
            return Ok(());
        };
        let bytes = record.key.length + record.value.length;
        let is_live = is_new && !is_deletion;
        let size = prefix_size(&mut self.sum, source, &record)?;
        if is_live {
            size.keys += 1;
            size.bytes += bytes;
            self.sum.keys += 1;
            self.sum.bytes += bytes;
            self.sum.largest = self.sum.largest.max(bytes);
            self.sum.digest.add_record(source, &record)?;
        } else {
            size.records += 1;
            size.record_bytes += bytes;
        }
        Ok(())
    }
}

fn hash_key<S: ReadAt>(source: &mut S, key: &Value<'_>) -> Result<u128, Error> {
    let mut hash = Sha256::new();
    key.read_chunks(source, &mut |chunk| hash.update(chunk))?;
    let hash = hash.finalize();
    Ok(hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes)))
}

fn prefix_size<'a, S: ReadAt>(
    sum: &'a mut LiveKeys,
    source: &mut S,
    record: &Record<'_>,
) -> Result<&'a mut PrefixSize, Error> {
    let head = record.key.slice(0, MAX_PREFIX_SIZE);
    let head = head.read_all(source, 1 << 10)?.unwrap_or_default();
    let prefix = printable(key_prefix(&head));
    if sum.prefixes.len() >= MAX_PREFIXES && !sum.prefixes.contains_key(&prefix) {
        return Ok(&mut sum.others);
    }
    Ok(sum.prefixes.entry(prefix).or_default())
}

/// The first two segments of a key: `/registry/pods/` for `/registry/pods/shop/cart-0`, empty for `colour`.
fn key_prefix(key: &[u8]) -> &[u8] {
    let mut slashes = key
        .iter()
        .enumerate()
        .filter(|(index, byte)| **byte == b'/' && *index > 0)
        .map(|(index, _)| index + 1);
    let first = slashes.next().unwrap_or(0);
    &key[..slashes.next().unwrap_or(first)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_first_two_segments() {
        for (key, expected) in [
            ("/registry/pods/shop/cart-0", "/registry/pods/"),
            ("/registry/health", "/registry/"),
            ("a/b/c", "a/b/"),
            ("colour", ""),
            ("/", ""),
            ("//x", "//"),
            ("", ""),
        ] {
            assert_eq!(key_prefix(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }

    #[test]
    fn split_ranges_are_adjacent_and_complete() {
        for parts in [1, 2, 3, 1000] {
            let ranges = split_range(0..=u64::MAX, parts);
            assert_eq!(ranges.len() as u64, parts);
            assert_eq!(
                (*ranges[0].start(), *ranges[ranges.len() - 1].end()),
                (0, u64::MAX)
            );
            assert!(ranges.windows(2).all(|two| two[0].end() + 1 == *two[1].start()));
        }
        assert_eq!(split_range(6..=7, 2), [6..=6, 7..=7]);
    }

    #[test]
    fn seen_keys_are_remembered_until_the_table_is_full() {
        let mut seen = SeenKeys::with_capacity(3);
        assert_eq!(seen.insert(0), Some(true));
        assert_eq!(seen.insert(1 << 127), Some(true));
        assert_eq!(seen.insert(7), Some(true));
        assert_eq!(seen.insert(1 << 127), Some(false));
        assert_eq!(seen.insert(8), None);
        seen.clear();
        assert_eq!(seen.insert(8), Some(true));
    }
}
