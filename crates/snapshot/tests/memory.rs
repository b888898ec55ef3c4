//! Reads a value much larger than the allowed memory. The only test of its program, because it measures the
//! peak memory of the process.

use etcd_operator_snapshot::content::audit::audit;
use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{ReadAt, ReadError};

const PAGE: usize = 4096;
const VALUE: u64 = 48 << 20;
const ALLOWED: u64 = 8 << 20;

/// A database with one key. Its value is generated zeros.
struct HugeValue {
    head: Vec<u8>,
    pages: u64,
}

impl HugeValue {
    fn new() -> Self {
        let record = record();
        let used = 16 + 16 + 17 + record.len() as u64 + VALUE;
        let overflow = u32::try_from((used - 1) / PAGE as u64).expect("few");
        let pages = 4 + u64::from(overflow);
        let mut head = [meta(0, pages), meta(1, pages), buckets()].concat();
        let mut leaf = header(3, 1, overflow);
        let length = u32::try_from(record.len() as u64 + VALUE).expect("small");
        leaf.extend(element(0, 16, 17, length));
        leaf.extend(*b"\0\0\0\0\0\0\0\x05_\0\0\0\0\0\0\0\0");
        leaf.extend(record);
        head.extend(leaf);
        Self { head, pages }
    }
}

impl ReadAt for HugeValue {
    fn length(&self) -> u64 {
        self.pages * PAGE as u64
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        assert!(
            offset + buffer.len() as u64 <= self.length(),
            "it reads beyond the end"
        );
        buffer.fill(0);
        let from = usize::try_from(offset).expect("small").min(self.head.len());
        let rest = &self.head[from..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(())
    }
}

/// The record of a key at revision 5, up to the value, which follows.
fn record() -> Vec<u8> {
    let mut bytes = b"\x0a\x01k\x10\x05\x18\x05\x20\x01\x2a".to_vec();
    let mut left = VALUE;
    while left >= 0x80 {
        bytes.push(u8::try_from(left & 0x7F).expect("seven bits") | 0x80);
        left >>= 7;
    }
    bytes.push(u8::try_from(left).expect("seven bits"));
    bytes
}

fn header(number: u64, count: u16, overflow: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(2_u16.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(overflow.to_le_bytes());
    bytes
}

fn element(flags: u32, position: u32, key: u32, value: u32) -> Vec<u8> {
    [flags, position, key, value].map(u32::to_le_bytes).concat()
}

fn meta(number: u64, pages: u64) -> Vec<u8> {
    let mut page = number.to_le_bytes().to_vec();
    page.extend([4, 0, 0, 0, 0, 0, 0, 0]);
    for word in [0xED0C_DAED_u32, 2, 4096, 0] {
        page.extend(word.to_le_bytes());
    }
    for word in [2, 0, u64::MAX, pages, 10 - number] {
        page.extend(word.to_le_bytes());
    }
    let sum = page[16..].iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    page.extend(sum.to_le_bytes());
    page.resize(PAGE, 0);
    page
}

/// The bucket `key` with root page 3, and the empty inline bucket `meta`.
fn buckets() -> Vec<u8> {
    let mut page = header(2, 2, 0);
    page.extend(element(1, 32, 3, 16));
    page.extend(element(1, 16 + 19, 4, 32));
    page.extend(b"key\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    page.extend(b"meta");
    page.extend([0; 16]);
    page.extend(header(0, 0, 0));
    page.resize(PAGE, 0);
    page
}

/// The peak memory of this process.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("the peak");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("a number") << 10
}

#[test]
fn a_huge_value_is_read_in_chunks() {
    let before = peak_memory();
    let mut database = Database::open(HugeValue::new()).expect("open");
    let audit = audit(&mut database).expect("a walk");
    assert_eq!(audit.findings.list, []);
    assert_eq!((audit.look.revision, audit.records), (5, 1));
    let live = find_live_keys(&mut database, None, audit.records).expect("keys");
    assert_eq!((live.keys, live.bytes), (1, VALUE + 1));
    let grown = peak_memory() - before;
    assert!(grown < ALLOWED, "{grown} bytes of memory for a value of {VALUE}");
}
