//! Names of segments: which come after which. Nothing is listed here.

/// The name of a segment, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// Its number, from 0.
    pub sequence: u64,
    /// The index of the first entry that may be in it.
    pub first_index: u64,
}

impl SegmentName {
    /// Parses a name such as `0000000000000001-00000000000003e8.wal`. `None` for any other file.
    pub fn read(name: &str) -> Option<Self> {
        let (sequence, first_index) = name.strip_suffix(".wal")?.split_once('-')?;
        Some(Self {
            sequence: hexadecimal(sequence)?,
            first_index: hexadecimal(first_index)?,
        })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let is_number = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// The name as the file has it.
impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{:016x}.wal", self.sequence, self.first_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_are_taken_for_segments_and_they_come_in_order() {
        let text = "0000000000000010-00000000000003e8.wal";
        let name = SegmentName::read(text).expect("a name");
        assert_eq!((name.sequence, name.first_index), (16, 1000));
        assert_eq!(name.to_string(), text);
        assert!(name > SegmentName::read("000000000000000f-0000000000001000.wal").expect("a name"));
        for other in [
            "0.tmp",
            "0000000000000000-0000000000000000.wal.broken",
            "0-0.wal",
            "000000000000000g-0000000000000000.wal",
            "lost+found",
        ] {
            assert_eq!(SegmentName::read(other), None, "{other}");
        }
    }
}
