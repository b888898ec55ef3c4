//! The kinds of damage of a database, each with its location, what was found and what was expected.

use std::fmt;

/// Where damage was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The page number.
    pub page: Option<u64>,
    /// The index of the element on the page.
    pub element: Option<usize>,
    /// The bucket. `None` for the root bucket, which contains all others.
    pub bucket: Option<String>,
}

impl Location {
    /// The file as a whole.
    pub(crate) fn file() -> Self {
        Self::default()
    }

    /// A page.
    pub(crate) fn page(page: u64) -> Self {
        Self {
            page: Some(page),
            ..Self::default()
        }
    }

    /// A bucket.
    pub(crate) fn bucket(name: &[u8]) -> Self {
        Self {
            bucket: Some(printable(name)),
            ..Self::default()
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.page, self.element) {
            (Some(page), Some(element)) => write!(f, "page {page}, element {element}")?,
            (Some(page), None) => write!(f, "page {page}")?,
            (None, Some(element)) => write!(f, "element {element}")?,
            (None, None) if self.bucket.is_none() => f.write_str("the file")?,
            (None, None) => {}
        }
        match &self.bucket {
            Some(bucket) if self.page.is_none() && self.element.is_none() => write!(f, "bucket {bucket:?}"),
            Some(bucket) => write!(f, " of bucket {bucket:?}"),
            None => Ok(()),
        }
    }
}

/// Formats bytes for messages: as text if they are text, else in hexadecimal. Long values are truncated.
pub(crate) fn printable(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 64;
    let prefix = &bytes[..bytes.len().min(MAX_SHOWN)];
    let ellipsis = if bytes.len() > MAX_SHOWN { "…" } else { "" };
    match std::str::from_utf8(prefix) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text}{ellipsis}"),
        _ => crate::hex::encode(prefix) + ellipsis,
    }
}

/// A deviation from what bbolt or etcd writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {kind}")]
pub struct Damage {
    /// Where it was found.
    pub location: Location,
    /// What it is.
    pub kind: DamageKind,
}

