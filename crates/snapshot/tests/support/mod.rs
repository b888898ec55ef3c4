//! The corpus of real files, and ways to break them on purpose.
#![allow(dead_code, reason = "each file of tests uses some of this")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use etcd_operator_snapshot::content::audit::{Audit, audit};
use etcd_operator_snapshot::database::{Database, Error};

/// A file of the corpus as etcd's own tools and range reads saw it.
pub struct Row {
    pub name: String,
    /// As `snapshot status` printed them.
    pub revision: i64,
    pub keys: u64,
    pub hash: u32,
    /// As the etcd that gave it served them.
    pub served_revision: i64,
    pub served_digest: String,
}

impl Row {
    /// The minor version of etcd that wrote it.
    pub fn minor(&self) -> u32 {
        self.name[2..3].parse().expect("the name begins with a version")
    }

    /// Whether it is a snapshot, and not etcd's own file.
    pub fn is_snapshot(&self) -> bool {
        !self.name.ends_with("-copied")
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Every file of the corpus.
pub fn table() -> Vec<Row> {
    let text = std::fs::read_to_string(folder().join("table.tsv")).expect("the table is there");
    let rows: Vec<Row> = text.lines().map(row).collect();
    assert!(rows.len() >= 30, "{} files", rows.len());
    rows
}

fn row(line: &str) -> Row {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, revision, keys, hash, served_revision, served_digest] = fields[..] else {
        panic!("{line}");
    };
    Row {
        name: name.to_owned(),
        revision: revision.parse().expect("a revision"),
        keys: keys.parse().expect("a number of keys"),
        hash: hash.parse().expect("a hash"),
        served_revision: served_revision.parse().expect("a revision"),
        served_digest: served_digest.to_owned(),
    }
}

/// The bytes of a file of the corpus.
pub fn bytes(name: &str) -> Vec<u8> {
    let file = std::fs::File::open(folder().join(format!("{name}.db.zst"))).expect("the file is there");
    zstd::decode_all(file).expect("it is whole")
}

/// A full walk of these bytes.
pub fn walk(bytes: &[u8]) -> Result<Audit, Error> {
    audit(&mut Database::open(bytes)?)
}

const HEADER: usize = 16;
const ELEMENT: usize = 16;
const LEAF: u16 = 2;

/// A database to be broken.
#[derive(Clone)]
pub struct Broken {
    pub bytes: Vec<u8>,
    pub size: usize,
}

impl Broken {
    pub fn new(name: &str) -> Self {
        let bytes = bytes(name);
        let mut broken = Self { bytes, size: 4096 };
        broken.size = broken.u32(HEADER + 8) as usize;
        broken
    }

    pub fn u16(&self, place: usize) -> u16 {
        u16::from_le_bytes(self.bytes[place..place + 2].try_into().expect("two bytes"))
    }

    pub fn u32(&self, place: usize) -> u32 {
        u32::from_le_bytes(self.bytes[place..place + 4].try_into().expect("four bytes"))
    }

    pub fn u64(&self, place: usize) -> u64 {
        u64::from_le_bytes(self.bytes[place..place + 8].try_into().expect("eight bytes"))
    }

    pub fn put<const N: usize>(&mut self, place: usize, bytes: [u8; N]) {
        self.bytes[place..place + N].copy_from_slice(&bytes);
    }

    /// Where a page begins.
    pub fn page(&self, number: u64) -> usize {
        usize::try_from(number).expect("small") * self.size
    }

    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.u64(HEADER + 40)
    }

    /// Changes a field of both metas, and makes their checksums right.
    pub fn put_meta<const N: usize>(&mut self, field: usize, bytes: [u8; N]) {
        for meta in [HEADER, self.size + HEADER] {
            self.put(meta + field, bytes);
        }
        self.reseal();
    }

    /// Makes the checksums of both metas right.
    pub fn reseal(&mut self) {
        for meta in [HEADER, self.size + HEADER] {
            let sum = self.bytes[meta..meta + 56]
                .iter()
                .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
                });
            self.put(meta + 56, sum.to_le_bytes());
        }
    }

    /// The root of the tree of buckets: one leaf in all files of the corpus.
    pub fn top(&self) -> usize {
        let top = self.page(self.u64(HEADER + 16));
        assert_eq!(self.u16(top + 8), LEAF);
        top
    }

    /// Where an element of the table of a page at this place is.
    pub fn element(page: usize, index: usize) -> usize {
        page + HEADER + index * ELEMENT
    }

    pub fn count(&self, page: usize) -> usize {
        self.u16(page + 10).into()
    }

    /// Where the key of an element of a leaf is.
    pub fn key(&self, element: usize) -> Range<usize> {
        let from = element + self.u32(element + 4) as usize;
        from..from + self.u32(element + 8) as usize
    }

    /// Where the value of an element of a leaf is.
    pub fn value(&self, element: usize) -> Range<usize> {
        let from = self.key(element).end;
        from..from + self.u32(element + 12) as usize
    }

    /// The element of a bucket.
    pub fn bucket(&self, name: &str) -> usize {
        let top = self.top();
        (0..self.count(top))
            .map(|index| Self::element(top, index))
            .find(|element| self.bytes[self.key(*element)] == *name.as_bytes())
            .expect("the bucket is there")
    }

    /// The page at which the tree of a bucket begins; within the value for one that has no page.
    pub fn root(&self, name: &str) -> usize {
        let value = self.value(self.bucket(name)).start;
        match self.u64(value) {
            0 => value + 16,
            number => self.page(number),
        }
    }

    /// The leaves of the bucket of keys: the pages below its root, or the root itself.
    pub fn leaves(&self) -> Vec<usize> {
        let root = self.root("key");
        if self.u16(root + 8) == LEAF {
            return vec![root];
        }
        (0..self.count(root))
            .map(|index| self.page(self.u64(Self::element(root, index) + 8)))
            .collect()
    }

    /// Every byte whose meaning is structure: headers of pages, tables of elements, keys, heads of buckets, metas. The
    /// keys of alarms and of removed members are content, of which nothing but the file's hash can tell a change.
    pub fn structure(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (HEADER..HEADER + 64).collect();
        places.extend(self.size..self.size + HEADER + 64);
        let contents = ["alarm", "members_removed"].map(|name| self.root(name));
        let mut pages = vec![self.top(), self.root("key")];
        pages.extend(self.leaves());
        let top = self.top();
        for index in 0..self.count(top) {
            let element = Self::element(top, index);
            let value = self.value(element);
            places.extend(value.start..value.start + 16);
            pages.push(match self.u64(value.start) {
                0 => value.start + 16,
                number => self.page(number),
            });
        }
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            let (count, is_leaf) = (self.count(page), self.u16(page + 8) == LEAF);
            places.extend(page..page + HEADER + count * ELEMENT);
            for index in 0..count {
                let element = Self::element(page, index);
                if is_leaf {
                    places.extend(self.key(element).filter(|_| !contents.contains(&page)));
                } else {
                    let from = element + self.u32(element) as usize;
                    places.extend(from..from + self.u32(element + 4) as usize);
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}
