//! How objects become text that people, kubectl and helm read alike.

use serde::Serialize;

/// The first line of every generated YAML file.
pub const HEADER: &str = "# Made by `cargo xtask gen`; changes by hand are lost.\n";

/// An object as YAML, without a header. Words that older YAML takes for something else are quoted.
pub fn object(value: &impl Serialize) -> String {
    // Folded text would have to be unfolded by every reader in the same way; long lines need no such trust.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(value, options)
        .expect("Kubernetes objects hold only text keys and plain values");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// A file of several objects.
pub fn file(objects: &[impl Serialize]) -> String {
    let texts: Vec<String> = objects.iter().map(object).collect();
    format!("{HEADER}{}", texts.join("---\n"))
}

/// Text as it must stand in a Helm template to come out as it is.
pub fn escape_template(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_read_back_is_what_was_written() {
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
    fn braces_in_a_description_do_not_become_template_code() {
        assert_eq!(escape_template("use {{x}} or {y}"), "use {{ \"{{\" }}x}} or {y}");
    }
}
