//! etcd's write-ahead log, read as far as judging a disk needs it: whose it is, how far it goes, and whether clients
//! wrote. Nothing is opened here, and nothing is ever written.
//!
//! Segments follow one another; each begins with a checksum of all before it and with whose log it is, and grows by
//! checksummed records. What lies behind the last of them are zeros or the rest of an interrupted write.

mod checksum;
mod entry;
mod fields;
mod name;
mod record;
#[cfg(test)]
pub(crate) mod samples;

use std::io::Read;

use etcd_operator_etcd::id::{ClusterId, MemberId, RaftIndex, RaftTerm};

pub use name::SegmentName;
use record::{Kind, Records};

use crate::view::{LogEnd, LogHead};
use fields::{bytes, number};

/// The member and the cluster that a segment belongs to, from its first two records. An error if it does not begin as a
/// log.
pub fn head(segment: impl Read) -> Result<LogHead, String> {
    let mut records = Records::new(segment);
    let wrong = |what: &str| format!("the write-ahead log does not begin as one: {what}");
    let first = records.read().map_err(|why| wrong(&why))?;
    if first.map(|record| record.kind) != Some(Kind::Checksum) {
        return Err(wrong("no checksum"));
    }
    let second = records.read().map_err(|why| wrong(&why))?;
    let Some(record) = second.filter(|record| record.kind == Kind::Metadata) else {
        return Err(wrong("it does not say whose it is"));
    };
    let (member, cluster) = (number(record.data, 1), number(record.data, 2));
    match (cluster.and_then(ClusterId::new), member.and_then(MemberId::new)) {
        (Some(cluster), Some(member)) => Ok(LogHead { cluster, member }),
        _ => Err(wrong("it does not say whose it is")),
    }
}

/// The last term and index in a segment, if it speaks of any, and whether it holds an entry. What an interrupted write left
/// behind the last valid record does not count; etcd cuts it off.
fn position(segment: impl Read) -> (Option<(RaftTerm, RaftIndex)>, bool) {
    let mut records = Records::new(segment);
    let (mut last, mut has_entry) = (None, false);
    while let Ok(Some(record)) = records.read() {
        let (term, index) = match record.kind {
            Kind::Entry => (number(record.data, 2), number(record.data, 3)),
            Kind::Snapshot => (number(record.data, 2), number(record.data, 1)),
            Kind::Checksum | Kind::Metadata | Kind::State | Kind::Other => continue,
        };
        let found = (RaftTerm(term.unwrap_or(0)), RaftIndex(index.unwrap_or(0)));
        // A later entry replaces one of the same index; the record of a snapshot only tells where one is.
        let is_old = record.kind == Kind::Snapshot && last.is_some_and(|(_, index)| index >= found.1);
        if found.1.0 > 0 && !is_old {
            last = Some(found);
        }
        has_entry |= record.kind == Kind::Entry;
    }
    (last, has_entry)
}

/// The last term and index of a log, whose segments are given oldest first. `None` if there are none. It reads from the
/// newest segment back to one with an entry: a segment that was just begun may tell only of a snapshot, which can be
/// older.
pub fn last<R: Read, E>(
    segments: &[SegmentName],
    mut open: impl FnMut(&SegmentName) -> Result<R, E>,
) -> Result<Option<(RaftTerm, RaftIndex)>, E> {
    let mut last: Option<(RaftTerm, RaftIndex)> = None;
    for segment in segments.iter().rev() {
        let (found, has_entry) = position(open(segment)?);
        last = last.into_iter().chain(found).max_by_key(|(_, index)| *index);
        if has_entry {
            break;
        }
    }
    Ok(last)
}

/// Whether a segment may hold what a client wrote; also `true` for what is not understood. What is behind the last
/// valid record does not count.
pub fn has_client_entries(segment: impl Read) -> bool {
    let mut records = Records::new(segment);
    while let Ok(Some(record)) = records.read() {
        let may_be_a_clients = match record.kind {
            Kind::Entry => entry::may_be_a_clients(number(record.data, 1), bytes(record.data, 4)),
            // All before a snapshot is in the database alone.
            Kind::Snapshot => number(record.data, 1).is_some_and(|index| index > 0),
            Kind::Other => true,
            Kind::Checksum | Kind::Metadata | Kind::State => false,
        };
        if may_be_a_clients {
            return true;
        }
    }
    false
}

