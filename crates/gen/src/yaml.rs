//! Serializes objects as YAML that people, kubectl and Helm read alike.

use serde::Serialize;

/// The first line of every generated YAML file.
pub const HEADER: &str = "# Made by `cargo xtask gen`; changes by hand are lost.\n";

/// Serializes an object without a header. Words that older YAML versions interpret differently are quoted.
pub fn object(value: &impl Serialize) -> String {
    // Long lines instead of folded text: parsers unfold text differently.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(value, options)
        .expect("Kubernetes objects have only text keys and plain values");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Serializes several objects as one file.
pub fn file(objects: &[impl Serialize]) -> String {
    let texts: Vec<String> = objects.iter().map(object).collect();
    format!("{HEADER}{}", texts.join("---\n"))
}

/// Escapes text for a Helm template.
pub fn escape_template(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn objects_round_trip_through_yaml() {
        let value = json!({
            "text": "a: b # c", "yes": "yes", "number": "1", "time": "12:30", "empty": "", "none": {},
            "long": "word ".repeat(60), "lines": "a\nb\n", "quotes": "\"x\" 'y' \\", "list": [[], [1, "2"]],
        });
        let read: Value = serde_saphyr::from_str(&object(&value)).expect("YAML");
        assert_eq!(read, value);
        assert!(
            object(&json!({"a": "yes"})).contains("\"yes\"")
                || object(&json!({"a": "yes"})).contains("'yes'")
        );
    }

    #[test]
    fn braces_in_a_description_are_escaped() {
        assert_eq!(escape_template("use {{x}} or {y}"), "use {{ \"{{\" }}x}} or {y}");
    }
}
