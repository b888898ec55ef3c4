//! A quick look: the metas, the right edge, the small buckets. A few dozen reads, wherever the file is.

use serde::Serialize;

use super::facts::{Facts, SHORT};
use super::record::Revision;
use super::{KEY, META};
use crate::database::{Damage, Database, Entry, Error, Order, Place, Visit, What};
use crate::source::{Ranges, ReadAt, ReadError};

/// What a quick look tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Look {
    /// The revision etcd has when it starts with this file.
    pub revision: i64,
    /// The last entry of the bucket of keys.
    pub right_edge: Option<Revision>,
    /// The small buckets.
    pub facts: Facts,
}

/// Takes in the small buckets.
struct Taker(Facts);

impl<S: ReadAt> Visit<S> for Taker {
    fn entry(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<(), Error> {
        self.0.take(source, entry).map(|_| ())
    }
}

/// Looks at a database. Damage on the way ends it.
pub fn look<S: ReadAt>(database: &mut Database<S>) -> Result<Look, Error> {
    let mut taker = Taker(Facts::default());
    for name in SHORT {
        match database.bucket(name)? {
            Some(bucket) => database.each(&bucket, Order::Forward, &mut taker)?,
            None if name == META => return Err(missing(META).into()),
            None => {}
        }
    }
    let keys = database.bucket(KEY)?.ok_or_else(|| missing(KEY))?;
    let right_edge = match database.last(&keys)? {
        Some(key) => Some(edge(&key)?),
        None => None,
    };
    Ok(Look {
        revision: revision(right_edge, &taker.0),
        right_edge,
        facts: taker.0,
    })
}

/// What became of a step of looking at something far away.
#[derive(Debug)]
pub enum Step {
    /// Fetch this range, give it to [`Ranges::put`], and look again.
    Fetch {
        /// The first byte.
        place: u64,
        /// How many bytes.
        length: u64,
    },
    /// Seen.
    Done(Box<Look>),
}

/// Looks at a database of which only ranges are here. As looking changes nothing, it simply begins again each time.
pub fn step(ranges: &mut Ranges) -> Result<Step, Error> {
    match Database::open(ranges).and_then(|mut database| look(&mut database)) {
        Ok(look) => Ok(Step::Done(Box::new(look))),
        Err(Error::Read(ReadError::Missing { place, length })) => Ok(Step::Fetch { place, length }),
        Err(error) => Err(error),
    }
}

/// The revision etcd has when it starts with a file: that of the last entry, or of a compaction which removed it. A
/// new etcd is at 1.
pub(super) fn revision(right_edge: Option<Revision>, facts: &Facts) -> i64 {
    [
        right_edge.map(|edge| edge.main),
        facts.compacted,
        facts.compacting,
    ]
    .into_iter()
    .flatten()
    .fold(1, i64::max)
}

pub(super) fn missing(bucket: &[u8]) -> Damage {
    Damage {
        place: Place::bucket(bucket),
        what: What::BucketMissing,
    }
}

fn edge(key: &[u8]) -> Result<Revision, Damage> {
    Revision::parse(key)
        .map(|(revision, _)| revision)
        .map_err(|why| Damage {
            place: Place::bucket(KEY),
            what: What::Content {
                key: crate::database::shown(key),
                why: why.to_owned(),
            },
        })
}
