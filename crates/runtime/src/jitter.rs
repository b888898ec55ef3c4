//! The only source of randomness in this crate, used to spread retries. Not for secrets or unguessable identifiers.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// A source of random numbers; cheap to clone.
#[derive(Clone, Default)]
pub struct Jitter(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    System,
    Injected(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Jitter(system)",
            Source::Injected(_) => "Jitter(injected)",
        })
    }
}

impl Jitter {
    /// Takes every random word from `draw`, so that a simulation is reproducible.
    pub fn drawn(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Source::Injected(Arc::new(draw)))
    }

    /// A random number in `[0, 1)`.
    pub fn unit(&self) -> f64 {
        // A double represents 53 bits exactly.
        let bits = self.bits() >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa")]
        let numerator = bits as f64;
        #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
        let denominator = (1_u64 << 53) as f64;
        numerator / denominator
    }

    /// A suffix of eight hexadecimal digits that makes a name unique.
    pub fn suffix(&self) -> String {
        format!("{:08x}", self.bits() >> 32)
    }

    fn bits(&self) -> u64 {
        match &self.0 {
            // Every `RandomState` has new random keys, so hashing an empty input gives a random word.
            Source::System => RandomState::new().build_hasher().finish(),
            Source::Injected(draw) => draw(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_unit_interval_and_differ() {
        let jitter = Jitter::default();
        let values: Vec<f64> = (0..100).map(|_| jitter.unit()).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)));
        assert!(values.windows(2).any(|pair| pair[0] < pair[1]));
        assert!(values.windows(2).any(|pair| pair[0] > pair[1]));
        assert!((0.0..1.0).contains(&Jitter::drawn(|| u64::MAX).unit()));
    }

    #[test]
    fn suffixes_differ_unless_the_source_repeats() {
        let jitter = Jitter::default();
        assert_ne!(jitter.suffix(), jitter.suffix());
        assert_eq!(Jitter::drawn(|| 7 << 32).suffix(), "00000007");
    }
}
