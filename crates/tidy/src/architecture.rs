//! Checks ARCHITECTURE.md: it is short, its map names every module, and existing tests hold its invariants.
//!
//! The page needs a heading `### crates/NAME` per crate, whose text names the modules of the crate in
//! backticks. Invariants are rows of the form ``| I-name | sentence | `file#test` … |``.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::tree::Tree;

/// The path of the page.
pub const PAGE: &str = "ARCHITECTURE.md";
/// The page must have fewer lines than this.
pub const MAX_LINES: usize = 300;

/// Checks the length of the page.
pub fn check_length(page: &str) -> Vec<Finding> {
    let lines = page.lines().count();
    if lines < MAX_LINES {
        return Vec::new();
    }
    vec![Finding::for_file(
        PAGE,
        format!("{lines} lines, must be fewer than {MAX_LINES}"),
    )]
}

/// Checks that the page names every module and that everything it names exists.
pub fn check_map(page: &str, tree: &Tree) -> Vec<Finding> {
    let sections = sections(page);
    let mut found = Vec::new();
    for path in tree.keys().filter(|path| has_extension(path, "rs")) {
        let Some((home, module)) = path.split_once("/src/") else {
            continue;
        };
        let Some(text) = sections.get(home) else {
            found.push(Finding::for_file(
                PAGE,
                format!("has no heading `### {home}`, where {path} is"),
            ));
            continue;
        };
        let name = module.split('/').next().unwrap_or(module).trim_end_matches(".rs");
        let is_itself = ["lib", "main"].contains(&name);
        if !is_itself && !in_backticks(text).any(|word| word.trim_end_matches('/') == name) {
            found.push(Finding::for_file(
                PAGE,
                format!("does not name `{name}` below {home}, where {path} is"),
            ));
        }
    }
    for home in sections.keys() {
        if !exists(tree, home) {
            found.push(Finding::for_file(
                PAGE,
                format!("has a heading for {home}, which does not exist"),
            ));
        }
    }
    for word in in_backticks(page).filter(|word| is_path(word)) {
        if !exists(tree, word.split('#').next().unwrap_or(word)) {
            found.push(Finding::for_file(
                PAGE,
                format!("names `{word}`, which does not exist"),
            ));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The text below each heading `### PATH`, up to the next heading.
fn sections(page: &str) -> BTreeMap<&str, String> {
    let mut sections = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if line.starts_with('#') {
            current = line
                .strip_prefix("### ")
                .map(|rest| {
                    rest.split_whitespace()
                        .next()
                        .unwrap_or_default()
                        .trim_matches('`')
                })
                .filter(|heading| heading.contains('/') || *heading == "e2e");
        }
        if let Some(heading) = current {
            let text: &mut String = sections.entry(heading).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    sections
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
}

/// Whether a word looks like a path of this repository.
fn is_path(word: &str) -> bool {
    const TOPS: [&str; 7] = [
        "crates/", "e2e/", "config/", "charts/", "docs/", ".cargo/", ".ci/",
    ];
    let is_file = !word.contains('/') && ["md", "toml"].iter().any(|end| has_extension(word, end));
    let has_path_chars = word.chars().all(|c| c.is_alphanumeric() || "/._-#".contains(c));
    has_path_chars && (is_file || TOPS.iter().any(|top| word.starts_with(top)))
}

fn exists(tree: &Tree, path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    tree.contains_key(path) || tree.keys().any(|file| file.starts_with(&folder))
}

/// An invariant of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invariant {
    /// The name, such as `I-arrows`.
    pub id: String,
    /// The tests that hold it, as `file#test`.
    pub held_by: Vec<String>,
}

/// Parses the invariants of the page.
pub fn invariants(page: &str) -> Vec<Invariant> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| I-"))
        .map(|row| {
            let id = row.split_whitespace().next().unwrap_or_default();
            Invariant {
                id: format!("I-{id}"),
                held_by: in_backticks(row)
                    .filter(|word| word.contains('#'))
                    .map(str::to_owned)
                    .collect(),
            }
        })
        .collect()
}

/// Checks the invariants of the page: an existing test must hold each. Every test that names an invariant
/// must be listed. Every test in the file `own` must name one.
pub fn check_invariants(page: &str, tree: &Tree, own: &str) -> Vec<Finding> {
    let invariants = invariants(page);
    let mut found = Vec::new();
    let mut add = |what: String| found.push(Finding::for_file(PAGE, what));
    let mut seen = BTreeSet::new();
    for Invariant { id, held_by } in &invariants {
        if !seen.insert(id) {
            add(format!("{id} is listed twice"));
        }
        if held_by.is_empty() {
            add(format!("{id} is not held by any test"));
        }
        for reference in held_by {
            let (path, test) = reference.split_once('#').unwrap_or((reference, ""));
            if !tree
                .get(path)
                .is_some_and(|text| test_names(text).contains(&test))
            {
                add(format!("{id}: there is no test {reference}"));
            }
        }
    }
    let ids: BTreeSet<&str> = invariants.iter().map(|invariant| invariant.id.as_str()).collect();
    for (path, text) in tree.iter().filter(|(path, _)| has_extension(path, "rs")) {
        for (test, named) in tests_naming_invariants(text) {
            let is_held = invariants
                .iter()
                .any(|i| i.id == named && i.held_by.iter().any(|by| *by == format!("{path}#{test}")));
            if !is_held {
                let known = if ids.contains(named) {
                    "does not list it"
                } else {
                    "does not have it"
                };
                add(format!(
                    "{path}#{test} claims to hold {named}, but this page {known}"
                ));
            }
        }
    }
    let text = tree.get(own).map_or("", String::as_str);
    let naming: BTreeSet<&str> = tests_naming_invariants(text)
        .into_iter()
        .map(|(test, _)| test)
        .collect();
    for test in test_names(text).into_iter().filter(|test| !naming.contains(test)) {
        add(format!("{own}#{test} names no invariant"));
    }
    found
}

/// The names of the tests in a file.
fn test_names(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let mut tests = Vec::new();
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| is_test(line)) {
        tests.extend(lines[index + 1..].iter().find_map(|line| function_name(line)));
    }
    tests
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The tests whose doc comment is the name of an invariant, with that name.
fn tests_naming_invariants(text: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut named = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(id) = line.strip_prefix("/// ").filter(|text| is_id(text))
            && let Some(test) = lines[index + 1..].iter().find_map(|line| function_name(line))
        {
            named.push((test, id));
        }
    }
    named
}

fn is_id(text: &str) -> bool {
    text.strip_prefix("I-")
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "//! A.\n";
    const TESTS: &str = "/// I-a\n#[test]\nfn a_holds() {}\n";
    const GOOD: &str = "# Map\n\n### crates/x\n\n| `one` | first |\n| `two/` | second |\n\n## Invariants\n\n| I-a | sentence | `crates/x/tests/t.rs#a_holds` |\n";

    fn tree(files: &[(&str, &str)]) -> Tree {
        let usual = [
            ("crates/x/src/lib.rs", MODULE),
            ("crates/x/src/one.rs", MODULE),
            ("crates/x/src/two/deep.rs", MODULE),
            ("crates/x/tests/t.rs", TESTS),
        ];
        let all = usual.iter().chain(files);
        all.map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn lines(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_correct_page_has_no_findings() {
        assert_eq!(check_map(GOOD, &tree(&[])), []);
        assert_eq!(check_invariants(GOOD, &tree(&[]), "crates/x/tests/t.rs"), []);
        assert_eq!(check_length(GOOD), []);
    }

    #[test]
    fn a_page_that_is_too_long_is_found() {
        assert_eq!(check_length(&"x\n".repeat(MAX_LINES - 1)), []);
        assert_eq!(check_length(&"x\n".repeat(MAX_LINES)).len(), 1);
    }

    #[test]
    fn a_module_or_crate_missing_on_the_map_is_found() {
        let found = lines(&check_map(GOOD, &tree(&[("crates/x/src/three.rs", MODULE)])));
        assert!(found[0].contains("does not name `three`"), "{found:?}");
        let found = lines(&check_map(GOOD, &tree(&[("crates/y/src/lib.rs", MODULE)])));
        assert!(found[0].contains("no heading `### crates/y`"), "{found:?}");
    }

    #[test]
    fn a_removed_name_on_the_map_is_found() {
        for gone in ["### crates/gone\n", "see `docs/gone.md`\n", "see `gone.toml`\n"] {
            let page = format!("{GOOD}\n{gone}");
            assert_eq!(check_map(&page, &tree(&[])).len(), 1, "{gone}");
        }
        assert_eq!(
            check_map(
                &format!("{GOOD}\nsee `crates/x/src/one.rs`, `/metrics`, `a/b`\n"),
                &tree(&[])
            ),
            []
        );
    }

    #[test]
    fn an_invariant_without_an_existing_test_is_found() {
        let page = GOOD.replace("`crates/x/tests/t.rs#a_holds`", "by hope");
        assert!(lines(&check_invariants(&page, &tree(&[]), ""))[0].contains("not held by any test"));
        let page = GOOD.replace("#a_holds", "#b_holds");
        assert!(lines(&check_invariants(&page, &tree(&[]), ""))[0].contains("there is no test"));
    }

    #[test]
    fn a_function_that_is_not_a_test_holds_no_invariant() {
        let not_run = tree(&[("crates/x/tests/t.rs", "fn a_holds() {}\n")]);
        assert_eq!(check_invariants(GOOD, &not_run, "").len(), 1);
    }

    #[test]
    fn a_test_that_names_an_unknown_invariant_is_found() {
        let more = tree(&[("crates/x/tests/u.rs", "/// I-b\n#[test]\nfn b_holds() {}\n")]);
        assert!(lines(&check_invariants(GOOD, &more, ""))[0].contains("I-b, but this page does not have it"));
        let own = tree(&[("crates/x/tests/u.rs", "#[test]\nfn nameless() {}\n")]);
        assert!(
            lines(&check_invariants(GOOD, &own, "crates/x/tests/u.rs"))[0].contains("names no invariant")
        );
    }
}
