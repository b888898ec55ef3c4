//! Which keys are there at a revision: how many, how large, below which prefixes, and their digest.
//!
//! The bucket of keys is in the order of revisions, so which entry of a key is its last is known only by remembering
//! keys. It is walked from its end; the first entry met of a key is the one that counts, and of each key met 16 bytes
//! of its SHA-256 are remembered. As memory is bounded, a large database is walked several times, each time for the
//! keys whose hashes lie in one range.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::KEY;
use super::digest::Digest;
use super::record::{Record, Revision};
use crate::database::{Database, Entry, Error, Order, Value, Visit, shown};
use crate::source::ReadAt;

/// How many keys are remembered at once, in 32 MiB.
const REMEMBERED: usize = 1_500_000;
/// Prefixes that are told apart; keys below further ones are counted together.
const PREFIXES: usize = 512;
/// The longest prefix.
const LONGEST: u64 = 128;

/// The keys that are there at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    /// How many.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Bytes of the largest key with its value: whoever reads pages of keys wants to know.
    #[serde(skip)]
    pub largest: u64,
    /// Their digest.
    pub digest: Digest,
    /// What lies below each prefix: the first two parts of keys divided by slashes.
    pub prefixes: BTreeMap<String, Size>,
    /// What lies below prefixes beyond the first few hundred.
    pub others: Size,
}

/// How much lies below a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// Keys that are there.
    pub keys: u64,
    /// Bytes of them and their values.
    pub bytes: u64,
    /// Entries with older revisions and deletions.
    pub records: u64,
    /// Bytes of these.
    pub record_bytes: u64,
}

/// Finds the keys that are there at a revision, or at the last one. Stops at damage: audit the database first.
pub fn live<S: ReadAt>(database: &mut Database<S>, at: Option<i64>, records: u64) -> Result<Live, Error> {
    live_within(database, at, records, REMEMBERED)
}

/// The same with another bound on how many keys are remembered at once.
pub fn live_within<S: ReadAt>(
    database: &mut Database<S>,
    at: Option<i64>,
    records: u64,
    remembered: usize,
) -> Result<Live, Error> {
    let Some(bucket) = database.bucket(KEY)? else {
        return Err(super::look::missing(KEY).into());
    };
    let parts = (records / (remembered as u64 * 4 / 5).max(1) + 1).min(1 << 16);
    let mut ranges = divide(0..=u64::MAX, parts);
    let mut sum = Live::default();
    let mut seen = Seen::of(remembered.min(usize::try_from(records).unwrap_or(remembered)) + 1);
    while let Some(range) = ranges.pop() {
        seen.clear();
        let mut pass = Pass {
            at: at.unwrap_or(i64::MAX),
            range: range.clone(),
            seen: &mut seen,
            is_full: false,
            sum: sum.clone(),
        };
        database.each(&bucket, Order::Backward, &mut pass)?;
        if pass.is_full && range.start() < range.end() {
            ranges.extend(divide(range, 2));
        } else {
            sum = pass.sum;
        }
    }
    Ok(sum)
}

/// Ranges of about the same length, one behind the other.
fn divide(range: RangeInclusive<u64>, parts: u64) -> Vec<RangeInclusive<u64>> {
    let (start, end) = range.into_inner();
    let length = u128::from(end - start) + 1;
    let place = |part: u64| length * u128::from(part) / u128::from(parts);
    let number = |place: u128| start + u64::try_from(place).unwrap_or(end - start);
    (0..parts)
        .map(|part| number(place(part))..=number(place(part + 1) - 1))
        .collect()
}

/// Hashes that were met; a table with open places, so that its size is known.
struct Seen {
    table: Vec<u128>,
    count: usize,
    most: usize,
}

impl Seen {
    fn of(most: usize) -> Self {
        let places = (most + most / 3 + 1).next_power_of_two();
        Self {
            table: vec![0; places],
            count: 0,
            most,
        }
    }

    fn clear(&mut self) {
        self.table.fill(0);
        self.count = 0;
    }

