//! Kubernetes' way to write sizes, as far as sizes of volumes go.

/// The units a size may have.
const UNITS: &[(&str, u64)] = &[
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// `300Mi`, `1Gi`, `5G`, `1000` in bytes; none for what is written otherwise.
pub(super) fn bytes(quantity: &str) -> Option<u64> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((quantity.strip_suffix(suffix)?, *unit)))
        .unwrap_or((quantity, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The shortest way to write this many bytes: it is what `kubectl get pvc` shows.
pub(super) fn written(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    match UNITS.iter().filter(fits).max_by_key(|(_, unit)| *unit) {
        Some((suffix, unit)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shown_as_people_write_it_and_read_back_as_it_was() {
        assert_eq!(written(1 << 30), "1Gi");
        assert_eq!(written(1536 << 20), "1536Mi");
        assert_eq!(written(400_000_000), "400M");
        assert_eq!(written(5_000_000_000), "5G");
        assert_eq!(written(12345), "12345");
        assert_eq!(written(0), "0");
        for size in [1, 999, 1024, 1000, 300 << 20, 7_000_000, u64::MAX] {
            assert_eq!(bytes(&written(size)), Some(size));
        }
    }

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
