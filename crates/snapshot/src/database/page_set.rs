//! A set of page numbers, one bit each, of a size that the file's own length bounds.

/// A set of numbers below a limit.
#[derive(Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// An empty set of numbers below this one.
    pub fn of(limit: u64) -> Self {
        let words = usize::try_from(limit.div_ceil(64)).unwrap_or(0);
        Self {
            words: vec![0; words],
        }
    }

    pub fn has(&self, number: u64) -> bool {
        usize::try_from(number / 64)
            .ok()
            .and_then(|word| self.words.get(word))
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds so many numbers from `first` on. If one is there already, that one is returned and nothing is added.
    /// Numbers beyond the limit are left out.
    pub fn set(&mut self, first: u64, count: u64) -> Option<u64> {
        if let Some(twice) = (first..first.saturating_add(count)).find(|number| self.has(*number)) {
            return Some(twice);
        }
        for number in first..first.saturating_add(count) {
            let word = usize::try_from(number / 64).ok();
            let Some(word) = word.and_then(|word| self.words.get_mut(word)) else {
                break;
            };
            *word |= 1 << (number % 64);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_added_whole_or_not_at_all() {
        let mut bits = Bits::of(200);
        assert_eq!(bits.set(60, 10), None);
        assert_eq!(bits.set(65, 1), Some(65));
        assert_eq!(bits.set(50, 11), Some(60));
        assert!(!bits.has(50) && bits.has(60) && bits.has(69) && !bits.has(70));
    }

    #[test]
    fn what_lies_beyond_the_limit_is_left_out() {
        let mut bits = Bits::of(10);
        assert_eq!(bits.set(200, 3), None);
        assert!(!bits.has(200) && !bits.has(u64::MAX));
    }
}
