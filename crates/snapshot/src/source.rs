//! Where bytes come from: a file, memory, or ranges of something far away. Nothing here opens or fetches anything.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;

/// Something of known length of which any range can be read.
pub trait ReadAt {
    /// How many bytes there are.
    fn length(&self) -> u64;
    /// Fills the buffer from this place on.
    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError>;
}

/// Why a range was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file did not give it.
    #[error("reading {length} bytes at {place}: {source}")]
    Io {
        /// The first byte.
        place: u64,
        /// How many bytes.
        length: u64,
        /// What the system says.
        source: io::Error,
    },
    /// It ends before.
    #[error("{length} bytes at {place} are beyond the end, which is at {end}")]
    Beyond {
        /// The first byte.
        place: u64,
        /// How many bytes.
        length: u64,
        /// Where it ends.
        end: u64,
    },
    /// It is not here yet: fetch it, give it to [`Ranges::put`], and ask again.
    #[error("{length} bytes at {place} were not fetched yet")]
    Missing {
        /// The first byte.
        place: u64,
        /// How many bytes.
        length: u64,
    },
    /// More was asked for than [`Ranges`] may keep.
    #[error("more than {most} bytes would have to be fetched")]
    TooMuch {
        /// How many bytes may be kept.
        most: u64,
    },
}

/// The length of what is asked for, if it is there as far as its place and the end say.
fn within(place: u64, buffer: &[u8], end: u64) -> Result<u64, ReadError> {
    let length = buffer.len() as u64;
    match place.checked_add(length) {
        Some(last) if last <= end => Ok(length),
        _ => Err(beyond(place, buffer.len(), end)),
    }
}

fn beyond(place: u64, length: usize, end: u64) -> ReadError {
    let length = length as u64;
    ReadError::Beyond { place, length, end }
}

impl<S: ReadAt + ?Sized> ReadAt for &mut S {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        (**self).read_at(place, buffer)
    }
}

impl ReadAt for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let found = usize::try_from(place)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(buffer.len())?));
        let Some(found) = found else {
            return Err(beyond(place, buffer.len(), self.length()));
        };
        buffer.copy_from_slice(found);
        Ok(())
    }
}

/// A file whose length is taken once: what is appended later is not seen.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    length: u64,
}

impl File {
    /// The file as long as it is now.
    pub fn new(file: std::fs::File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }
}

impl ReadAt for File {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = within(place, buffer, self.length)?;
        self.file
            .read_exact_at(buffer, place)
            .map_err(|source| ReadError::Io {
                place,
                length,
                source,
            })
    }
}

/// How many bytes [`Ranges`] keep at most: a look at a database takes far less.
const KEPT: u64 = 16 << 20;

/// Ranges of something far away that were fetched so far. A reader asks for what is missing by
/// [`ReadError::Missing`]; as reading changes nothing, it is simply begun again once the range is here.
#[derive(Debug)]
pub struct Ranges {
    length: u64,
    kept: u64,
    fetched: BTreeMap<u64, Vec<u8>>,
}

impl Ranges {
    /// Nothing yet of something of this length.
    pub fn of_length(length: u64) -> Self {
        Self {
            length,
            kept: 0,
            fetched: BTreeMap::new(),
        }
    }

    /// Keeps a range that was fetched.
    pub fn put(&mut self, place: u64, bytes: Vec<u8>) {
        self.kept += bytes.len() as u64;
        if let Some(before) = self.fetched.insert(place, bytes) {
            self.kept -= before.len() as u64;
        }
    }
}

impl ReadAt for Ranges {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&mut self, place: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = within(place, buffer, self.length)?;
        let before = self.fetched.range(..=place).next_back();
        let found = before.and_then(|(start, bytes)| {
            let from = usize::try_from(place - start).ok()?;
            bytes.get(from..from.checked_add(buffer.len())?)
        });
        match found {
            Some(found) => {
                buffer.copy_from_slice(found);
                Ok(())
            }
            None if self.kept + length > KEPT => Err(ReadError::TooMuch { most: KEPT }),
            None => Err(ReadError::Missing { place, length }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &mut impl ReadAt, place: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut buffer = vec![0; length];
        source.read_at(place, &mut buffer).map(|()| buffer)
    }

    #[test]
    fn what_lies_beyond_the_end_is_an_error_whatever_the_numbers() {
        let mut bytes: &[u8] = b"0123456789";
        assert_eq!(read(&mut bytes, 8, 2).expect("within"), b"89");
        let mut ranges = Ranges::of_length(10);
        for (place, length) in [(8, 3), (10, 1), (u64::MAX, 1), (u64::MAX - 1, 9)] {
            let found = read(&mut bytes, place, length);
            assert!(matches!(found, Err(ReadError::Beyond { .. })), "{place}");
            let found = read(&mut ranges, place, length);
            assert!(matches!(found, Err(ReadError::Beyond { .. })), "{place}");
        }
    }

    #[test]
    fn ranges_ask_for_what_is_missing_and_give_it_once_it_is_here() {
        let mut ranges = Ranges::of_length(1 << 40);
        let missing = read(&mut ranges, 4096, 4);
        assert!(matches!(
            missing,
            Err(ReadError::Missing {
                place: 4096,
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
        let much = read(&mut ranges, 8192, usize::try_from(KEPT).expect("small"));
        assert!(matches!(much, Err(ReadError::TooMuch { .. })));
    }
}