    /// Whether it is new; nothing if there is no room for it.
    fn insert(&mut self, hash: u128) -> Option<bool> {
        // Zero marks a free place.
        let hash = hash.max(1);
        let [.., a, b, c, d] = hash.to_be_bytes();
        let mut place = u32::from_be_bytes([a, b, c, d]) as usize % self.table.len();
        loop {
            match self.table[place] {
                found if found == hash => return Some(false),
                0 if self.count == self.most => return None,
                0 => {
                    self.table[place] = hash;
                    self.count += 1;
                    return Some(true);
                }
                _ => place = (place + 1) % self.table.len(),
            }
        }
    }
}

/// One walk for the keys of one range.
struct Pass<'a> {
    at: i64,
    range: RangeInclusive<u64>,
    seen: &'a mut Seen,
    is_full: bool,
    sum: Live,
}

impl<S: ReadAt> Visit<S> for Pass<'_> {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        if self.is_full {
            return Ok(());
        }
        let (revision, is_deletion) = Revision::parse(entry.key).map_err(|why| entry.wrong(why))?;
        let is_mark = entry.value.length == 0;
        if revision.main > self.at || is_mark {
            return Ok(());
        }
        let record = Record::of(source, entry)?;
        let hash = hash(source, &record.key)?;
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
        let size = size_of(&mut self.sum, source, &record)?;
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

fn hash<S: ReadAt>(source: &mut S, key: &Value<'_>) -> Result<u128, Error> {
    let mut hash = Sha256::new();
    key.pieces(source, &mut |piece| hash.update(piece))?;
    let hash = hash.finalize();
    Ok(hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes)))
}

fn size_of<'a, S: ReadAt>(
    sum: &'a mut Live,
    source: &mut S,
    record: &Record<'_>,
) -> Result<&'a mut Size, Error> {
    let head = record.key.part(0, LONGEST);
    let head = head.whole(source, 1 << 10)?.unwrap_or_default();
    let prefix = shown(prefix(&head));
    if sum.prefixes.len() >= PREFIXES && !sum.prefixes.contains_key(&prefix) {
        return Ok(&mut sum.others);
    }
    Ok(sum.prefixes.entry(prefix).or_default())
}

/// The first two parts of a key: `/registry/pods/` of `/registry/pods/shop/cart-0`, nothing of `colour`.
fn prefix(key: &[u8]) -> &[u8] {
    let mut slashes = key
        .iter()
        .enumerate()
        .filter(|(place, byte)| **byte == b'/' && *place > 0)
        .map(|(place, _)| place + 1);
    let first = slashes.next().unwrap_or(0);
    &key[..slashes.next().unwrap_or(first)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_first_two_parts() {
        for (key, wanted) in [
            ("/registry/pods/shop/cart-0", "/registry/pods/"),
            ("/registry/health", "/registry/"),
            ("a/b/c", "a/b/"),
            ("colour", ""),
            ("/", ""),
            ("//x", "//"),
            ("", ""),
        ] {
            assert_eq!(prefix(key.as_bytes()), wanted.as_bytes(), "{key}");
        }
    }

    #[test]
    fn ranges_lie_one_behind_the_other_and_leave_nothing_out() {
        for parts in [1, 2, 3, 1000] {
            let ranges = divide(0..=u64::MAX, parts);
            assert_eq!(ranges.len() as u64, parts);
            assert_eq!(
                (*ranges[0].start(), *ranges[ranges.len() - 1].end()),
                (0, u64::MAX)
            );
            assert!(ranges.windows(2).all(|two| two[0].end() + 1 == *two[1].start()));
        }
        assert_eq!(divide(6..=7, 2), [6..=6, 7..=7]);
    }

    #[test]
    fn what_was_seen_is_known_until_there_is_no_room() {
        let mut seen = Seen::of(3);
        assert_eq!(seen.insert(0), Some(true));
        assert_eq!(seen.insert(1 << 127), Some(true));
        assert_eq!(seen.insert(7), Some(true));
        assert_eq!(seen.insert(1 << 127), Some(false));
        assert_eq!(seen.insert(8), None);
        seen.clear();
        assert_eq!(seen.insert(8), Some(true));
    }
}
