//! A quick look at a database: the meta pages, the last key and the small buckets. It needs a few dozen
//! reads, also of a remote file.

use serde::Serialize;

use super::facts::{Facts, SMALL_BUCKETS};
use super::record::Revision;
use super::{KEY, META};
use crate::database::{Damage, DamageKind, Database, Direction, Entry, Error, Location, Visitor};
use crate::source::{Ranges, ReadAt, ReadError};

/// The result of a quick look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuickLook {
    /// The revision at which etcd starts from this file.
    pub revision: i64,
    /// The last revision in the bucket `key`.
    pub right_edge: Option<Revision>,
    /// The content of the small buckets.
    pub facts: Facts,
}

/// A visitor that collects the small buckets.
struct FactsCollector(Facts);

impl<S: ReadAt> Visitor<S> for FactsCollector {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        self.0.add_entry(source, entry).map(|_| ())
    }
}

/// Takes a quick look at a database. Fails if it encounters damage.
pub fn quick_look<S: ReadAt>(database: &mut Database<S>) -> Result<QuickLook, Error> {
    let mut collector = FactsCollector(Facts::default());
    for name in SMALL_BUCKETS {
        match database.find_bucket(name)? {
            Some(bucket) => database.visit_bucket(&bucket, Direction::Forward, &mut collector)?,
            None if name == META => return Err(missing_bucket(META).into()),
            None => {}
        }
    }
    let keys = database.find_bucket(KEY)?.ok_or_else(|| missing_bucket(KEY))?;
    let right_edge = match database.last_key(&keys)? {
        Some(key) => Some(parse_edge(&key)?),
        None => None,
    };
    Ok(QuickLook {
        revision: start_revision(right_edge, &collector.0),
        right_edge,
        facts: collector.0,
    })
}

/// The result of one step of a look at a remote file.
#[derive(Debug)]
pub enum RemoteStep {
    /// Fetch this range, pass it to [`Ranges::put`], and call [`quick_look_step`] again.
    Fetch {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        length: u64,
    },
    /// The look is complete.
    Done(Box<QuickLook>),
}

/// Looks at a remote database of which some ranges were fetched. Looking has no side effects, so each step
/// starts over.
pub fn quick_look_step(ranges: &mut Ranges) -> Result<RemoteStep, Error> {
    match Database::open(ranges).and_then(|mut database| quick_look(&mut database)) {
        Ok(look) => Ok(RemoteStep::Done(Box::new(look))),
        Err(Error::Read(ReadError::Missing { offset, length })) => Ok(RemoteStep::Fetch { offset, length }),
        Err(error) => Err(error),
    }
}

/// The revision at which etcd starts from a file: that of the last entry, or of a compaction that removed the
/// last entry. A new etcd starts at 1.
pub(super) fn start_revision(right_edge: Option<Revision>, facts: &Facts) -> i64 {
    [
        right_edge.map(|edge| edge.main),
        facts.compacted,
        facts.compacting,
    ]
    .into_iter()
    .flatten()
    .fold(1, i64::max)
}

pub(super) fn missing_bucket(bucket: &[u8]) -> Damage {
    Damage {
        location: Location::bucket(bucket),
        kind: DamageKind::BucketMissing,
    }
}

fn parse_edge(key: &[u8]) -> Result<Revision, Damage> {
    Revision::parse(key)
        .map(|(revision, _)| revision)
        .map_err(|why| Damage {
            location: Location::bucket(KEY),
            kind: DamageKind::InvalidContent {
                key: crate::database::printable(key),
                why: why.to_owned(),
            },
        })
}
