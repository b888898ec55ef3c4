//! Any bytes as a database: nothing panics, nothing overflows, and what is read stays in proportion to what there is.
#![no_main]

use etcd_operator_snapshot::content::audit::audit;
use etcd_operator_snapshot::content::live::live;
use etcd_operator_snapshot::content::look::look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{ReadAt, ReadError};
use libfuzzer_sys::fuzz_target;

/// Counts what is read.
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

/// Where the checksum of a meta page lies, and the bytes it is of.
const META: usize = 16;
const CHECKSUM: usize = META + 56;

/// Makes the checksums of both metas right: without that no change of theirs would get past the first look.
fn signed(bytes: &mut [u8]) {
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
    signed(&mut bytes);
    let mut counted = Counted { bytes: &bytes, read: 0 };
    if let Ok(mut database) = Database::open(&mut counted) {
        let _ = look(&mut database);
        let records = audit(&mut database).map_or(0, |audit| audit.records);
        let _ = live(&mut database, None, records);
    }
    let most = 32 * (bytes.len() as u64).max(4096);
    assert!(counted.read <= most, "{} bytes read of {}", counted.read, bytes.len());
});
