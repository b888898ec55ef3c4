//! Resource quantities in the canonical form the API server stores.

use serde_json::Value;

use super::schema::{Schema, Settled, Shape};

const BINARY: [(&str, i128); 6] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];
const DECIMAL: [(&str, i128); 6] = [
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// The canonical form, or None for what is no quantity (or one finer than a thousandth).
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (milli, table) = parse(text)?;
    if milli % 1000 != 0 {
        return Some(format!("{milli}m"));
    }
    let whole = milli / 1000;
    let fit = table.iter().find(|(_, unit)| whole != 0 && whole % unit == 0);
    Some(fit.map_or_else(
        || whole.to_string(),
        |(suffix, unit)| format!("{}{suffix}", whole / unit),
    ))
}

/// The amount in thousandths.
pub(crate) fn thousandths(text: &str) -> Option<i128> {
    parse(text).map(|(milli, _)| milli)
}

fn parse(text: &str) -> Option<(i128, &'static [(&'static str, i128)])> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (factor, table): (i128, &'static [(&'static str, i128)]) = match suffix {
        "" => (1000, &DECIMAL),
        "m" => (1, &DECIMAL),
        _ => {
            let binary = BINARY
                .iter()
                .find(|(s, _)| *s == suffix)
                .map(|(_, f)| (f * 1000, BINARY.as_slice()));
            binary.or_else(|| {
                DECIMAL
                    .iter()
                    .find(|(s, _)| *s == suffix)
                    .map(|(_, f)| (f * 1000, &DECIMAL[..]))
            })?
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(factor)?;
    if product % scale != 0 {
        return None;
    }
    Some((product / scale, table))
}

/// Rewrites every quantity in a value of this structure, but in these fields.
pub(crate) fn normalise(schema: &Schema, value: &mut Value, settled: Settled<'_>) {
    if schema.is_quantity {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), ToOwned::to_owned);
        if let Some(canonical) = canonical(&text) {
            *value = Value::String(canonical);
        }
        return;
    }
    if !schema.below.quantities {
        return;
    }
    match (&schema.shape, value) {
        (Shape::Object(_), Value::Object(object)) => {
            let open = object
                .iter_mut()
                .filter(|(key, _)| !settled.contains(&key.as_str()));
            for (key, child) in open {
                normalise(schema.field(key).0, child, &[]);
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            for item in items {
                normalise(&array.items, item, &[]);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_take_the_largest_unit_that_keeps_them_whole() {
        for (written, stored) in [
            ("1024Mi", "1Gi"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500Mi", "1500Mi"),
            ("1000k", "1M"),
            ("0", "0"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(stored));
        }
        assert_eq!(canonical("much"), None);
    }
}
