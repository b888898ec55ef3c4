//! A value of any length. Its first bytes are in memory; the rest is read in chunks.

use std::borrow::Cow;

use crate::source::{ReadAt, ReadError};

/// How many bytes are read at once.
const CHUNK_SIZE: usize = 64 << 10;

/// A range of bytes in the file.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// The offset in the file.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
    /// The first bytes, as far as they were read with the page.
    head: &'a [u8],
}

impl<'a> Value<'a> {
    /// Creates a range whose first bytes are `head`. Bytes of `head` after the end are ignored.
    pub(crate) fn new(offset: u64, length: u64, head: &'a [u8]) -> Self {
        let available = usize::try_from(length).unwrap_or(usize::MAX).min(head.len());
        Self {
            offset,
            length,
            head: &head[..available],
        }
    }

    /// The part that starts at `from` and has at most this length.
    pub(crate) fn slice(&self, from: u64, length: u64) -> Self {
        let from = from.min(self.length);
        let available = usize::try_from(from).unwrap_or(usize::MAX).min(self.head.len());
        Self::new(
            self.offset + from,
            length.min(self.length - from),
            &self.head[available..],
        )
    }

    /// Reads all bytes. Returns `None` if there are more than `max`.
    pub(crate) fn read_all<S: ReadAt>(
        &self,
        source: &mut S,
        max: usize,
    ) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        let Some(length) = usize::try_from(self.length).ok().filter(|length| *length <= max) else {
            return Ok(None);
        };
        if self.head.len() == length {
            return Ok(Some(Cow::Borrowed(self.head)));
        }
        let mut bytes = vec![0; length];
        source.read_at(self.offset, &mut bytes)?;
        Ok(Some(Cow::Owned(bytes)))
    }

    /// Passes all bytes to `consume`, in chunks.
    pub(crate) fn read_chunks<S: ReadAt>(
        &self,
        source: &mut S,
        consume: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        consume(self.head);
        let mut offset = self.offset + self.head.len() as u64;
        let end = self.offset + self.length;
        let mut chunk = Vec::new();
        while offset < end {
            let length = (end - offset).min(CHUNK_SIZE as u64);
            chunk.resize(usize::try_from(length).unwrap_or(CHUNK_SIZE), 0);
            source.read_at(offset, &mut chunk)?;
            consume(&chunk);
            offset += length;
        }
        Ok(())
    }
}
