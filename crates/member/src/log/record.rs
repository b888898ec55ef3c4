//! The records of a segment: a length, the record, and padding to eight bytes; the checksums of all records of a
//! segment follow from one another. Reading ends where the first one is not valid.

use std::io::Read;

use super::checksum;
use super::fields::{bytes, is_message, number};

/// No record is longer: requests are bounded far below, and a length that was overwritten must not take the memory.
const LONGEST: u64 = 512 << 20;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whose log it is.
    Metadata,
    /// An entry of the replicated log.
    Entry,
    /// Term, vote and commit.
    State,
    /// The checksum of all before it.
    Checksum,
    /// Where a snapshot is.
    Snapshot,
    /// Nothing that is known.
    Other,
}

/// A valid record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) data: &'a [u8],
}

/// The records of a segment.
#[derive(Debug)]
pub(super) struct Records<R> {
    source: R,
    sum: u32,
    buffer: Vec<u8>,
}

impl<R: Read> Records<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            sum: 0,
            buffer: Vec::new(),
        }
    }

    /// The next record; none at the end of what was written; an error where a record is not valid.
    pub(super) fn read(&mut self) -> Result<Option<Record<'_>>, String> {
        let failed = |error: std::io::Error| format!("a record cannot be read: {error}");
        self.buffer.clear();
        (&mut self.source)
            .take(8)
            .read_to_end(&mut self.buffer)
            .map_err(failed)?;
        let Ok(length) = <[u8; 8]>::try_from(self.buffer.as_slice()) else {
            return if self.buffer.is_empty() {
                Ok(None)
            } else {
                Err("a record is cut off".to_owned())
            };
        };
        let (length, padding) = lengths(u64::from_le_bytes(length));
        if length == 0 {
            return Ok(None);
        }
        if length > LONGEST {
            return Err(format!("a record of {length} bytes"));
        }
        self.buffer.clear();
        let read = (&mut self.source)
            .take(length + padding)
            .read_to_end(&mut self.buffer)
            .map_err(failed)?;
        if u64::try_from(read) != Ok(length + padding) {
            return Err("a record is cut off".to_owned());
        }
        let end = usize::try_from(length).map_err(|_| format!("a record of {length} bytes"))?;
        self.valid(end).map(Some)
    }

    /// The record in the first bytes of the buffer. An error if its checksum does not continue that of the record
    /// before.
    fn valid(&mut self, end: usize) -> Result<Record<'_>, String> {
        let record = &self.buffer[..end];
        if !is_message(record) {
            return Err("a record is no message".to_owned());
        }
        let kind = kind(number(record, 1));
        let stated = number(record, 2)
            .and_then(|sum| u32::try_from(sum).ok())
            .unwrap_or(0);
        let data = bytes(record, 3).unwrap_or_default();
        if kind == Kind::Checksum {
            // The first one of a segment tells where the chain comes from; any other must continue it.
            if self.sum != 0 && self.sum != stated {
                return Err("a checksum does not continue the one before".to_owned());
            }
            self.sum = stated;
        } else {
            self.sum = checksum::extend(self.sum, data);
            if self.sum != stated {
                return Err("a checksum is wrong".to_owned());
            }
        }
        Ok(Record { kind, data })
    }
}

/// The length of a record and of its padding. The highest bit says that there is padding, the three lowest of its
/// byte say how much.
fn lengths(field: u64) -> (u64, u64) {
    let length = field & !(0xff << 56);
    let padding = if field >> 63 == 1 { (field >> 56) & 7 } else { 0 };
    (length, padding)
}

fn kind(number: Option<u64>) -> Kind {
    match number {
        Some(1) => Kind::Metadata,
        Some(2) => Kind::Entry,
        Some(3) => Kind::State,
        Some(4) => Kind::Checksum,
        Some(5) => Kind::Snapshot,
        _ => Kind::Other,
    }
}
