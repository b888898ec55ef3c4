//! Checks each file: its length, its module comment, unfinished work, and local paths or registry hosts.

use crate::Finding;
use crate::code::{first_test_line, strip_comments_and_literals, tokens};

/// The maximum number of lines of a Rust file before its unit tests.
pub const MAX_LINES: usize = 600;
/// The maximum number of lines of a Rust file including its unit tests, and of a test file.
pub const MAX_LINES_WITH_TESTS: usize = 800;

/// Checks the length of a Rust file.
pub fn check_length(path: &str, text: &str) -> Vec<Finding> {
    let all = text.lines().count();
    let is_tests = path.contains("/tests/") || path.ends_with("/tests.rs");
    let code = if is_tests {
        0
    } else {
        first_test_line(text).map_or(all, |line| line - 1)
    };
    if code > MAX_LINES {
        let what = format!("{code} lines before its tests, at most {MAX_LINES}: split it by concept");
        return vec![Finding::for_file(path, what)];
    }
    if all > MAX_LINES_WITH_TESTS {
        let what = format!("{all} lines, at most {MAX_LINES_WITH_TESTS}: split it by concept");
        return vec![Finding::for_file(path, what)];
    }
    Vec::new()
}

/// Checks that a Rust file begins with a module comment.
pub fn check_first_line(path: &str, text: &str) -> Vec<Finding> {
    if text.starts_with("//! ") {
        return Vec::new();
    }
    vec![Finding::on_line(
        path,
        1,
        "must open with `//!`: what the file is for",
    )]
}

/// Finds unfinished work, ignored tests, and lints silenced without a reason in a Rust file.
pub fn check_unfinished(path: &str, text: &str) -> Vec<Finding> {
    // Concatenated, so that this file does not contain the words it looks for.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [
        concat!("to", "do"),
        concat!("db", "g"),
        concat!("unimpl", "emented"),
    ];
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for mark in marks {
            if words(line).any(|word| word == mark) {
                found.push(Finding::on_line(
                    path,
                    index + 1,
                    format!("`{mark}`: do it or remove it"),
                ));
            }
        }
    }
    let bare = strip_comments_and_literals(text);
    let tokens = tokens(&bare);
    for call in tokens.windows(3) {
        let is_macro = call[1].text == "!" && ["(", "[", "{"].contains(&call[2].text);
        if is_macro && macros.contains(&call[0].text) {
            found.push(Finding::on_line(
                path,
                call[0].line,
                format!("`{}!`", call[0].text),
            ));
        }
    }
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "#") {
        let attribute: Vec<&str> = tokens[index + 1..]
            .iter()
            .map(|token| token.text)
            .skip_while(|text| ["!", "["].contains(text))
            .take_while(|text| *text != "]")
            .collect();
        let silences_lint =
            matches!(attribute.first(), Some(&"allow" | &"expect")) && attribute.get(1) == Some(&"(");
        if silences_lint && !attribute.contains(&"reason") {
            found.push(Finding::on_line(
                path,
                token.line,
                "a lint is silenced without a `reason`",
            ));
        }
        if attribute.first() == Some(&"ignore") {
            found.push(Finding::on_line(
                path,
                token.line,
                "an ignored test: fix it or remove it",
            ));
        }
    }
    found.sort();
    found
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Finds paths of a local machine and hosts of package registries in a text file. Lock files are exempt
/// because they contain hosts.
pub fn check_traces(path: &str, text: &str) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if ["Cargo.lock", "go.sum"].contains(&name) {
        return Vec::new();
    }
    let hosts: Vec<String> = [
        ["crates", "io"],
        ["docs", "rs"],
        ["npmjs", "com"],
        ["npmjs", "org"],
        ["pypi", "org"],
        ["rubygems", "org"],
        ["proxy.golang", "org"],
        ["sum.golang", "org"],
        ["deb.debian", "org"],
    ]
    .iter()
    .map(|parts| parts.join("."))
    .collect();
    let directories: Vec<String> = ["work", "root", "home", "Users"]
        .iter()
        .map(|name| format!("/{name}/"))
        .collect();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for host in hosts.iter().filter(|host| has_host(line, host)) {
            found.push(Finding::on_line(
                path,
                index + 1,
                format!("{host} is a host of a package registry"),
            ));
        }
        for directory in directories
            .iter()
            .filter(|directory| has_directory(line, directory))
        {
            found.push(Finding::on_line(
                path,
                index + 1,
                format!("{directory} is a path of a local machine"),
            ));
        }
    }
    found
}

