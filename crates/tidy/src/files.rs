//! What every file must be: short, telling what it is for, finished, and free of traces of a machine.

use crate::Finding;
use crate::code::{bare, tests_begin, tokens};

/// Lines of a Rust file before its unit tests.
pub const LONGEST: usize = 600;
/// Lines of a Rust file with its unit tests, and of a file of tests.
pub const LONGEST_WITH_TESTS: usize = 800;

/// Size of a Rust file.
pub fn size(path: &str, text: &str) -> Vec<Finding> {
    let all = text.lines().count();
    let is_tests = path.contains("/tests/") || path.ends_with("/tests.rs");
    let code = if is_tests {
        0
    } else {
        tests_begin(text).map_or(all, |line| line - 1)
    };
    if code > LONGEST {
        let what = format!("{code} lines before its tests, at most {LONGEST}: split it by what it is about");
        return vec![Finding::of_file(path, what)];
    }
    if all > LONGEST_WITH_TESTS {
        let what = format!("{all} lines, at most {LONGEST_WITH_TESTS}: split it by what it is about");
        return vec![Finding::of_file(path, what)];
    }
    Vec::new()
}

/// The first line of a Rust file says what it is for.
pub fn first_line(path: &str, text: &str) -> Vec<Finding> {
    if text.starts_with("//! ") {
        return Vec::new();
    }
    vec![Finding::at(
        path,
        1,
        "must open with `//!`: what it is for, and what must not happen there",
    )]
}

/// Unfinished work and muted lints in a Rust file.
pub fn unfinished(path: &str, text: &str) -> Vec<Finding> {
    // Put together here, so that this file does not hold what it looks for.
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
                found.push(Finding::at(
                    path,
                    index + 1,
                    format!("`{mark}`: do it, or leave it out"),
                ));
            }
        }
    }
    let bare = bare(text);
    let tokens = tokens(&bare);
    for call in tokens.windows(3) {
        let is_macro = call[1].text == "!" && ["(", "[", "{"].contains(&call[2].text);
        if is_macro && macros.contains(&call[0].text) {
            found.push(Finding::at(path, call[0].line, format!("`{}!`", call[0].text)));
        }
    }
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "#") {
        let attribute: Vec<&str> = tokens[index + 1..]
            .iter()
            .map(|token| token.text)
            .skip_while(|text| ["!", "["].contains(text))
            .take_while(|text| *text != "]")
            .collect();
        let is_muting =
            matches!(attribute.first(), Some(&"allow" | &"expect")) && attribute.get(1) == Some(&"(");
        if is_muting && !attribute.contains(&"reason") {
            found.push(Finding::at(
                path,
                token.line,
                "a lint is muted without a `reason`",
            ));
        }
        if attribute.first() == Some(&"ignore") {
            found.push(Finding::at(
                path,
                token.line,
                "an ignored test: make it pass, or take it out",
            ));
        }
    }
    found.sort();
    found
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Paths of one machine, and hosts of package registries, in any text file. Lock files name hosts by nature.
pub fn traces(path: &str, text: &str) -> Vec<Finding> {
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
    let folders: Vec<String> = ["work", "root", "home", "Users"]
        .iter()
        .map(|name| format!("/{name}/"))
        .collect();
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for host in hosts.iter().filter(|host| has_host(line, host)) {
            found.push(Finding::at(
                path,
                index + 1,
                format!("{host} is the host of a package registry"),
            ));
        }
        for folder in folders.iter().filter(|folder| has_folder(line, folder)) {
            found.push(Finding::at(
                path,
                index + 1,
                format!("{folder} is a folder of one machine"),
            ));
        }
    }
    found
}

/// The host itself or one below it, not a longer word.
fn has_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + host.len()..].chars().next();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
        !is_word(before) && !is_word(after)
    })
}

/// At the start of a path, not within one.
fn has_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~})*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found_with_its_tests_counted_apart() {
        let code = "x\n".repeat(LONGEST);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}", "y\n".repeat(150));
        assert_eq!(size("crates/a/src/b.rs", &code), []);
        assert_eq!(size("crates/a/src/b.rs", &format!("{code}{tests}")), []);
        assert_eq!(size("crates/a/src/b.rs", &format!("x\n{code}")).len(), 1);
        assert_eq!(
            size("crates/a/src/b.rs", &format!("{code}{tests}{code}")).len(),
            1
        );
        assert_eq!(size("crates/a/tests/b.rs", &code.repeat(2)).len(), 1);
        assert_eq!(size("crates/a/tests/b.rs", &format!("x\n{code}")), []);
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        assert_eq!(first_line("a.rs", "//! What for.\n"), []);
        assert_eq!(first_line("a.rs", "// What for.\n").len(), 1);
        assert_eq!(first_line("a.rs", "").len(), 1);
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
            assert_eq!(unfinished("a.rs", text).len(), 1, "{text}");
        }
        for text in [
            "#[allow(dead_code, reason = \"read by a macro\")]\nfn f() {}\n",
            "fn dbg(todo: u8) -> bool { todo != 1 }\n",
            "let mastodon = METHODS;\n",
            "fn f(word: &str) { word.allow(1) }\n",
        ] {
            assert_eq!(unfinished("a.rs", text), [], "{text}");
        }
    }

    #[test]
    fn hosts_of_registries_and_folders_of_a_machine_are_found() {
        for text in [
            concat!("see https://crates", ".io/x"),
            concat!("https://static.crates", ".io/"),
            concat!("GOPROXY=proxy.golang", ".org"),
            concat!("open(\"/ho", "me/me/x\")"),
            concat!("cd /ro", "ot/x"),
        ] {
            assert_eq!(traces("a.md", text).len(), 1, "{text}");
        }
        for text in [
            "the crates' io",
            concat!("golang", ".org/x/net"),
            concat!("docs", ".rspec"),
            concat!("$XDG/ho", "me/x"),
        ] {
            let expected = usize::from(text.starts_with('$'));
            assert!(traces("a.md", text).len() <= expected, "{text}");
        }
        assert_eq!(
            traces(
                "Cargo.lock",
                concat!("https://github.com/rust-lang/crates", ".io-index")
            ),
            []
        );
    }
}
