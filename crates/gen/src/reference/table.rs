//! Markdown tables.

/// Formats a table with these headings. Without rows, returns an empty text.
pub(super) fn table(headings: &[&str], rows: &[impl AsRef<[String]>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heading_line =
        |text: fn(&str) -> String| headings.iter().map(|heading| text(heading)).collect::<Vec<_>>();
    let mut text = line(&heading_line(str::to_owned)) + &line(&heading_line(|_| "---".to_owned()));
    text.extend(rows.iter().map(|row| line(row.as_ref())));
    text
}

/// Formats text as code. Empty text stays empty.
pub(super) fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Escapes a cell: no column or line breaks, and no angle brackets outside code, which would be HTML.
fn escape(cell: &str) -> String {
    let one_line = cell
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    let mut in_code = false;
    let mut text = String::with_capacity(one_line.len());
    for character in one_line.chars() {
        match character {
            '`' => in_code = !in_code,
            '<' if !in_code => {
                text.push_str("&lt;");
                continue;
            }
            _ => {}
        }
        text.push(character);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped() {
        let text = table(&["a", "b"], &[["x|y\nz".into(), "<b> and `<c>`".into()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| x\\|y z | &lt;b> and `<c>` |\n");
    }

    #[test]
    fn no_rows_produce_no_table() {
        assert_eq!(table(&["a"], &[] as &[[String; 1]]), "");
    }
}