/// Whether the line contains the host or a subdomain of it, and not a longer word.
fn has_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + host.len()..].chars().next();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
        !is_word(before) && !is_word(after)
    })
}

/// Whether a path in the line starts with the directory.
fn has_directory(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~})*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found_and_tests_count_separately() {
        let code = "x\n".repeat(MAX_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}", "y\n".repeat(150));
        assert_eq!(check_length("crates/a/src/b.rs", &code), []);
        assert_eq!(check_length("crates/a/src/b.rs", &format!("{code}{tests}")), []);
        assert_eq!(check_length("crates/a/src/b.rs", &format!("x\n{code}")).len(), 1);
        assert_eq!(
            check_length("crates/a/src/b.rs", &format!("{code}{tests}{code}")).len(),
            1
        );
        assert_eq!(check_length("crates/a/tests/b.rs", &code.repeat(2)).len(), 1);
        assert_eq!(check_length("crates/a/tests/b.rs", &format!("x\n{code}")), []);
    }

    #[test]
    fn a_file_without_a_module_comment_is_found() {
        assert_eq!(check_first_line("a.rs", "//! What for.\n"), []);
        assert_eq!(check_first_line("a.rs", "// What for.\n").len(), 1);
        assert_eq!(check_first_line("a.rs", "").len(), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        for text in [
            concat!("// TO", "DO: later\n"),
            concat!("/// FIX", "ME\n"),
            concat!("fn f() { to", "do!() }\n"),
            concat!("fn f() { db", "g!(1); }\n"),
            concat!("#[ig", "nore]\nfn f() {}\n"),
            concat!("#[ig", "nore = \"slow\"]\nfn f() {}\n"),
            "#[allow(dead_code)]\nfn f() {}\n",
            "#![allow(\n    dead_code\n)]\n",
            "#[expect(dead_code)]\nfn f() {}\n",
        ] {
            assert_eq!(check_unfinished("a.rs", text).len(), 1, "{text}");
        }
        for text in [
            "#[allow(dead_code, reason = \"read by a macro\")]\nfn f() {}\n",
            "fn dbg(todo: u8) -> bool { todo != 1 }\n",
            "let mastodon = METHODS;\n",
            "fn f(word: &str) { word.allow(1) }\n",
        ] {
            assert_eq!(check_unfinished("a.rs", text), [], "{text}");
        }
    }

    #[test]
    fn registry_hosts_and_local_paths_are_found() {
        for text in [
            concat!("see https://crates", ".io/x"),
            concat!("https://static.crates", ".io/"),
            concat!("GOPROXY=proxy.golang", ".org"),
            concat!("open(\"/ho", "me/me/x\")"),
            concat!("cd /ro", "ot/x"),
        ] {
            assert_eq!(check_traces("a.md", text).len(), 1, "{text}");
        }
        for text in [
            "the crates' io",
            concat!("golang", ".org/x/net"),
            concat!("docs", ".rspec"),
            concat!("$XDG/ho", "me/x"),
        ] {
            let expected = usize::from(text.starts_with('$'));
            assert!(check_traces("a.md", text).len() <= expected, "{text}");
        }
        assert_eq!(
            check_traces(
                "Cargo.lock",
                concat!("https://github.com/rust-lang/crates", ".io-index")
            ),
            []
        );
    }
}