/// The last position of a log, whose segments are given oldest first, and whether clients may have written to it. They
/// may have where the first segments are gone.
pub fn end<R: Read, E>(
    segments: &[SegmentName],
    mut open: impl FnMut(&SegmentName) -> Result<R, E>,
) -> Result<LogEnd, E> {
    let mut end = LogEnd::default();
    if let Some((term, index)) = last(segments, &mut open)? {
        (end.term, end.index) = (term, index);
    }
    end.has_client_entries = segments.first().is_none_or(|first| first.sequence > 0);
    for segment in segments {
        if end.has_client_entries {
            break;
        }
        end.has_client_entries = has_client_entries(open(segment)?);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::samples::{Segment, attributes, own, put};
    use super::*;

    fn ids() -> LogHead {
        LogHead {
            cluster: ClusterId::new(0xc).expect("an ID"),
            member: MemberId::new(0xa).expect("an ID"),
        }
    }

    fn at(term: u64, index: u64) -> (RaftTerm, RaftIndex) {
        (RaftTerm(term), RaftIndex(index))
    }

    fn found(segment: &[u8]) -> Option<(RaftTerm, RaftIndex)> {
        position(segment).0
    }

    #[test]
    fn the_head_says_whose_log_it_is() {
        let segment = Segment::new(0, 0xc, 0xa);
        assert_eq!(head(segment.bytes()), Ok(ids()));
        let continued = Segment::new(0x1234_5678, 0xc, 0xa);
        assert_eq!(head(continued.bytes()), Ok(ids()));
    }

    #[test]
    fn a_head_that_is_cut_off_overwritten_or_nameless_is_no_head() {
        let segment = Segment::new(0, 0xc, 0xa);
        let whole = segment.written().to_vec();
        for length in 0..whole.len() {
            assert!(head(&whole[..length]).is_err(), "{length} bytes");
        }
        for place in (0..whole.len()).filter(|place| !segment.padding.contains(place)) {
            let mut flipped = whole.clone();
            flipped[place] = !flipped[place];
            assert_ne!(head(&flipped[..]), Ok(ids()), "byte {place}");
        }
        assert!(head(&[0; 64][..]).is_err());
        assert!(head(Segment::new(0, 0, 0xa).bytes()).is_err(), "no cluster");
        assert!(head(Segment::new(0, 0xc, 0).bytes()).is_err(), "no member");
    }

    #[test]
    fn the_position_is_that_of_the_last_entry_that_was_written_whole() {
        let mut segment = Segment::new(7, 0xc, 0xa);
        assert_eq!(found(segment.bytes()), None);
        segment.snapshot(2, 5);
        assert_eq!(found(segment.bytes()), Some(at(2, 5)));
        segment.entry(2, 6, 0, &put());
        segment.state(9, 6);
        assert_eq!(
            found(segment.bytes()),
            Some(at(2, 6)),
            "a term without an entry is a lost election"
        );
        segment.entry(3, 7, 0, &[]);
        let written = segment.written().len();
        segment.entry(3, 6, 0, &put());
        segment.snapshot(2, 5);
        assert_eq!(
            found(segment.bytes()),
            Some(at(3, 6)),
            "an entry of the same index is replaced"
        );
        let torn = &segment.written()[..written + 9];
        assert_eq!(found(torn), Some(at(3, 7)));
    }

    #[test]
    fn only_what_etcd_writes_by_itself_is_no_clients() {
        for (kind, data) in own() {
            let mut segment = Segment::new(0, 0xc, 0xa);
            segment.snapshot(0, 0);
            segment.entry(1, 1, kind, &data);
            assert!(!has_client_entries(segment.bytes()), "{kind} {data:?}");
        }
        let strange = attributes("/0/members/8e9e05c52164694d/attributes/x");
        for data in [
            put(),
            attributes("/1/key"),
            attributes("/0/versions"),
            vec![0xff],
            strange,
        ] {
            let mut segment = Segment::new(0, 0xc, 0xa);
            segment.entry(1, 1, 0, &data);
            assert!(has_client_entries(segment.bytes()), "{data:?}");
        }
        let mut received = Segment::new(0, 0xc, 0xa);
        received.snapshot(1, 1);
        assert!(
            has_client_entries(received.bytes()),
            "a snapshot may hold anything"
        );
    }

    #[test]
    fn segments_are_read_together() {
        let name = |sequence| SegmentName {
            sequence,
            first_index: 0,
        };
        let mut first = Segment::new(0, 0xc, 0xa);
        first.entry(4, 9, 0, &[]);
        let mut second = Segment::new(3, 0xc, 0xa);
        let just_cut = second.bytes().to_vec();
        second.snapshot(4, 8);
        let open = |name: &SegmentName| {
            Ok::<_, std::convert::Infallible>(if name.sequence == 0 {
                first.bytes()
            } else {
                second.bytes()
            })
        };
        let wanted = |has_client_entries| {
            Ok(LogEnd {
                term: RaftTerm(4),
                index: RaftIndex(9),
                has_client_entries,
            })
        };
        let cut = |name: &SegmentName| {
            let second = just_cut.as_slice();
            Ok::<_, std::convert::Infallible>(if name.sequence == 0 { first.bytes() } else { second })
        };
        assert_eq!(end(&[name(0), name(1)], cut), wanted(false), "just cut");
        assert_eq!(
            end(&[name(0), name(1)], open).map(|end| end.index),
            Ok(RaftIndex(9)),
            "a snapshot of before is told of first"
        );
        let purged = |_: &SegmentName| Ok::<_, std::convert::Infallible>(first.bytes());
        assert_eq!(
            end(&[name(1)], purged),
            wanted(true),
            "what came before may hold anything"
        );
    }
}
