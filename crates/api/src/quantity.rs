//! Quantities of Kubernetes (`8Gi`, `500m`, `1e3`) as numbers.
//!
//! Exact: values are kept as integers of a thousandth, the finest Kubernetes stores for sizes and CPUs.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a quantity: write a number with a unit, for example 8Gi or 500m")]
pub struct QuantityError(String);

/// A quantity in thousandths of its unit, rounded up as Kubernetes does.
pub fn millis(quantity: &Quantity) -> Result<i128, QuantityError> {
    parse(&quantity.0).ok_or_else(|| QuantityError(quantity.0.clone()))
}

/// A quantity of bytes, rounded up.
pub fn bytes(quantity: &Quantity) -> Result<u64, QuantityError> {
    let whole = millis(quantity)?;
    let rounded = if whole >= 0 { (whole + 999) / 1000 } else { -1 };
    u64::try_from(rounded).map_err(|_| QuantityError(quantity.0.clone()))
}

/// Whether two texts name the same amount, to the thousandth; texts that are no quantities are equal to nothing.
pub fn equal(a: &str, b: &str) -> bool {
    parse(a).is_some_and(|a| Some(a) == parse(b))
}

fn parse(text: &str) -> Option<i128> {
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
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (numerator, ten) = factor(unit)?;
    // value = digits · numerator · 10^(ten − scale), in thousandths: three powers of ten more.
    let exponent = ten.checked_sub(scale)?.checked_add(3)?;
    let scaled = digits.checked_mul(numerator)?;
    let power = |by: u32| 10_i128.checked_pow(by);
    let value = match u32::try_from(exponent) {
        Ok(up) => scaled.checked_mul(power(up)?)?,
        Err(_) => match power(exponent.unsigned_abs()) {
            Some(divisor) => (scaled + divisor - 1) / divisor,
            None => i128::from(scaled > 0),
        },
    };
    Some(if negative { -value } else { value })
}

/// A unit as a whole factor and a power of ten.
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
    let exponent: i32 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= 30).then_some((1, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<i128> {
        millis(&Quantity(text.to_owned())).ok()
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
            assert_eq!(of(a), of(b), "{a} {b}");
            assert!(of(a).is_some(), "{a}");
        }
        assert!(of("1G") < of("1Gi"));
        assert!(equal("1Gi", "1024Mi") && equal("-1", "-1000m") && equal("1.50", "1500m"));
        assert!(!equal("1G", "1Gi") && !equal("x", "x") && !equal("1ki", "1Ki"));
        assert_eq!(of("-1"), Some(-1000));
        assert_eq!(of("1n"), Some(1), "rounded up, never to nothing");
    }

    #[test]
    fn what_is_no_quantity_is_an_error_that_quotes_it() {
        for bad in ["", "Gi", "1.2.3", "1 Gi", "1gi", "abc", "-", ".", "1e", "1e999"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(bytes(&Quantity("-1".into())), Err(QuantityError("-1".into())));
        assert_eq!(bytes(&Quantity("8Gi".into())), Ok(8 << 30));
    }
}
