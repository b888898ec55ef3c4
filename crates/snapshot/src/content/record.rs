//! Entries of the bucket `key`: a revision, and the key-value pair written at it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::protobuf;
use crate::database::{Entry, Error, Value};
use crate::source::{ReadAt, ReadError};

/// A revision: the transaction, and the position of the change in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision {
    /// The transaction, which etcd's API calls the revision.
    pub main: i64,
    /// The position within the transaction.
    pub sub: i64,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

/// The length of an encoded revision: two 8-byte numbers separated by `_`. A deletion has a `t` at the end.
const LENGTH: usize = 17;

impl Revision {
    /// Parses a revision. Returns it, and whether it is a deletion.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, bool), &'static str> {
        let is_deletion = match bytes.get(LENGTH..) {
            Some([]) => false,
            Some([b't']) => true,
            _ => return Err("a revision has 17 bytes, or 18 for a deletion"),
        };
        let number = |from: usize| {
            let number = bytes.get(from..).and_then(<[u8]>::first_chunk);
            number.and_then(|bytes| i64::try_from(u64::from_be_bytes(*bytes)).ok())
        };
        if bytes[8] != b'_' {
            return Err("the two numbers of a revision are separated by an underscore");
        }
        match (number(0), number(9)) {
            (Some(main), Some(sub)) => Ok((Self { main, sub }, is_deletion)),
            _ => Err("the numbers of a revision must not be negative"),
        }
    }
}

/// A key-value pair at a revision.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    pub key: Value<'a>,
    pub value: Value<'a>,
    pub created: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

/// Why a record could not be parsed.
enum ParseError {
    Read(ReadError),
    Invalid(&'static str),
}

impl From<ReadError> for ParseError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl<'a> Record<'a> {
    /// Parses the value of an entry. Anything that is not a record is damage of the entry.
    pub fn parse_entry<S: ReadAt>(source: &mut S, entry: &Entry<'a>) -> Result<Self, Error> {
        Self::parse(source, &entry.value).map_err(|error| match error {
            ParseError::Read(error) => error.into(),
            ParseError::Invalid(why) => entry.damage(why),
        })
    }

    /// Parses a record: its numbers, and the locations of key and value.
    fn parse<S: ReadAt>(source: &mut S, whole: &Value<'a>) -> Result<Self, ParseError> {
        let mut record = Self {
            key: whole.slice(0, 0),
            value: whole.slice(0, 0),
            created: 0,
            modified: 0,
            version: 0,
            lease: 0,
        };
        let (mut at, mut seen) = (0, 0);
        while at < whole.length {
            let tag = read_number(source, whole, &mut at)?;
            let value = read_number(source, whole, &mut at)?;
            // etcd writes each field at most once, ordered by field number.
            if tag >> 3 <= seen {
                return Err(ParseError::Invalid("its fields are out of order"));
            }
            seen = tag >> 3;
            let signed =
                i64::try_from(value).map_err(|_| ParseError::Invalid("one of its numbers is negative"));
            match tag {
                0x10 => record.created = signed?,
                0x18 => record.modified = signed?,
                0x20 => record.version = signed?,
                0x30 => record.lease = value.cast_signed(),
                0x0A | 0x2A => {
                    if value > whole.length - at {
                        return Err(ParseError::Invalid("it is truncated"));
                    }
                    let bytes = whole.slice(at, value);
                    at += value;
                    *(if tag == 0x0A {
                        &mut record.key
                    } else {
                        &mut record.value
                    }) = bytes;
                }
                _ => return Err(ParseError::Invalid("it has an unknown field")),
            }
        }
        Ok(record)
    }

    /// Checks that the record is plausible at this revision.
    pub fn check(&self, at: Revision, is_deletion: bool) -> Result<(), &'static str> {
        if self.key.length == 0 {
            return Err("its key is empty");
        }
        if is_deletion {
            let has_only_key = self.modified == 0 && self.value.length == 0 && self.version == 0;
            return if has_only_key {
                Ok(())
            } else {
                Err("a deletion contains more than a key")
            };
        }
        if self.modified != at.main {
            return Err("its mod revision differs from its revision");
        }
        if self.created < 1 || self.created > self.modified || self.version < 1 {
            return Err("its create revision or version is invalid");
        }
        Ok(())
    }
}

fn read_number<S: ReadAt>(source: &mut S, whole: &Value<'_>, at: &mut u64) -> Result<u64, ParseError> {
    let bytes = whole.slice(*at, 10).read_all(source, 10)?.unwrap_or_default();
    let (number, taken) = protobuf::parse_varint(&bytes).ok_or(ParseError::Invalid("it is truncated"))?;
    *at += taken as u64;
    Ok(number)
}
