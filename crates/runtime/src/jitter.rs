//! The only source of randomness here, used to spread retries. Not for secrets or identifiers that must be unguessable.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Where chance comes from; cheap to clone.
#[derive(Clone, Default)]
pub struct Jitter(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Machine,
    Drawn(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Machine => "Jitter(of the machine)",
            Source::Drawn(_) => "Jitter(drawn)",
        })
    }
}

impl Jitter {
    /// Draws every word with this, so that whoever knows what it draws knows what happens.
    pub fn drawn(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Source::Drawn(Arc::new(draw)))
    }

    /// A number in `[0, 1)`, different at every call.
    pub fn unit(&self) -> f64 {
        // 53 bits are what a double holds exactly.
        let bits = self.bits() >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa")]
        let numerator = bits as f64;
        #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
        let denominator = (1_u64 << 53) as f64;
        numerator / denominator
    }

    /// Eight hexadecimal digits that make a name of this process its own.
    pub fn suffix(&self) -> String {
        format!("{:08x}", self.bits() >> 32)
    }

    fn bits(&self) -> u64 {
        match &self.0 {
            // Each `RandomState` has fresh keys, so hashing nothing already gives an unpredictable word.
            Source::Machine => RandomState::new().build_hasher().finish(),
            Source::Drawn(draw) => draw(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_the_unit_interval_and_differ() {
        let jitter = Jitter::default();
        let draws: Vec<f64> = (0..100).map(|_| jitter.unit()).collect();
        assert!(draws.iter().all(|d| (0.0..1.0).contains(d)));
        assert!(draws.windows(2).any(|pair| pair[0] < pair[1]));
        assert!(draws.windows(2).any(|pair| pair[0] > pair[1]));
        assert!((0.0..1.0).contains(&Jitter::drawn(|| u64::MAX).unit()));
    }

    #[test]
    fn suffixes_differ_unless_they_are_drawn_alike() {
        let jitter = Jitter::default();
        assert_ne!(jitter.suffix(), jitter.suffix());
        assert_eq!(Jitter::drawn(|| 7 << 32).suffix(), "00000007");
    }
}
