//! Sources of bytes: files, memory, and ranges fetched from a remote object. This module fetches nothing
//! itself.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;

/// A source of known length that can be read at any offset.
pub trait ReadAt {
    /// The length in bytes.
    fn length(&self) -> u64;
    /// Fills the buffer with the bytes at this offset.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError>;
}

/// Why a range could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading the file failed.
    #[error("cannot read {length} bytes at {offset}: {source}")]
    Io {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// The range ends after the end of the source.
    #[error("{length} bytes at {offset} are beyond the end at {end}")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
        /// The length of the source.
        end: u64,
    },
    /// The range has not been fetched. Fetch it, pass it to [`Ranges::put`], and start reading again.
    #[error("{length} bytes at {offset} have not been fetched")]
    Missing {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    },
    /// More bytes are needed than [`Ranges`] keeps.
    #[error("more than {max} bytes would have to be fetched")]
    TooMuch {
        /// The maximum number of bytes.
        max: u64,
    },
}

/// Checks that a buffer at this offset ends before the end, and returns its length.
fn check_range(offset: u64, buffer: &[u8], end: u64) -> Result<u64, ReadError> {
    let length = buffer.len() as u64;
    match offset.checked_add(length) {
        Some(last) if last <= end => Ok(length),
        _ => Err(out_of_range(offset, buffer.len(), end)),
    }
}

fn out_of_range(offset: u64, length: usize, end: u64) -> ReadError {
    let length = length as u64;
    ReadError::OutOfRange { offset, length, end }
}

impl<S: ReadAt + ?Sized> ReadAt for &mut S {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(offset, buffer)
    }
}

impl ReadAt for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(buffer.len())?));
        let Some(found) = found else {
            return Err(out_of_range(offset, buffer.len(), self.length()));
        };
        buffer.copy_from_slice(found);
        Ok(())
    }
}

/// A file. Its length is read once; data appended later is not seen.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    length: u64,
}

impl File {
    /// Uses the current length of the file.
    pub fn new(file: std::fs::File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }
}

impl ReadAt for File {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = check_range(offset, buffer, self.length)?;
        self.file
            .read_exact_at(buffer, offset)
            .map_err(|source| ReadError::Io {
                offset,
                length,
                source,
            })
    }
}

/// The maximum number of bytes that [`Ranges`] keeps. A quick look at a database needs far less.
const MAX_KEPT: u64 = 16 << 20;

/// The ranges of a remote object fetched so far. If a range is missing, the reader fails with
/// [`ReadError::Missing`]. Reading has no side effects, so the caller fetches the range and starts over.
#[derive(Debug)]
pub struct Ranges {
    length: u64,
    kept: u64,
    fetched: BTreeMap<u64, Vec<u8>>,
}

impl Ranges {
    /// Creates an empty set of ranges of an object with this length.
    pub fn with_length(length: u64) -> Self {
        Self {
            length,
            kept: 0,
            fetched: BTreeMap::new(),
        }
    }

    /// Adds a fetched range.
    pub fn put(&mut self, offset: u64, bytes: Vec<u8>) {
        self.kept += bytes.len() as u64;
        if let Some(before) = self.fetched.insert(offset, bytes) {
            self.kept -= before.len() as u64;
        }
    }
}

impl ReadAt for Ranges {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = check_range(offset, buffer, self.length)?;
        let before = self.fetched.range(..=offset).next_back();
        let found = before.and_then(|(start, bytes)| {
            let from = usize::try_from(offset - start).ok()?;
            bytes.get(from..from.checked_add(buffer.len())?)
        });
        match found {
            Some(found) => {
                buffer.copy_from_slice(found);
                Ok(())
            }
            None if self.kept + length > MAX_KEPT => Err(ReadError::TooMuch { max: MAX_KEPT }),
            None => Err(ReadError::Missing { offset, length }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &mut impl ReadAt, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; length];
        source.read_at(offset, &mut buffer).map(|()| buffer)
    }

    #[test]
    fn ranges_beyond_the_end_are_errors() {
        let mut bytes: &[u8] = b"0123456789";
        assert_eq!(read(&mut bytes, 8, 2).expect("within"), b"89");
        let mut ranges = Ranges::with_length(10);
        for (offset, length) in [(8, 3), (10, 1), (u64::MAX, 1), (u64::MAX - 1, 9)] {
            let found = read(&mut bytes, offset, length);
            assert!(matches!(found, Err(ReadError::OutOfRange { .. })), "{offset}");
            let found = read(&mut ranges, offset, length);
            assert!(matches!(found, Err(ReadError::OutOfRange { .. })), "{offset}");
        }
    }

    #[test]
    fn missing_ranges_are_reported_and_returned_once_fetched() {
        let mut ranges = Ranges::with_length(1 << 40);
        let missing = read(&mut ranges, 4096, 4);
        assert!(matches!(
            missing,
            Err(ReadError::Missing {
                offset: 4096,
                length: 4
            })
        ));
        ranges.put(4096, b"page".to_vec());
        assert_eq!(read(&mut ranges, 4096, 4).expect("here"), b"page");
        assert_eq!(read(&mut ranges, 4098, 2).expect("here"), b"ge");
        assert!(matches!(
            read(&mut ranges, 4098, 3),
            Err(ReadError::Missing { .. })
        ));
        let much = read(&mut ranges, 8192, usize::try_from(MAX_KEPT).expect("small"));
        assert!(matches!(much, Err(ReadError::TooMuch { .. })));
    }
}
