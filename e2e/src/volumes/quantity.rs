//! Kubernetes' way to write sizes, as far as sizes of volumes go.

/// `300Mi`, `1Gi`, `5G`, `1000` in bytes; none for what is written otherwise.
pub(super) fn bytes(quantity: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((quantity.strip_suffix(suffix)?, *unit)))
        .unwrap_or((quantity, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_and_decimal_units_differ() {
        assert_eq!(bytes("400Mi"), Some(400 << 20));
        assert_eq!(bytes("400M"), Some(400_000_000));
        assert_eq!(bytes("12345"), Some(12345));
        assert_eq!(bytes("1Gi"), Some(1 << 30));
        assert_eq!(bytes("a lot"), None);
        assert_eq!(bytes("99999999999Ti"), None);
    }
}
