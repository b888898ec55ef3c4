//! Numbers of bbolt's file format, and how they are read. All are little-endian.

/// What each page begins with: number, type, count, overflow.
pub(super) const HEADER: usize = 16;
/// Of a branch or a leaf: an entry of the table behind the header.
pub(super) const ELEMENT: usize = 16;
/// What the value of a bucket begins with: root, sequence.
pub(super) const BUCKET: usize = 16;
/// Of the meta behind its page's header.
pub(super) const META: usize = 64;

/// Types of pages.
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const METAPAGE: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;

/// The flag of an element that is a bucket.
pub(super) const IS_BUCKET: u32 = 0x01;
/// Instead of the number of the free list's page: free pages are found by a walk.
pub(super) const NO_FREELIST: u64 = u64::MAX;
/// A free list of so many or more pages has its count in front of it.
pub(super) const COUNT_BEHIND: u16 = 0xFFFF;

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;

/// The longest key bbolt takes.
pub(super) const LONGEST_KEY: usize = 32_768;
/// A tree of two children a page with as many pages as fit into 64 bits would be this deep.
pub(super) const DEEPEST: usize = 64;

/// Sizes a page may have; bbolt takes that of the system which made the file.
pub(super) const PAGE_SIZES: [u32; 5] = [4096, 8192, 16_384, 32_768, 65_536];
/// The longest file that is read: thirty times what etcd is made for.
pub(super) const LONGEST_FILE: u64 = 256 << 30;

pub(super) fn u16_at(bytes: &[u8], place: usize) -> u16 {
    bytes
        .get(place..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn u32_at(bytes: &[u8], place: usize) -> u32 {
    bytes
        .get(place..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], place: usize) -> u64 {
    bytes
        .get(place..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
