//! The frame index of a manifest: locates the frames that contain a range of the snapshot.

use std::ops::Range;

use etcd_operator_api::contract::Frame;

use super::{FRAME_HEADER, TAG};

/// Why a frame index is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The index has no frames.
    #[error("the manifest lists no frames")]
    Empty,
    /// A frame does not start where the previous one ends.
    #[error("frame {frame} of the manifest does not begin where the previous one ends")]
    Gap {
        /// The frame number.
        frame: usize,
    },
    /// A frame has an impossible size. All frames except the last contain the same number of snapshot bytes.
    #[error("frame {frame} of the manifest has an impossible size")]
    Size {
        /// The frame number.
        frame: usize,
    },
    /// The frames do not end at the end of the object.
    #[error("the frames of the manifest end at byte {end} of an object of {length}")]
    End {
        /// The end of the last frame.
        end: u64,
        /// The length of the object.
        length: u64,
    },
}

/// A validated frame index.
#[derive(Clone, Debug)]
pub struct FrameIndex<'a> {
    frames: &'a [Frame],
    /// The number of snapshot bytes per frame, except in the last frame.
    size: u64,
    plain: u64,
}

impl<'a> FrameIndex<'a> {
    /// Validates the frames of a manifest against the length of the object.
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
            let has_valid_length = u64::from(frame.stored) >= overhead
                && u64::from(frame.stored) <= u64::from(frame.plain) + overhead;
            let has_valid_size = if is_last {
                frame.plain <= first.plain
            } else {
                frame.plain == first.plain && frame.plain > 0
            };
            if !has_valid_length || !has_valid_size {
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

    /// The length of the snapshot, in bytes.
    pub fn snapshot_size(&self) -> u64 {
        self.plain
    }

    /// The size of the object header: the offset of the first frame.
    pub fn header_size(&self) -> u64 {
        self.frames[0].offset
    }

    /// The frames that contain a range of the snapshot. The part after the end of the snapshot is ignored.
    pub fn frames_for(&self, range: Range<u64>) -> Range<u32> {
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

    /// The offset in the snapshot of the first byte of a frame.
    pub fn frame_start(&self, index: u32) -> u64 {
        u64::from(index) * self.size
    }
}
