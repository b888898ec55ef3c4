//! The corpus of real files, and functions to damage them.
#![allow(dead_code, reason = "each file of tests uses some of this")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use etcd_operator_snapshot::content::audit::{Audit, audit};
use etcd_operator_snapshot::database::{Database, Error};

/// A file of the corpus, with what etcd and its tools reported about it.
pub struct Row {
    pub name: String,
    /// The revision that `snapshot status` printed.
    pub revision: i64,
    pub keys: u64,
    pub hash: u32,
    /// The revision that the running etcd served.
    pub served_revision: i64,
    pub served_digest: String,
}

impl Row {
    /// The minor version of the etcd that wrote the file.
    pub fn minor(&self) -> u32 {
        self.name[2..3].parse().expect("the name begins with a version")
    }

    /// Whether the file is a snapshot, and not a copy of etcd's database file.
    pub fn is_snapshot(&self) -> bool {
        !self.name.ends_with("-copied")
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// All files of the corpus.
pub fn table() -> Vec<Row> {
    let text = std::fs::read_to_string(folder().join("table.tsv")).expect("the table is there");
    let rows: Vec<Row> = text.lines().map(parse_row).collect();
    assert!(rows.len() >= 30, "{} files", rows.len());
    rows
}

fn parse_row(line: &str) -> Row {
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

/// Checks a database completely.
pub fn check_database(bytes: &[u8]) -> Result<Audit, Error> {
    audit(&mut Database::open(bytes)?)
}

const HEADER: usize = 16;
const ELEMENT: usize = 16;
const LEAF: u16 = 2;

/// A database to be damaged.
#[derive(Clone)]
pub struct DamagedFile {
    pub bytes: Vec<u8>,
    pub size: usize,
}

impl DamagedFile {
    pub fn new(name: &str) -> Self {
        let bytes = bytes(name);
        let mut damaged = Self { bytes, size: 4096 };
        damaged.size = damaged.u32(HEADER + 8) as usize;
        damaged
    }

    pub fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.bytes[offset..offset + 2].try_into().expect("two bytes"))
    }

    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().expect("four bytes"))
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().expect("eight bytes"))
    }

    pub fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&bytes);
    }

    /// The offset of a page.
    pub fn page(&self, number: u64) -> usize {
        usize::try_from(number).expect("small") * self.size
    }

    /// The number of pages.
    pub fn pages(&self) -> u64 {
        self.u64(HEADER + 40)
    }

    /// Changes a field of both meta pages and corrects their checksums.
    pub fn put_in_metas<const N: usize>(&mut self, field: usize, bytes: [u8; N]) {
        for meta in [HEADER, self.size + HEADER] {
            self.put(meta + field, bytes);
        }
        self.fix_checksums();
    }

    /// Corrects the checksums of both meta pages.
    pub fn fix_checksums(&mut self) {
        for meta in [HEADER, self.size + HEADER] {
            let sum = self.bytes[meta..meta + 56]
                .iter()
                .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
                });
            self.put(meta + 56, sum.to_le_bytes());
        }
    }

    /// The root page of the root bucket. In all files of the corpus it is a leaf page.
    pub fn root_page(&self) -> usize {
        let top = self.page(self.u64(HEADER + 16));
        assert_eq!(self.u16(top + 8), LEAF);
        top
    }

    /// The offset of an element of the page at this offset.
    pub fn element(page: usize, index: usize) -> usize {
        page + HEADER + index * ELEMENT
    }

    pub fn count(&self, page: usize) -> usize {
        self.u16(page + 10).into()
    }

    /// The key of an element of a leaf page.
    pub fn key(&self, element: usize) -> Range<usize> {
        let from = element + self.u32(element + 4) as usize;
        from..from + self.u32(element + 8) as usize
    }

    /// The value of an element of a leaf page.
    pub fn value(&self, element: usize) -> Range<usize> {
        let from = self.key(element).end;
        from..from + self.u32(element + 12) as usize
    }

    /// The element of a bucket in the root bucket.
    pub fn bucket(&self, name: &str) -> usize {
        let top = self.root_page();
        (0..self.count(top))
            .map(|index| Self::element(top, index))
            .find(|element| self.bytes[self.key(*element)] == *name.as_bytes())
            .expect("the bucket is there")
    }

    /// The root page of a bucket, which may be inline.
    pub fn root(&self, name: &str) -> usize {
        let value = self.value(self.bucket(name)).start;
        match self.u64(value) {
            0 => value + 16,
            number => self.page(number),
        }
    }

    /// The leaf pages of the bucket `key`.
    pub fn leaves(&self) -> Vec<usize> {
        let root = self.root("key");
        if self.u16(root + 8) == LEAF {
            return vec![root];
        }
        (0..self.count(root))
            .map(|index| self.page(self.u64(Self::element(root, index) + 8)))
            .collect()
    }

    /// The offsets of all structural bytes: page headers, element tables, keys, bucket headers and meta
    /// pages. The keys of alarms and removed members are excluded: only the hash of the file can detect a
    /// change of them.
    pub fn structure(&self) -> Vec<usize> {
        let mut offsets: Vec<usize> = (HEADER..HEADER + 64).collect();
        offsets.extend(self.size..self.size + HEADER + 64);
        let contents = ["alarm", "members_removed"].map(|name| self.root(name));
        let mut pages = vec![self.root_page(), self.root("key")];
        pages.extend(self.leaves());
        let top = self.root_page();
        for index in 0..self.count(top) {
            let element = Self::element(top, index);
            let value = self.value(element);
            offsets.extend(value.start..value.start + 16);
            pages.push(match self.u64(value.start) {
                0 => value.start + 16,
                number => self.page(number),
            });
        }
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            let (count, is_leaf) = (self.count(page), self.u16(page + 8) == LEAF);
            offsets.extend(page..page + HEADER + count * ELEMENT);
            for index in 0..count {
                let element = Self::element(page, index);
                if is_leaf {
                    offsets.extend(self.key(element).filter(|_| !contents.contains(&page)));
                } else {
                    let from = element + self.u32(element) as usize;
                    offsets.extend(from..from + self.u32(element + 4) as usize);
                }
            }
        }
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}
