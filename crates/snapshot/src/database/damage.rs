//! What can be wrong with a database, and where. Each kind says what was found and what should be there.

use std::fmt;

/// Where damage was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The page.
    pub page: Option<u64>,
    /// Which element of it.
    pub element: Option<usize>,
    /// The bucket it belongs to; none for the tree of buckets itself.
    pub bucket: Option<String>,
}

impl Place {
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
            bucket: Some(shown(name)),
            ..Self::default()
        }
    }
}

impl fmt::Display for Place {
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

/// Bytes for people: text where it is text, else hexadecimal; never long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 64;
    let cut = &bytes[..bytes.len().min(LONGEST)];
    let dots = if bytes.len() > LONGEST { "…" } else { "" };
    match std::str::from_utf8(cut) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text}{dots}"),
        _ => crate::hex::of(cut) + dots,
    }
}

/// Something that is not as bbolt or etcd writes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Damage {
    /// Where.
    pub place: Place,
    /// What.
    pub what: What,
}

/// Kinds of damage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    // The file.
    /// Too short for two meta pages.
    #[error("{length} bytes are too few for a database")]
    TooShort {
        /// Of the file.
        length: u64,
    },
    /// Longer than any that etcd can serve.
    #[error("{length} bytes are too many for a database of etcd")]
    TooLarge {
        /// Of the file.
        length: u64,
    },
    /// The end is missing.
    #[error("ends after {length} bytes, and the meta page says {wanted}")]
    Truncated {
        /// Of the file.
        length: u64,
        /// As the meta page has it.
        wanted: u64,
    },
    /// A snapshot with more than its pages.
    #[error("has {length} bytes where a snapshot of these pages has {wanted}")]
    TooLong {
        /// Of the file.
        length: u64,
        /// As the meta page has it.
        wanted: u64,
    },

    // Metas.
    /// Not a database.
    #[error("begins with {found:08x} where a database has its mark")]
    Magic {
        /// In its place.
        found: u32,
    },
    /// Written by something else.
    #[error("is of format {found}, only 2 is known")]
    Version {
        /// The version.
        found: u32,
    },
    /// The checksum is not that of the bytes.
    #[error("is torn: its checksum is {found:016x} and should be {wanted:016x}")]
    Torn {
        /// As it is written.
        found: u64,
        /// Of the bytes.
        wanted: u64,
    },
    /// No size that a page can have.
    #[error("says that pages have {found} bytes")]
    PageSize {
        /// As it is written.
        found: u32,
    },
    /// The root is not a page of the file.
    #[error("has the root at page {root}, and there are {pages} pages")]
    Root {
        /// The page.
        root: u64,
        /// How many there are.
        pages: u64,
    },
    /// The free list is not a page of the file.
    #[error("has the free list at page {freelist}, and there are {pages} pages")]
    FreelistPlace {
        /// The page.
        freelist: u64,
        /// How many there are.
        pages: u64,
    },
    /// The two metas of a snapshot are copies of one another.
    #[error("differs from the other meta page, and in a snapshot both say the same")]
    MetasDiffer,

    // Pages.
    /// A page that does not exist.
    #[error("refers to page {page}, and there are {pages} pages")]
    OutOfBounds {
        /// The page referred to.
        page: u64,
        /// How many there are.
        pages: u64,
    },
    /// A meta page where a page of a tree should be.
    #[error("refers to page {page}, which is a meta page")]
    PointsToMeta {
        /// The page referred to.
        page: u64,
    },
    /// The page says it is another one.
    #[error("says it is page {found}")]
    WrongId {
        /// The number it has.
        found: u64,
    },
    /// No type there is.
    #[error("has the unknown type {found:#06x}")]
    UnknownType {
        /// The type.
        found: u16,
    },
    /// A type that does not belong there.
    #[error("is a {found} page, where a branch or a leaf belongs")]
    WrongType {
        /// The type.
        found: &'static str,
    },
    /// Two ways lead to a page.
    #[error("is reached a second time")]
    Twice,
    /// A page is below itself.
    #[error("is below itself")]
    Cycle,
    /// A page lies within another one.
    #[error("overlaps page {page}, which is in use")]
    Overlap {
        /// The page in use.
        page: u64,
    },
    /// The page goes on beyond the end of the file.
    #[error("goes on for {more} more pages, beyond the last one, {last}")]
    OverflowBeyond {
        /// Pages that continue it.
        more: u32,
        /// The last page there is.
        last: u64,
    },
    /// Its length is not that of what it holds.
    #[error("goes on for {more} more pages, and what it holds takes {wanted}")]
    OverflowWrong {
        /// Pages that continue it.
        more: u32,
        /// Pages it would take.
        wanted: u64,
    },
    /// A tree deeper than any can be.
    #[error("is more than {deepest} levels deep")]
    TooDeep {
        /// The limit.
        deepest: usize,
    },

    // Elements.
    /// The table of elements does not fit.
    #[error("says it has {count} elements, and only {room} fit")]
    Count {
        /// As it is written.
        count: u16,
        /// How many fit.
        room: u64,
    },
    /// A branch that leads nowhere.
    #[error("is a branch without children")]
    EmptyBranch,
    /// bbolt removes empty leaves.
    #[error("is a leaf without keys")]
    EmptyLeaf,
    /// Flags that mean nothing.
    #[error("has the unknown flags {found:#010x}")]
    ElementFlags {
        /// The flags.
        found: u32,
    },
    /// Key or value goes on behind the page.
    #[error("ends at byte {end} of a page of {length}")]
    BeyondPage {
        /// Where it ends.
        end: u64,
        /// Of the page.
        length: u64,
    },
    /// Keys and values lie one behind the other without gaps.
    #[error("begins at byte {found} of the page, and what is before it ends at {wanted}")]
    NotNext {
        /// As it is written.
        found: u64,
        /// Where the one before ends.
        wanted: u64,
    },
    /// No key is empty.
    #[error("has an empty key")]
    EmptyKey,
    /// Longer than bbolt takes.
    #[error("has a key of {length} bytes")]
    LongKey {
        /// Of the key.
        length: u64,
    },
    /// Keys ascend.
    #[error("has the key {found:?}, which is not behind {before:?}")]
    Order {
        /// The key.
        found: String,
        /// The one before it.
        before: String,
    },
    /// A page holds keys from its parent's on.
    #[error("begins with the key {found:?}, which is before {from:?} of the page above")]
    BeforeParent {
        /// The key.
        found: String,
        /// As the parent has it.
        from: String,
    },
    /// … up to the parent's next.
    #[error("has the key {found:?}, which is not before {until:?}, where the next page begins")]
    BehindParent {
        /// The key.
        found: String,
        /// As the parent has it.
        until: String,
    },

    // Buckets.
    /// Too short for a root.
    #[error("is a bucket of {length} bytes")]
    ShortBucket {
        /// Of the value.
        length: u64,
    },
    /// A page in a value that is no leaf, or of the wrong length.
    #[error("is a bucket within its parent's page that is not as bbolt writes it: {why}")]
    Inline {
        /// What is wrong.
        why: &'static str,
    },
    /// etcd has no buckets in buckets.
    #[error("is a bucket within a bucket")]
    Nested,
    /// … and nothing but buckets at the top.
    #[error("is a key beside the buckets")]
    NoBucket,
    /// More than a database of etcd has.
    #[error("has more than {most} buckets")]
    Buckets {
        /// The limit.
        most: usize,
    },

    // The free list.
    /// Not a free list.
    #[error("has the type {found:#06x} where the free list should be")]
    FreelistType {
        /// The type.
        found: u16,
    },
    /// Longer than its page.
    #[error("is a free list of {count} pages, and only {room} fit")]
    FreelistCount {
        /// As it is written.
        count: u64,
        /// How many fit.
        room: u64,
    },
    /// A page that does not exist, or a meta page.
    #[error("lists page {page} as free, and there are pages 2 to {last}")]
    FreeOutOfBounds {
        /// The page.
        page: u64,
        /// The last one there is.
        last: u64,
    },
    /// Pages ascend.
    #[error("lists page {page} as free behind page {before}")]
    FreeOrder {
        /// The page.
        page: u64,
        /// The one before it.
        before: u64,
    },
    /// A page in use is listed as free.
    #[error("is in use and listed as free")]
    FreeInUse,
    /// A page is nobody's.
    #[error("is neither in use nor listed as free")]
    Lost,

    // What etcd keeps.
    /// Something a later etcd might keep, in a file that says it is not by one.
    #[error("{key:?} is nothing that etcd keeps there")]
    Unknown {
        /// The key or the bucket.
        key: String,
    },
    /// A bucket without which etcd does not start.
    #[error("is missing")]
    BucketMissing,
    /// A key or value that etcd does not write.
    #[error("{key:?} is not as etcd writes it: {why}")]
    Content {
        /// The key.
        key: String,
        /// What is wrong.
        why: String,
    },
}
