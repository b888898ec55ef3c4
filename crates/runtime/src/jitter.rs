//! The only source of randomness here, used to spread retries. Not for secrets or identifiers that must be unguessable.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A number in `[0, 1)`, different at every call.
pub fn unit() -> f64 {
    // 53 bits are what a double holds exactly.
    let bits = random_bits() >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa")]
    let numerator = bits as f64;
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    let denominator = (1_u64 << 53) as f64;
    numerator / denominator
}

/// Eight hexadecimal digits that make a name of this process its own.
pub fn suffix() -> String {
    format!("{:08x}", random_bits() >> 32)
}

fn random_bits() -> u64 {
    // Each `RandomState` has fresh keys, so hashing nothing already gives an unpredictable word.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_the_unit_interval_and_differ() {
        let draws: Vec<f64> = (0..100).map(|_| unit()).collect();
        assert!(draws.iter().all(|d| (0.0..1.0).contains(d)));
        assert!(draws.windows(2).any(|pair| pair[0] < pair[1]));
        assert!(draws.windows(2).any(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn suffixes_differ() {
        assert_ne!(suffix(), suffix());
    }
}
