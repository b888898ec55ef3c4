//! Segments as etcd writes them, for tests.

use super::checksum;

/// A segment, with the zeros behind it.
pub(crate) struct Segment {
    bytes: Vec<u8>,
    written: usize,
    sum: u32,
    /// Places of bytes that fill up a record, and of those that say how many do.
    pub(crate) padding: Vec<usize>,
}

impl Segment {
    /// A segment that continues a checksum.
    pub(crate) fn new(sum: u32, cluster: u64, member: u64) -> Self {
        let mut segment = Self {
            bytes: vec![0; 1024],
            written: 0,
            sum,
            padding: Vec::new(),
        };
        segment.frame(4, sum, &[]);
        segment.record(1, &[varint(1, member), varint(2, cluster)].concat());
        segment
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Up to the last record.
    pub(crate) fn written(&self) -> &[u8] {
        &self.bytes[..self.written]
    }

    /// An entry of the replicated log.
    pub(crate) fn entry(&mut self, term: u64, index: u64, kind: u64, data: &[u8]) {
        let entry = [varint(1, kind), varint(2, term), varint(3, index), bytes(4, data)];
        self.record(2, &entry.concat());
    }

    /// Term and commit.
    pub(crate) fn state(&mut self, term: u64, commit: u64) {
        self.record(3, &[varint(1, term), varint(3, commit)].concat());
    }

    /// Where a snapshot is.
    pub(crate) fn snapshot(&mut self, term: u64, index: u64) {
        self.record(5, &[varint(1, index), varint(2, term)].concat());
    }

    fn record(&mut self, kind: u64, data: &[u8]) {
        self.sum = checksum::extend(self.sum, data);
        self.frame(kind, self.sum, data);
    }

    fn frame(&mut self, kind: u64, sum: u32, data: &[u8]) {
        let record = [varint(1, kind), varint(2, sum.into()), bytes(3, data)].concat();
        let padding = (8 - record.len() % 8) % 8;
        let mut length = record.len() as u64;
        if padding > 0 {
            length |= (0x80 | padding as u64) << 56;
        }
        let frame = [&length.to_le_bytes()[..], &record, &vec![0; padding]].concat();
        self.bytes[self.written..self.written + frame.len()].copy_from_slice(&frame);
        self.padding.push(self.written + 7);
        self.written += frame.len();
        self.padding.extend(self.written - padding..self.written);
    }
}

/// A field that is a number.
pub(crate) fn varint(field: u64, number: u64) -> Vec<u8> {
    [encoded(field << 3), encoded(number)].concat()
}

/// A field that is bytes.
pub(crate) fn bytes(field: u64, data: &[u8]) -> Vec<u8> {
    [encoded(field << 3 | 2), encoded(data.len() as u64), data.to_vec()].concat()
}

fn encoded(mut number: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            encoded.push(low);
            return encoded;
        }
        encoded.push(low | 0x80);
    }
}

/// A request that puts a key.
pub(crate) fn put() -> Vec<u8> {
    let request = [bytes(1, b"key"), bytes(2, b"value")].concat();
    [bytes(4, &request), bytes(100, &varint(1, 77))].concat()
}

/// A request of the older kind that puts a path.
pub(crate) fn attributes(path: &str) -> Vec<u8> {
    [
        varint(1, 77),
        bytes(2, b"PUT"),
        bytes(3, path.as_bytes()),
        bytes(4, b"{}"),
    ]
    .concat()
}

/// What etcd writes by itself, as kind and data of an entry.
pub(crate) fn own() -> Vec<(u64, Vec<u8>)> {
    let path = "/0/members/8e9e05c52164694d/attributes";
    vec![
        (0, Vec::new()),
        (1, vec![1, 2, 3]),
        (2, vec![1, 2, 3]),
        (0, attributes(path)),
        (0, attributes("/0/version")),
        (0, bytes(2, &attributes(path))),
        (0, [varint(1, 9), bytes(2, &attributes("/0/version"))].concat()),
        (
            0,
            [bytes(100, &varint(1, 77)), bytes(1300, &bytes(1, b"3.6.0"))].concat(),
        ),
        (
            0,
            [bytes(1301, &varint(1, 5)), bytes(100, &varint(1, 77))].concat(),
        ),
    ]
}
