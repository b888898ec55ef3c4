//! A set of page numbers, stored as a bitmap. The size of the file limits its size.

/// A set of page numbers below a limit.
#[derive(Debug)]
pub(super) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    /// Creates an empty set for numbers below `limit`, rounded up to a multiple of 64.
    pub fn with_limit(limit: u64) -> Self {
        let words = usize::try_from(limit.div_ceil(64)).unwrap_or(0);
        Self {
            words: vec![0; words],
        }
    }

    pub fn contains(&self, number: u64) -> bool {
        usize::try_from(number / 64)
            .ok()
            .and_then(|word| self.words.get(word))
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds `count` numbers starting with `first`. If one of them is already in the set, returns it and adds
    /// nothing. Numbers above the limit are ignored.
    pub fn insert_run(&mut self, first: u64, count: u64) -> Option<u64> {
        if let Some(existing) = (first..first.saturating_add(count)).find(|number| self.contains(*number)) {
            return Some(existing);
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
    fn a_run_is_added_completely_or_not_at_all() {
        let mut pages = PageSet::with_limit(200);
        assert_eq!(pages.insert_run(60, 10), None);
        assert_eq!(pages.insert_run(65, 1), Some(65));
        assert_eq!(pages.insert_run(50, 11), Some(60));
        assert!(!pages.contains(50) && pages.contains(60) && pages.contains(69) && !pages.contains(70));
    }

    #[test]
    fn numbers_above_the_limit_are_ignored() {
        let mut pages = PageSet::with_limit(10);
        assert_eq!(pages.insert_run(200, 3), None);
        assert!(!pages.contains(200) && !pages.contains(u64::MAX));
    }
}
