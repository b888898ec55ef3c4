//! Changes bytes of real files, and reads arbitrary bytes as databases. Nothing may panic or read without
//! limit. If no damage is found, the content must be unchanged.

mod support;

use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::content::quick_look::quick_look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{ReadAt, ReadError};
use proptest::prelude::*;
use support::{DamagedFile, bytes, check_database, table};

/// Counts the bytes read, to detect reading without limit.
struct CountingSource<'a> {
    bytes: &'a [u8],
    read: u64,
}

impl ReadAt for CountingSource<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read += buffer.len() as u64;
        self.bytes.read_at(offset, buffer)
    }
}

/// The content of a file that a restore uses. `None` if the file is damaged.
fn restorable_content(bytes: &[u8]) -> Option<String> {
    let audit = check_database(bytes)
        .ok()
        .filter(|audit| audit.findings.is_empty())?;
    let mut database = Database::open(bytes).ok()?;
    let live = find_live_keys(&mut database, None, audit.records).ok()?;
    Some(format!("{:?} {}", audit.look.facts, live.digest))
}

/// Checks, looks at and digests any bytes. Returns how often each byte was read.
fn reads_per_byte(bytes: &[u8]) -> u64 {
    let mut source = CountingSource { bytes, read: 0 };
    if let Ok(mut database) = Database::open(&mut source) {
        let _ = quick_look(&mut database);
        let records = match etcd_operator_snapshot::content::audit::audit(&mut database) {
            Ok(audit) => audit.records,
            Err(_) => 0,
        };
        let _ = find_live_keys(&mut database, None, records);
    }
    source.read / (bytes.len() as u64).max(1)
}

/// How often each byte of a file may be read: by a look, a full check and a digest, each of which reads
/// values separately from pages.
const MAX_READS: u64 = 24;

/// Changes every structural byte of a file in the given ways.
fn change_structure(name: &str, flips: &[u8], step: usize) -> (usize, usize) {
    let damaged = DamagedFile::new(name);
    let expected = restorable_content(&damaged.bytes).unwrap_or_else(|| panic!("{name} is whole"));
    let (mut detected, mut harmless) = (0, 0);
    let mut bytes = damaged.bytes.clone();
    for offset in damaged.structure().into_iter().step_by(step) {
        for flip in flips {
            bytes[offset] ^= flip;
            match restorable_content(&bytes) {
                None => detected += 1,
                Some(content) => {
                    assert_eq!(content, expected, "{name}: byte {offset} changed by {flip:#04x}");
                    harmless += 1;
                }
            }
            bytes[offset] ^= flip;
        }
    }
    (detected, harmless)
}

#[test]
fn a_changed_structural_byte_is_detected_or_harmless() {
    let (mut detected, mut harmless) = (0, 0);
    for row in table() {
        let is_small = ["-fresh", "-tombstone"].iter().any(|end| row.name.ends_with(end));
        if !is_small {
            continue;
        }
        let (found, not) = change_structure(&row.name, &[0x01, 0x80, 0xFF], 1);
        detected += found;
        harmless += not;
    }
    println!("small files: {detected} found, {harmless} harmless");
    // The harmless bytes are fields that etcd does not use, such as the sequence of a bucket.
    assert!(detected > 4 * harmless, "{detected} found, {harmless} harmless");
}

#[test]
fn a_changed_structural_byte_of_a_large_file_is_detected_or_harmless() {
    let (mut detected, mut harmless) = (0, 0);
    for (name, flip) in [
        ("3.2-full", 0x04),
        ("3.4-full", 0x10),
        ("3.5-synced", 0x01),
        ("3.7-full", 0x40),
    ] {
        let (found, not) = change_structure(name, &[flip], 41);
        detected += found;
        harmless += not;
    }
    println!("large files: {detected} found, {harmless} harmless");
    assert!(detected > 10 * harmless, "{detected} found, {harmless} harmless");
}

#[test]
fn undamaged_files_need_few_reads() {
    for row in table() {
        let reads = reads_per_byte(&bytes(&row.name));
        assert!(reads <= MAX_READS, "{}: {reads} reads of each byte", row.name);
    }
}

/// Copies pages of a real file over each other and changes bytes, then corrects the checksums of the meta
/// pages.
fn shuffled_files() -> impl Strategy<Value = Vec<u8>> {
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
            let mut damaged = DamagedFile::new(name);
            let pages = damaged.bytes.len() / damaged.size;
            let structure = damaged.structure();
            for (one, other, byte) in changes {
                match byte % 3 {
                    0 => {
                        let (from, to) = (one.index(pages) * damaged.size, other.index(pages) * damaged.size);
                        damaged.bytes.copy_within(from..from + damaged.size, to);
                    }
                    1 => damaged.bytes[structure[one.index(structure.len())]] = byte,
                    _ => {
                        let offset = one.index(damaged.bytes.len());
                        damaged.bytes[offset] ^= byte;
                    }
                }
            }
            damaged.fix_checksums();
            damaged.bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shuffled_files_cause_no_panic_and_bounded_reads(bytes in shuffled_files()) {
        let reads = reads_per_byte(&bytes);
        prop_assert!(reads <= MAX_READS, "{reads} reads of each byte");
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        prop_assert!(reads_per_byte(&bytes) <= MAX_READS);
    }
}
