//! A full walk: every page, every key, everything that is not as bbolt and etcd write it.

use serde::Serialize;

use super::facts::{BUCKETS, Facts};
use super::look::{Look, missing, revision};
use super::record::{Record, Revision};
use super::{KEY, META};
use crate::crc32c::Crc32c;
use crate::database::{Database, Entry, Error, Findings, Place, Visit, What, shown};
use crate::source::ReadAt;

/// What a full walk tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// What a look would have told.
    pub look: Look,
    /// Everything that is damaged. Where there is something, the rest is what could be read.
    pub findings: Findings,
    /// Pages in use, the two metas not counted.
    pub pages: u64,
    /// The buckets.
    pub buckets: Vec<BucketSize>,
    /// Entries of the bucket of keys: what keys became, deletions included.
    pub records: u64,
    /// Of them, deletions.
    pub deletions: u64,
    /// Of them, empty ones, with which a restore raises the revision.
    pub marks: u64,
    /// The hash that etcd's own tools print.
    pub hash: u32,
}

/// How large a bucket is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketSize {
    /// Its name.
    pub name: String,
    /// How many keys it has.
    pub keys: u64,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

impl Audit {
    /// Entries of all buckets: what etcd's own tools up to 3.5 call the total of keys.
    pub fn entries(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.keys).sum()
    }
}

/// Walks a database from its first page to its last key.
pub fn audit<S: ReadAt>(database: &mut Database<S>) -> Result<Audit, Error> {
    let mut findings = Findings::default();
    let mut auditor = Auditor::default();
    let walked = database.walk(&mut auditor, &mut findings)?;
    for name in [KEY, META] {
        if !walked.buckets.iter().any(|bucket| bucket.name == name) {
            findings.add(missing(name));
        }
    }
    let Auditor {
        facts,
        right_edge,
        buckets,
        records,
        deletions,
        marks,
        hash,
        strange,
    } = auditor;
    if !facts.is_of_the_future() {
        strange.list.into_iter().for_each(|damage| findings.add(damage));
    }
    let revision = revision(right_edge, &facts);
    Ok(Audit {
        look: Look {
            revision,
            right_edge,
            facts,
        },
        findings,
        pages: walked.pages,
        buckets,
        records,
        deletions,
        marks,
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
    marks: u64,
    hash: Crc32c,
    /// What is unknown here, and no damage if a later etcd wrote it.
    strange: Findings,
}

impl<S: ReadAt> Visit<S> for Auditor {
    fn bucket(&mut self, name: &[u8]) {
        self.hash.update(name);
        self.buckets.push(BucketSize {
            name: shown(name),
            keys: 0,
            bytes: 0,
        });
        if name == b"lease" {
            self.facts.leases = Some(0);
        }
        if !BUCKETS.contains(&name) {
            self.strange
                .at(Place::bucket(name), What::Unknown { key: shown(name) });
        }
    }

    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        self.hash.update(entry.key);
        let hash = &mut self.hash;
        entry.value.pieces(source, &mut |piece| hash.update(piece))?;
        if let Some(bucket) = self.buckets.last_mut() {
            bucket.keys += 1;
            bucket.bytes += entry.key.len() as u64 + entry.value.length;
        }
        if entry.bucket == KEY {
            return self.record(source, entry);
        }
        let is_known = self.facts.take(source, entry)? || !BUCKETS.contains(&entry.bucket);
        if !is_known {
            let key = shown(entry.key);
            self.strange.at(entry.place.clone(), What::Unknown { key });
        }
        Ok(())
    }
}

impl Auditor {
    fn record<S: ReadAt>(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        let (revision, is_deletion) = Revision::parse(entry.key).map_err(|why| entry.wrong(why))?;
        self.records += 1;
        self.deletions += u64::from(is_deletion);
        self.right_edge = Some(revision);
        if entry.value.length == 0 && !is_deletion {
            self.marks += 1;
            return Ok(());
        }
        let record = Record::of(source, entry)?;
        record
            .judge(revision, is_deletion)
            .map_err(|why| entry.wrong(why))
    }
}
