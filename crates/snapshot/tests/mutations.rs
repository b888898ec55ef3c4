//! Bytes that are changed one by one, and bytes that never were a database: nothing panics, nothing runs away, and
//! what is not found to be damaged says the same as before.

mod support;

use etcd_operator_snapshot::content::live::live;
use etcd_operator_snapshot::content::look::look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{ReadAt, ReadError};
use proptest::prelude::*;
use support::{Broken, bytes, table, walk};

/// Counts what is read, so that a walk that runs away is noticed.
struct Counted<'a> {
    bytes: &'a [u8],
    read: u64,
}

impl ReadAt for Counted<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read += buffer.len() as u64;
        self.bytes.read_at(place, buffer)
    }
}

/// What a file says to whoever restores it: everything but its form. Nothing if it is damaged.
fn said(bytes: &[u8]) -> Option<String> {
    let audit = walk(bytes).ok().filter(|audit| audit.findings.is_empty())?;
    let mut database = Database::open(bytes).ok()?;
    let live = live(&mut database, None, audit.records).ok()?;
    Some(format!("{:?} {}", audit.look.facts, live.digest))
}

/// Walks, looks and takes the digest of whatever this is; says how much was read for each byte there is.
fn work(bytes: &[u8]) -> u64 {
    let mut counted = Counted { bytes, read: 0 };
    if let Ok(mut database) = Database::open(&mut counted) {
        let _ = look(&mut database);
        let records = match etcd_operator_snapshot::content::audit::audit(&mut database) {
            Ok(audit) => audit.records,
            Err(_) => 0,
        };
        let _ = live(&mut database, None, records);
    }
    counted.read / (bytes.len() as u64).max(1)
}

/// Reads for one byte of a file: a look, a walk, a digest, each of which reads values apart from pages.
const MOST_WORK: u64 = 24;

/// Every byte of structure of a file, changed in a few ways.
fn flip_all(name: &str, flips: &[u8], step: usize) -> (usize, usize) {
    let broken = Broken::new(name);
    let wanted = said(&broken.bytes).unwrap_or_else(|| panic!("{name} is whole"));
    let (mut detected, mut harmless) = (0, 0);
    let mut bytes = broken.bytes.clone();
    for place in broken.structure().into_iter().step_by(step) {
        for flip in flips {
            bytes[place] ^= flip;
            match said(&bytes) {
                None => detected += 1,
                Some(said) => {
                    assert_eq!(said, wanted, "{name}: byte {place} changed by {flip:#04x}");
                    harmless += 1;
                }
            }
            bytes[place] ^= flip;
        }
    }
    (detected, harmless)
}

#[test]
fn a_changed_byte_of_structure_is_found_or_says_nothing_else() {
    let (mut detected, mut harmless) = (0, 0);
    for row in table() {
        let is_small = ["-fresh", "-tombstone"].iter().any(|end| row.name.ends_with(end));
        if !is_small {
            continue;
        }
        let (found, not) = flip_all(&row.name, &[0x01, 0x80, 0xFF], 1);
        detected += found;
        harmless += not;
    }
    println!("small files: {detected} found, {harmless} harmless");
    // What is harmless are numbers that etcd does not use, such as the sequence of a bucket.
    assert!(detected > 4 * harmless, "{detected} found, {harmless} harmless");
}

#[test]
fn a_changed_byte_of_structure_of_a_large_file_is_found_or_says_nothing_else() {
    let (mut detected, mut harmless) = (0, 0);
    for (name, flip) in [
        ("3.2-full", 0x04),
        ("3.4-full", 0x10),
        ("3.5-synced", 0x01),
        ("3.7-full", 0x40),
    ] {
        let (found, not) = flip_all(name, &[flip], 41);
        detected += found;
        harmless += not;
    }
    println!("large files: {detected} found, {harmless} harmless");
    assert!(detected > 10 * harmless, "{detected} found, {harmless} harmless");
}

#[test]
fn whole_files_take_little_work() {
    for row in table() {
        let work = work(&bytes(&row.name));
        assert!(work <= MOST_WORK, "{}: {work} reads of each byte", row.name);
    }
}

/// Pages of a real file put in each other's places, and bytes of pages changed, with metas that are right again.
fn shuffled() -> impl Strategy<Value = Vec<u8>> {
    let change = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<u8>(),
    );
    (
        prop::sample::select(vec!["3.2-tombstone", "3.4-full", "3.5-synced", "3.7-nospace"]),
        prop::collection::vec(change, 1..12),
    )
        .prop_map(|(name, changes)| {
            let mut broken = Broken::new(name);
            let pages = broken.bytes.len() / broken.size;
            let structure = broken.structure();
            for (one, other, byte) in changes {
                match byte % 3 {
                    0 => {
                        let (from, to) = (one.index(pages) * broken.size, other.index(pages) * broken.size);
                        broken.bytes.copy_within(from..from + broken.size, to);
                    }
                    1 => broken.bytes[structure[one.index(structure.len())]] = byte,
                    _ => {
                        let place = one.index(broken.bytes.len());
                        broken.bytes[place] ^= byte;
                    }
                }
            }
            broken.reseal();
            broken.bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_rearranged_file_makes_it_panic_or_run_away(bytes in shuffled()) {
        let work = work(&bytes);
        prop_assert!(work <= MOST_WORK, "{work} reads of each byte");
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        prop_assert!(work(&bytes) <= MOST_WORK);
    }
}
