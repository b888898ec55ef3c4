//! Constants and integers of the bbolt file format. All integers are little-endian.

/// The size of a page header: page number, type, count, overflow.
pub(super) const PAGE_HEADER_SIZE: usize = 16;
/// The size of an entry in the element table of a branch or leaf page.
pub(super) const ELEMENT_SIZE: usize = 16;
/// The size of the header of a bucket value: root page and sequence.
pub(super) const BUCKET_HEADER_SIZE: usize = 16;
/// The size of the meta data after the header of a meta page.
pub(super) const META_SIZE: usize = 64;

/// The page types.
pub(super) const BRANCH_PAGE: u16 = 0x01;
pub(super) const LEAF_PAGE: u16 = 0x02;
pub(super) const META_PAGE: u16 = 0x04;
pub(super) const FREELIST_PAGE: u16 = 0x10;

/// The element flag for buckets.
pub(super) const BUCKET_FLAG: u32 = 0x01;
/// The freelist page number if the file contains no freelist. Free pages are then found by a walk.
pub(super) const NO_FREELIST: u64 = u64::MAX;
/// The element count of a freelist with this many or more entries, whose first entry is the actual count.
pub(super) const COUNT_IN_FIRST_ENTRY: u16 = 0xFFFF;

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;

/// The maximum key size of bbolt.
pub(super) const MAX_KEY_SIZE: usize = 32_768;
/// The maximum depth of a tree. A tree with two children per page and 2^64 pages has this depth.
pub(super) const MAX_DEPTH: usize = 64;

/// The supported page sizes. bbolt uses the page size of the system that created the file.
pub(super) const PAGE_SIZES: [u32; 5] = [4096, 8192, 16_384, 32_768, 65_536];
/// The maximum size of a file: more than thirty times the 8 GiB that etcd recommends.
pub(super) const MAX_FILE_SIZE: u64 = 256 << 30;

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
