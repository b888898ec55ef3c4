//! Kubernetes quantities (`8Gi`, `500m`, `1e3`) as numbers.
//!
//! Exact: values are integers of thousandths, the finest unit that Kubernetes stores for sizes and CPUs.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a text is not a usable quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a quantity, or is negative where only amounts make sense.
    #[error("'{0}' is not a quantity: write a number with a unit, for example 8Gi or 500m")]
    Malformed(String),
    /// The quantity is too large to be represented.
    #[error("'{0}' is too large: write a smaller number, for example 8Gi or 500m")]
    TooLarge(String),
}

/// A quantity in thousandths of its unit, rounded up as Kubernetes does.
pub fn millis(quantity: &Quantity) -> Result<i128, QuantityError> {
    match parse(&quantity.0) {
        Some(Amount::Millis(millis)) => Ok(millis),
        Some(Amount::TooLarge) => Err(QuantityError::TooLarge(quantity.0.clone())),
        None => Err(QuantityError::Malformed(quantity.0.clone())),
    }
}

/// A quantity in bytes, rounded up.
pub fn bytes(quantity: &Quantity) -> Result<u64, QuantityError> {
    let whole = millis(quantity)?;
    let whole = u128::try_from(whole).map_err(|_| QuantityError::Malformed(quantity.0.clone()))?;
    u64::try_from(whole.div_ceil(1000)).map_err(|_| QuantityError::TooLarge(quantity.0.clone()))
}

/// A number of bytes whose `Display` form is human-readable, for example `1.5 KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut tenths = self.0.saturating_mul(10) / 1024;
        let mut units = UNITS.iter();
        let mut unit = units.next().unwrap_or(&"KiB");
        for next in units {
            if tenths < 10_240 {
                break;
            }
            tenths /= 1024;
            unit = next;
        }
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Whether two texts are the same quantity, to the thousandth. A text that is no quantity, or is too large, equals nothing.
pub fn equal(a: &str, b: &str) -> bool {
    matches!((parse(a), parse(b)), (Some(Amount::Millis(a)), Some(Amount::Millis(b))) if a == b)
}

/// The value of a well-formed quantity.
enum Amount {
    Millis(i128),
    TooLarge,
}

/// Parses a quantity. `None` if the text is none.
fn parse(text: &str) -> Option<Amount> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, unit) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (numerator, ten) = factor(unit)?;
    let fraction = fraction.trim_end_matches('0');
    let millis = millis_of(&format!("{whole}{fraction}"), fraction.len(), numerator, ten);
    Some(match millis {
        Some(value) => Amount::Millis(if negative { -value } else { value }),
        None => Amount::TooLarge,
    })
}

/// digits · numerator · 10^(ten − scale), in thousandths: three powers of ten more. `None` if that is too large.
fn millis_of(digits: &str, scale: usize, numerator: i128, ten: i32) -> Option<i128> {
    let digits: i128 = digits.parse().ok()?;
    let exponent = ten.checked_sub(i32::try_from(scale).ok()?)?.checked_add(3)?;
    let scaled = digits.checked_mul(numerator)?;
    let power = |by: u32| 10_i128.checked_pow(by);
    match u32::try_from(exponent) {
        Ok(_) if scaled == 0 => Some(0),
        Ok(up) => scaled.checked_mul(power(up)?),
        Err(_) => match power(exponent.unsigned_abs()) {
            Some(divisor) => Some(scaled / divisor + i128::from(scaled % divisor > 0)),
            None => Some(i128::from(scaled > 0)),
        },
    }
}

/// A unit as an integer factor and a power of ten.
fn factor(unit: &str) -> Option<(i128, i32)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(n) = binary.iter().position(|u| *u == unit) {
        return Some((1_i128 << (10 * (n + 1)), 0));
    }
    let decimal = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    if let Some((_, ten)) = decimal.iter().find(|(u, _)| *u == unit) {
        return Some((1, *ten));
    }
    let exponent = unit.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Clamping a huge exponent does not change the result: the value stays too large, or close to zero.
    let bound = if exponent.starts_with('-') { -999 } else { 999 };
    Some((1, exponent.parse().map_or(bound, |e: i32| e.clamp(-999, 999))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<i128> {
        millis(&Quantity(text.to_owned())).ok()
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (20 << 20, "20.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert!(Bytes(u64::MAX).to_string().ends_with("TiB"));
    }

    #[test]
    fn quantities_are_compared_by_value_not_by_spelling() {
        let same = [
            ("1", "1000m"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("0.5", "500m"),
            ("8Gi", "8589934592"),
        ];
        for (a, b) in same {
            assert_eq!(parsed(a), parsed(b), "{a} {b}");
            assert!(parsed(a).is_some(), "{a}");
        }
        assert!(parsed("1G") < parsed("1Gi"));
        assert!(equal("1Gi", "1024Mi") && equal("-1", "-1000m") && equal("1.50", "1500m"));
        assert!(!equal("1G", "1Gi") && !equal("x", "x") && !equal("1ki", "1Ki"));
        assert_eq!(parsed("-1"), Some(-1000));
        assert_eq!(parsed("1n"), Some(1), "rounded up, never to zero");
    }

    #[test]
    fn an_invalid_quantity_is_an_error_that_quotes_it() {
        for bad in [
            "", "Gi", "1.2.3", "1 Gi", "1gi", "abc", "-", ".", "1e", "1e+", "1e1x",
        ] {
            let quantity = Quantity(bad.to_owned());
            assert_eq!(millis(&quantity), Err(QuantityError::Malformed(bad.into())));
        }
        assert_eq!(
            bytes(&Quantity("-1".into())),
            Err(QuantityError::Malformed("-1".into()))
        );
        assert_eq!(bytes(&Quantity("8Gi".into())), Ok(8 << 30));
    }

    #[test]
    fn a_too_large_quantity_is_reported_and_never_overflows() {
        let largest = i128::MAX.to_string();
        let huge = [
            "1e30".to_owned(),
            "1e999".to_owned(),
            "1e99999999999".to_owned(),
            "9".repeat(200),
            format!("{largest}m"),
            format!("{largest}u"),
            format!("{largest}n"),
            format!("{}.5", &largest[..36]),
            "99999999999999999999999Ei".to_owned(),
            "20E".to_owned(),
        ];
        for text in huge {
            let refused = bytes(&Quantity(text.clone())).expect_err(&text);
            assert_eq!(refused, QuantityError::TooLarge(text));
            assert!(refused.to_string().contains("too large"), "{refused}");
        }
        assert_eq!(parsed(&format!("{largest}m")), Some(i128::MAX));
        assert_eq!(parsed(&format!("{largest}n")), Some(i128::MAX / 1_000_000 + 1));
        assert_eq!(parsed("0e999"), Some(0));
        assert_eq!(parsed("1e-999"), Some(1), "rounded up, never to zero");
    }
}
