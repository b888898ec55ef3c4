//! Kubernetes quantities, as far as telling equal ones apart from different ones needs it.

/// Whether two texts name the same amount; texts that are no quantities are equal to nothing.
pub fn equal(a: &str, b: &str) -> bool {
    match (nanos(a), nanos(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The amount in billionths, which is the finest step Kubernetes knows.
fn nanos(text: &str) -> Option<i128> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let scale = u32::try_from(fraction.len()).ok()?;
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (multiplier, divisor) = unit(suffix)?;
    let amount = mantissa.checked_mul(1_000_000_000)?.checked_mul(multiplier)?;
    let amount = amount.checked_div(10_i128.checked_pow(scale)?.checked_mul(divisor)?)?;
    Some(if negative { -amount } else { amount })
}

fn unit(suffix: &str) -> Option<(i128, i128)> {
    const STEPS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    Some(match suffix {
        "" => (1, 1),
        "m" => (1, 1_000),
        "u" => (1, 1_000_000),
        "n" => (1, 1_000_000_000),
        _ => {
            if let Some(step) = STEPS.iter().position(|s| *s == suffix) {
                (1000_i128.pow(exponent(step)), 1)
            } else if let Some(step) = suffix
                .strip_suffix('i')
                .and_then(|prefix| STEPS.iter().position(|s| s.to_uppercase() == prefix))
            {
                (1024_i128.pow(exponent(step)), 1)
            } else {
                let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                let factor = 10_i128.checked_pow(power.unsigned_abs())?;
                if power < 0 { (1, factor) } else { (factor, 1) }
            }
        }
    })
}

fn exponent(step: usize) -> u32 {
    u32::try_from(step).map_or(u32::MAX, |step| step + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_amount_written_differently_is_equal() {
        for (a, b) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1Gi", "1024Mi"),
            ("1Gi", "1073741824"),
            ("2k", "2000"),
            ("1e3", "1k"),
            ("1.50", "1500m"),
            ("100n", "0.1u"),
            ("-1", "-1000m"),
            ("8Ei", "8192Pi"),
        ] {
            assert!(equal(a, b), "{a} {b}");
        }
    }

    #[test]
    fn different_amounts_and_texts_are_not_equal() {
        for (a, b) in [
            ("1", "2"),
            ("1G", "1Gi"),
            ("1m", "1M"),
            ("x", "x"),
            ("", ""),
            ("1ki", "1Ki"),
            ("1.2.3", "1"),
        ] {
            assert!(!equal(a, b), "{a} {b}");
        }
    }
}
