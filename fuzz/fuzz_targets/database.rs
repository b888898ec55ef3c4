//! Reads arbitrary bytes as a database. Nothing may panic or overflow, and the amount read must be
//! proportional to the size.
#![no_main]

use etcd_operator_snapshot::content::audit::audit;
use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::content::quick_look::quick_look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{ReadAt, ReadError};
use libfuzzer_sys::fuzz_target;

/// Counts the bytes read.
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

/// The offsets of the meta data and its checksum within a meta page.
const META: usize = 16;
const CHECKSUM: usize = META + 56;

/// Corrects the checksums of both meta pages. Otherwise every mutation of them would be rejected at once.
fn fix_checksums(bytes: &mut [u8]) {
    for page in [0, 4096] {
        let Some(meta) = bytes.get_mut(page..page + CHECKSUM + 8) else {
            continue;
        };
        let sum = meta[META..CHECKSUM].iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        meta[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    fix_checksums(&mut bytes);
    let mut source = CountingSource { bytes: &bytes, read: 0 };
    if let Ok(mut database) = Database::open(&mut source) {
        let _ = quick_look(&mut database);
        let records = audit(&mut database).map_or(0, |audit| audit.records);
        let _ = find_live_keys(&mut database, None, records);
    }
    let max = 32 * (bytes.len() as u64).max(4096);
    assert!(source.read <= max, "{} bytes read of {}", source.read, bytes.len());
});
