//! Entries of the bucket of keys: a revision, and what a key became at it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::wire;
use crate::database::{Entry, Error, Value};
use crate::source::{ReadAt, ReadError};

/// When something was written: the transaction, and the how manieth change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision {
    /// What etcd calls the revision.
    pub main: i64,
    /// Counted within the transaction.
    pub sub: i64,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

/// A revision as etcd writes it: two numbers of eight bytes with a mark between; a deletion has another mark behind.
const LENGTH: usize = 17;

impl Revision {
    /// Reads a revision, and whether it is marked as a deletion.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, bool), &'static str> {
        let is_deletion = match bytes.get(LENGTH..) {
            Some([]) => false,
            Some([b't']) => true,
            _ => return Err("a revision has 17 bytes, and one more for a deletion"),
        };
        let number = |from: usize| {
            let number = bytes.get(from..).and_then(<[u8]>::first_chunk);
            number.and_then(|bytes| i64::try_from(u64::from_be_bytes(*bytes)).ok())
        };
        if bytes[8] != b'_' {
            return Err("the two numbers of a revision are divided by a line");
        }
        match (number(0), number(9)) {
            (Some(main), Some(sub)) => Ok((Self { main, sub }, is_deletion)),
            _ => Err("the numbers of a revision are not negative"),
        }
    }
}

/// What a key became.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    pub key: Value<'a>,
    pub value: Value<'a>,
    pub created: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

/// Why a record is none.
enum Fault {
    Read(ReadError),
    Shape(&'static str),
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl<'a> Record<'a> {
    /// The record of an entry; anything else there is damage of that entry.
    pub fn of<S: ReadAt>(source: &mut S, entry: &Entry<'a>) -> Result<Self, Error> {
        Self::parse(source, &entry.value).map_err(|fault| match fault {
            Fault::Read(error) => error.into(),
            Fault::Shape(why) => entry.wrong(why),
        })
    }

    /// Reads a record, only its numbers and where its runs of bytes are.
    fn parse<S: ReadAt>(source: &mut S, whole: &Value<'a>) -> Result<Self, Fault> {
        let mut record = Self {
            key: whole.part(0, 0),
            value: whole.part(0, 0),
            created: 0,
            modified: 0,
            version: 0,
            lease: 0,
        };
        let (mut at, mut seen) = (0, 0);
        while at < whole.length {
            let tag = number(source, whole, &mut at)?;
            let value = number(source, whole, &mut at)?;
            // Fields come once each, in the order of their numbers.
            if tag >> 3 <= seen {
                return Err(Fault::Shape("its fields are out of order"));
            }
            seen = tag >> 3;
            let signed = i64::try_from(value).map_err(|_| Fault::Shape("one of its numbers is negative"));
            match tag {
                0x10 => record.created = signed?,
                0x18 => record.modified = signed?,
                0x20 => record.version = signed?,
                0x30 => record.lease = value.cast_signed(),
                0x0A | 0x2A => {
                    if value > whole.length - at {
                        return Err(Fault::Shape("it ends too early"));
                    }
                    let run = whole.part(at, value);
                    at += value;
                    *(if tag == 0x0A {
                        &mut record.key
                    } else {
                        &mut record.value
                    }) = run;
                }
                _ => return Err(Fault::Shape("it has a field that no key has")),
            }
        }
        Ok(record)
    }

    /// Whether it may stand at this revision.
    pub fn judge(&self, at: Revision, is_deletion: bool) -> Result<(), &'static str> {
        if self.key.length == 0 {
            return Err("its key is empty");
        }
        if is_deletion {
            let is_bare = self.modified == 0 && self.value.length == 0 && self.version == 0;
            return if is_bare {
                Ok(())
            } else {
                Err("a deletion says more than a key")
            };
        }
        if self.modified != at.main {
            return Err("it was not modified at the revision it stands at");
        }
        if self.created < 1 || self.created > self.modified || self.version < 1 {
            return Err("it was created after it was modified, or never");
        }
        Ok(())
    }
}

fn number<S: ReadAt>(source: &mut S, whole: &Value<'_>, at: &mut u64) -> Result<u64, Fault> {
    let bytes = whole.part(*at, 10).whole(source, 10)?.unwrap_or_default();
    let (number, taken) = wire::number(&bytes).ok_or(Fault::Shape("it ends too early"))?;
    *at += taken as u64;
    Ok(number)
}
