//! The frame index of a manifest: which frames hold a range of the snapshot, and where they are.

use std::ops::Range;

use etcd_operator_api::contract::Frame;

use super::{FRAME_HEADER, TAG};

/// Why an index is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// No frames at all.
    #[error("the manifest lists no frames")]
    Empty,
    /// Frames lie one behind the other.
    #[error("frame {frame} of the manifest does not begin where the one before ends")]
    Gap {
        /// Which.
        frame: usize,
    },
    /// All but the last hold the same.
    #[error("frame {frame} of the manifest has an impossible size")]
    Size {
        /// Which.
        frame: usize,
    },
    /// The frames do not fill the object.
    #[error("the frames of the manifest end at byte {end} of an object of {length}")]
    End {
        /// Where they end.
        end: u64,
        /// Of the object.
        length: u64,
    },
}

/// A frame index that fits its object.
#[derive(Clone, Debug)]
pub struct Index<'a> {
    frames: &'a [Frame],
    /// Bytes of the snapshot in each but the last.
    size: u64,
    plain: u64,
}

impl<'a> Index<'a> {
    /// Judges the frames of a manifest against the length of the object.
    pub fn new(frames: &'a [Frame], object: u64) -> Result<Self, IndexError> {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
            return Err(IndexError::Empty);
        };
        let mut next = first.offset;
        for (index, frame) in frames.iter().enumerate() {
            if frame.offset != next {
                return Err(IndexError::Gap { frame: index });
            }
            let is_last = index + 1 == frames.len();
            let overhead = (FRAME_HEADER + TAG) as u64;
            let fits = u64::from(frame.stored) >= overhead
                && u64::from(frame.stored) <= u64::from(frame.plain) + overhead;
            let is_alike = if is_last {
                frame.plain <= first.plain
            } else {
                frame.plain == first.plain && frame.plain > 0
            };
            if !fits || !is_alike {
                return Err(IndexError::Size { frame: index });
            }
            next = next.saturating_add(frame.stored.into());
        }
        if next != object {
            return Err(IndexError::End {
                end: next,
                length: object,
            });
        }
        let size = u64::from(first.plain).max(1);
        Ok(Self {
            frames,
            size,
            plain: (frames.len() as u64 - 1) * size + u64::from(last.plain),
        })
    }

    /// Bytes of the snapshot.
    pub fn plain(&self) -> u64 {
        self.plain
    }

    /// The first byte of the object behind its head.
    pub fn head(&self) -> u64 {
        self.frames[0].offset
    }

    /// The frames that hold a range of the snapshot; what is beyond its end is left out.
    pub fn holding(&self, range: Range<u64>) -> Range<u32> {
        let end = range.end.min(self.plain);
        if range.start >= end {
            return 0..0;
        }
        let number = |frame: u64| u32::try_from(frame).unwrap_or(u32::MAX);
        number(range.start / self.size)..number((end - 1) / self.size + 1)
    }

    /// A frame, and whether it is the last.
    pub fn frame(&self, index: u32) -> Option<(&'a Frame, bool)> {
        let index = usize::try_from(index).ok()?;
        let frame = self.frames.get(index)?;
        Some((frame, index + 1 == self.frames.len()))
    }

    /// The first byte of the snapshot in a frame.
    pub fn start(&self, index: u32) -> u64 {
        u64::from(index) * self.size
    }
}