/// The kinds of damage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    // The file.
    /// The file is too short for two meta pages.
    #[error("{length} bytes are too few for a database")]
    TooShort {
        /// The size of the file, in bytes.
        length: u64,
    },
    /// The file is larger than any database that etcd supports.
    #[error("{length} bytes are too many for an etcd database")]
    TooLarge {
        /// The size of the file, in bytes.
        length: u64,
    },
    /// The end of the file is missing.
    #[error("ends after {length} bytes; the meta page requires {expected}")]
    Truncated {
        /// The size of the file, in bytes.
        length: u64,
        /// The size according to the meta page.
        expected: u64,
    },
    /// The snapshot is longer than its pages.
    #[error("has {length} bytes; a snapshot of these pages has {expected}")]
    TooLong {
        /// The size of the file, in bytes.
        length: u64,
        /// The size according to the meta page.
        expected: u64,
    },

    // Meta pages.
    /// The magic number is wrong: the file is not a bbolt database.
    #[error("has the wrong magic number {found:08x}")]
    Magic {
        /// The number found.
        found: u32,
    },
    /// The format version is unknown.
    #[error("has format version {found}; only version 2 is supported")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The checksum does not match: the meta page was written only partially.
    #[error("has the checksum {found:016x} instead of {expected:016x}")]
    Checksum {
        /// The stored checksum.
        found: u64,
        /// The checksum of the bytes.
        expected: u64,
    },
    /// The page size is invalid.
    #[error("has an invalid page size of {found} bytes")]
    PageSize {
        /// The page size found.
        found: u32,
    },
    /// The root page is outside the file.
    #[error("has root page {root}, but there are {pages} pages")]
    RootPage {
        /// The page number.
        root: u64,
        /// The number of pages.
        pages: u64,
    },
    /// The freelist page is outside the file.
    #[error("has freelist page {freelist}, but there are {pages} pages")]
    FreelistPage {
        /// The page number.
        freelist: u64,
        /// The number of pages.
        pages: u64,
    },
    /// The two meta pages of a snapshot differ.
    #[error("differs from the other meta page; in a snapshot both are equal")]
    MetasDiffer,

    // Pages.
    /// An element refers to a page outside the file.
    #[error("refers to page {page}, but there are {pages} pages")]
    OutOfBounds {
        /// The page referred to.
        page: u64,
        /// The number of pages.
        pages: u64,
    },
    /// An element refers to a meta page.
    #[error("refers to page {page}, which is a meta page")]
    RefersToMeta {
        /// The page referred to.
        page: u64,
    },
    /// The page stores a different page number.
    #[error("has the page number {found}")]
    WrongId {
        /// The number found.
        found: u64,
    },
    /// The page type does not exist.
    #[error("has the unknown type {found:#06x}")]
    UnknownType {
        /// The type found.
        found: u16,
    },
    /// The page is neither a branch nor a leaf.
    #[error("is a {found} page instead of a branch or leaf page")]
    WrongType {
        /// The type found.
        found: &'static str,
    },
    /// Two elements refer to the page.
    #[error("is referenced twice")]
    ReferencedTwice,
    /// The page refers to itself, directly or through other pages.
    #[error("refers to itself")]
    Cycle,
    /// The page overlaps another page.
    #[error("overlaps page {page}, which is in use")]
    Overlap {
        /// The other page.
        page: u64,
    },
    /// The overflow pages extend beyond the end of the file.
    #[error("has {more} overflow pages, beyond the last page {last}")]
    OverflowBeyond {
        /// The number of overflow pages.
        more: u32,
        /// The last page of the file.
        last: u64,
    },
    /// The number of overflow pages does not match the content.
    #[error("has {more} overflow pages; its content needs {expected}")]
    OverflowLength {
        /// The number of overflow pages.
        more: u32,
        /// The number that the content needs.
        expected: u64,
    },
    /// The tree is deeper than any valid tree.
    #[error("is more than {max} levels deep")]
    TooDeep {
        /// The limit.
        max: usize,
    },

    // Elements.
    /// The element table does not fit into the page.
    #[error("has {count} elements, but only {max} fit")]
    ElementCount {
        /// The number of elements found.
        count: u16,
        /// The number of elements that fit.
        max: u64,
    },
    /// A branch page has no children.
    #[error("is a branch page without children")]
    EmptyBranch,
    /// A leaf page has no keys. bbolt removes empty leaf pages.
    #[error("is a leaf page without keys")]
    EmptyLeaf,
    /// The element flags are unknown.
    #[error("has the unknown flags {found:#010x}")]
    ElementFlags {
        /// The flags found.
        found: u32,
    },
    /// The key or value extends beyond the page.
    #[error("ends at byte {end} of a page of {length} bytes")]
    ElementBeyondPage {
        /// The end of the value.
        end: u64,
        /// The size of the page.
        length: u64,
    },
    /// The key does not start where the previous value ends. bbolt leaves no gaps.
    #[error("begins at byte {found} of the page; the previous element ends at {expected}")]
    ElementGap {
        /// The offset found.
        found: u64,
        /// The end of the previous element.
        expected: u64,
    },
    /// The key is empty.
    #[error("has an empty key")]
    EmptyKey,
    /// The key is longer than bbolt allows.
    #[error("has a key of {length} bytes")]
    LongKey {
        /// The length of the key.
        length: u64,
    },
    /// The keys are not in ascending order.
    #[error("has the key {found:?}, which is not after {before:?}")]
    KeyOrder {
        /// The key.
        found: String,
        /// The previous key.
        before: String,
    },
    /// The first key of the page is before the key in its parent.
    #[error("begins with the key {found:?}, which is before {from:?} in the parent page")]
    KeyBeforeParent {
        /// The key.
        found: String,
        /// The key in the parent.
        from: String,
    },
    /// A key of the page is not before the next key in its parent.
    #[error("has the key {found:?}, which is not before {until:?}, where the next page begins")]
    KeyAfterParent {
        /// The key.
        found: String,
        /// The next key in the parent.
        until: String,
    },

    // Buckets.
    /// The bucket value is too short for a bucket header.
    #[error("is a bucket of only {length} bytes")]
    BucketHeader {
        /// The length of the value.
        length: u64,
    },
    /// The inline page of a bucket is not a leaf, or has the wrong length.
    #[error("is an invalid inline bucket: {why}")]
    InlineBucket {
        /// What is wrong.
        why: &'static str,
    },
    /// The bucket is nested in another bucket. etcd does not nest buckets.
    #[error("is a nested bucket")]
    NestedBucket,
    /// The root bucket contains a key that is not a bucket.
    #[error("is a key instead of a bucket")]
    NotABucket,
    /// The database has more buckets than etcd creates.
    #[error("has more than {max} buckets")]
    TooManyBuckets {
        /// The limit.
        max: usize,
    },

    // The freelist.
    /// The page is not a freelist page.
    #[error("has the type {found:#06x} instead of that of a freelist")]
    FreelistType {
        /// The type found.
        found: u16,
    },
    /// The freelist does not fit into its page.
    #[error("is a freelist of {count} pages, but only {max} fit")]
    FreelistCount {
        /// The number of entries found.
        count: u64,
        /// The number of entries that fit.
        max: u64,
    },
    /// The freelist contains a meta page or a page outside the file.
    #[error("lists page {page} as free, but there are only pages 2 to {last}")]
    FreeOutOfBounds {
        /// The page.
        page: u64,
        /// The last page of the file.
        last: u64,
    },
    /// The freelist is not in ascending order.
    #[error("lists page {page} as free after page {before}")]
    FreeOrder {
        /// The page.
        page: u64,
        /// The previous page.
        before: u64,
    },
    /// A page in use is listed as free.
    #[error("is in use and listed as free")]
    FreeInUse,
    /// A page is neither in use nor listed as free.
    #[error("is neither in use nor listed as free")]
    Leaked,

    // Content.
    /// The key or bucket is unknown, and the file was not written by a newer etcd.
    #[error("{key:?} is unknown to etcd")]
    UnknownContent {
        /// The key or bucket.
        key: String,
    },
    /// A bucket that etcd needs to start is missing.
    #[error("is missing")]
    BucketMissing,
    /// etcd does not write such a key or value.
    #[error("{key:?} is invalid: {why}")]
    InvalidContent {
        /// The key.
        key: String,
        /// What is wrong.
        why: String,
    },
}
