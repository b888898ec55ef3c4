//! Chance from a seed: the same seed gives the same draws on every machine. Never a source of secrets.

use std::time::Duration;

/// A stream of draws.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below a bound, or zero below zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// True once in so many draws.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time between two, in whole milliseconds above the first.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_millis();
        let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
        least + Duration::from_millis(self.below(span + 1))
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(list.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(self.below(count)).unwrap_or(0);
        list.get(index)
    }

    /// A stream of its own, so that its draws do not move the others.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }
}

/// Spreads the bits of a number over all of it.
pub(crate) fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_draw() {
        let draws = |seed| {
            let mut chance = Chance::new(seed);
            (0..50).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
    }

    #[test]
    fn draws_stay_in_their_bounds_and_reach_both_ends() {
        let mut chance = Chance::new(1);
        let (least, most) = (Duration::from_millis(2), Duration::from_millis(4));
        let drawn: Vec<Duration> = (0..100).map(|_| chance.between(least, most)).collect();
        assert!(drawn.iter().all(|time| (least..=most).contains(time)));
        assert!(drawn.contains(&least) && drawn.contains(&most));
        assert_eq!((chance.below(0), chance.pick::<u8>(&[])), (0, None));
    }
}
