//! A value in a page, however long: its first bytes are at hand, the rest is read in pieces.

use std::borrow::Cow;

use crate::source::{ReadAt, ReadError};

/// How much is read at once of what is not at hand.
const PIECE: usize = 64 << 10;

/// A run of bytes of the file.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// Where it begins in the file.
    pub place: u64,
    /// How long it is.
    pub length: u64,
    /// As much of its beginning as was read with its page.
    head: &'a [u8],
}

impl<'a> Value<'a> {
    /// A run of bytes, of which the first were read already. What is behind the end is left out.
    pub(crate) fn new(place: u64, length: u64, head: &'a [u8]) -> Self {
        let cut = usize::try_from(length).unwrap_or(usize::MAX).min(head.len());
        Self {
            place,
            length,
            head: &head[..cut],
        }
    }

    /// The part from `from` on of at most this length.
    pub(crate) fn part(&self, from: u64, length: u64) -> Self {
        let from = from.min(self.length);
        let cut = usize::try_from(from).unwrap_or(usize::MAX).min(self.head.len());
        Self::new(
            self.place + from,
            length.min(self.length - from),
            &self.head[cut..],
        )
    }

    /// The whole of it, if it is not longer than this.
    pub(crate) fn whole<S: ReadAt>(
        &self,
        source: &mut S,
        most: usize,
    ) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        let Some(length) = usize::try_from(self.length).ok().filter(|length| *length <= most) else {
            return Ok(None);
        };
        if self.head.len() == length {
            return Ok(Some(Cow::Borrowed(self.head)));
        }
        let mut bytes = vec![0; length];
        source.read_at(self.place, &mut bytes)?;
        Ok(Some(Cow::Owned(bytes)))
    }

    /// Gives every byte of it in pieces.
    pub(crate) fn pieces<S: ReadAt>(
        &self,
        source: &mut S,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        take(self.head);
        let mut place = self.place + self.head.len() as u64;
        let end = self.place + self.length;
        let mut piece = Vec::new();
        while place < end {
            let length = (end - place).min(PIECE as u64);
            piece.resize(usize::try_from(length).unwrap_or(PIECE), 0);
            source.read_at(place, &mut piece)?;
            take(&piece);
            place += length;
        }
        Ok(())
    }
}
