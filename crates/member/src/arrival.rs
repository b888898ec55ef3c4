//! How far the log on a volume goes as a pod comes to it, told before anything runs: a volume that was put back in its place
//! looks whole, and once etcd has caught up nothing shows any more that it was.

use etcd_operator_api::contract::{Arrival, VERSION};

use crate::disk::reached;
use crate::volume::Volume;

/// The member whose log is on the volume, and its last index, before etcd runs in this pod. `None` if there is no entry
/// in a log. An error if the log cannot be read: what was read is then not all.
pub fn arrival(volume: &Volume) -> Result<Option<Arrival>, String> {
    let reached = reached(&volume.data())?;
    Ok(reached.map(|(member, index)| Arrival {
        version: VERSION,
        member_id: member.to_string(),
        index: index.0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::samples::Segment;
    use crate::samples::Scratch;

    const FIRST: &str = "data/member/wal/0000000000000000-0000000000000000.wal";
    const SECOND: &str = "data/member/wal/0000000000000001-0000000000000008.wal";

    fn told(scratch: &Scratch) -> Result<Option<u64>, String> {
        let arrival = arrival(&Volume::at(scratch.path()))?;
        Ok(arrival.map(|arrival| {
            assert_eq!(arrival.member_id, "b");
            arrival.index
        }))
    }

    fn segment(entries: std::ops::RangeInclusive<u64>) -> Segment {
        let mut segment = Segment::new(0, 10, 11);
        for index in entries {
            segment.entry(3, index, 0, b"x");
        }
        segment
    }

    #[test]
    fn the_last_entry_is_told_wherever_it_is() {
        let scratch = Scratch::new();
        assert_eq!(told(&scratch), Ok(None), "an empty volume");
        scratch.file(FIRST, segment(5..=7).bytes());
        assert_eq!(told(&scratch), Ok(Some(7)));
        // One that was begun and holds nothing yet.
        scratch.file(SECOND, Segment::new(0, 10, 11).bytes());
        assert_eq!(told(&scratch), Ok(Some(7)));
        scratch.file(SECOND, segment(8..=9).bytes());
        assert_eq!(told(&scratch), Ok(Some(9)));
        // Half of the last one was never written.
        let whole = segment(8..=9);
        scratch.file(SECOND, &whole.written()[..whole.written().len() - 3]);
        assert_eq!(told(&scratch), Ok(Some(8)));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_the_end() {
        let scratch = Scratch::new();
        scratch.file(FIRST, segment(5..=7).bytes());
        std::fs::create_dir_all(scratch.path().join(SECOND)).expect("a directory in the place of a file");
        assert!(told(&scratch).is_err());
    }
}
