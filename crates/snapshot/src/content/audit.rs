//! A full check of a database: every page, every key, and every deviation from what bbolt and etcd write.

use serde::Serialize;

use super::facts::{BUCKETS, Facts};
use super::quick_look::{QuickLook, missing_bucket, start_revision};
use super::record::{Record, Revision};
use super::{KEY, META};
use crate::crc32c::Crc32c;
use crate::database::{DamageKind, Database, Entry, Error, Findings, Location, Visitor, printable};
use crate::source::ReadAt;

/// The result of a full check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// What a quick look returns.
    pub look: QuickLook,
    /// All damage. If there is any, the other fields describe only what could be read.
    pub findings: Findings,
    /// The number of pages in use, without the two meta pages.
    pub pages: u64,
    /// The buckets.
    pub buckets: Vec<BucketSize>,
    /// The number of entries in the bucket `key`: revisions of keys, including deletions.
    pub records: u64,
    /// The number of deletions among them.
    pub deletions: u64,
    /// The number of empty entries among them. A restore writes them to raise the revision.
    pub empty_records: u64,
    /// The hash that etcd's tools print.
    pub hash: u32,
}

/// The size of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketSize {
    /// The name.
    pub name: String,
    /// The number of keys.
    pub keys: u64,
    /// The number of bytes of its keys and values.
    pub bytes: u64,
}

impl Audit {
    /// The number of entries of all buckets. etcd's tools up to 3.5 print it as the total number of keys.
    pub fn entries(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.keys).sum()
    }
}

/// Checks a database completely.
pub fn audit<S: ReadAt>(database: &mut Database<S>) -> Result<Audit, Error> {
    let mut findings = Findings::default();
    let mut auditor = Auditor::default();
    let result = database.walk(&mut auditor, &mut findings)?;
    for name in [KEY, META] {
        if !result.buckets.iter().any(|bucket| bucket.name == name) {
            findings.add(missing_bucket(name));
        }
    }
    let Auditor {
        facts,
        right_edge,
        buckets,
        records,
        deletions,
        empty_records,
        hash,
        unknown,
    } = auditor;
    if !facts.is_from_newer_etcd() {
        unknown.list.into_iter().for_each(|damage| findings.add(damage));
    }
    let revision = start_revision(right_edge, &facts);
    Ok(Audit {
        look: QuickLook {
            revision,
            right_edge,
            facts,
        },
        findings,
        pages: result.pages,
        buckets,
        records,
        deletions,
        empty_records,
        hash: hash.value(),
    })
}

#[derive(Default)]
struct Auditor {
    facts: Facts,
    right_edge: Option<Revision>,
    buckets: Vec<BucketSize>,
    records: u64,
    deletions: u64,
    empty_records: u64,
    hash: Crc32c,
    /// Unknown keys and buckets. They are damage only if no newer etcd wrote the file.
    unknown: Findings,
}

impl<S: ReadAt> Visitor<S> for Auditor {
    fn bucket(&mut self, name: &[u8]) {
        self.hash.update(name);
        self.buckets.push(BucketSize {
            name: printable(name),
            keys: 0,
            bytes: 0,
        });
        if name == b"lease" {
            self.facts.leases = Some(0);
        }
        if !BUCKETS.contains(&name) {
            self.unknown.add_at(
                Location::bucket(name),
                DamageKind::UnknownContent { key: printable(name) },
            );
        }
    }

    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        self.hash.update(entry.key);
        let hash = &mut self.hash;
        entry.value.read_chunks(source, &mut |chunk| hash.update(chunk))?;
        if let Some(bucket) = self.buckets.last_mut() {
            bucket.keys += 1;
            bucket.bytes += entry.key.len() as u64 + entry.value.length;
        }
        if entry.bucket == KEY {
            return self.visit_record(source, entry);
        }
        let is_known = self.facts.add_entry(source, entry)? || !BUCKETS.contains(&entry.bucket);
        if !is_known {
            let key = printable(entry.key);
            self.unknown
                .add_at(entry.location.clone(), DamageKind::UnknownContent { key });
        }
        Ok(())
    }
}

impl Auditor {
    fn visit_record<S: ReadAt>(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        let (revision, is_deletion) = Revision::parse(entry.key).map_err(|why| entry.damage(why))?;
        self.records += 1;
        self.deletions += u64::from(is_deletion);
        self.right_edge = Some(revision);
        if entry.value.length == 0 && !is_deletion {
            self.empty_records += 1;
            return Ok(());
        }
        let record = Record::parse_entry(source, entry)?;
        record
            .check(revision, is_deletion)
            .map_err(|why| entry.damage(why))
    }
}
