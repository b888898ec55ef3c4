//! Checks the links of Markdown pages: every relative link and anchor resolves, and the summary of the site names every
//! page of `docs/`.

use std::collections::BTreeSet;

use crate::Finding;
use crate::tree::Tree;

/// The summary of the site.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks that every relative link of a page leads to a file, a directory, or a heading of a page.
pub fn check_links(path: &str, page: &str, tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, link) in links(page) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() {
            Some(path.to_owned())
        } else {
            resolve(path, file)
        };
        let Some(target) = target.filter(|target| exists(tree, target)) else {
            found.push(Finding::on_line(
                path,
                line,
                format!("the link {link} leads to no file"),
            ));
            continue;
        };
        if !anchor.is_empty()
            && !tree
                .get(&target)
                .is_some_and(|page| anchors(page).contains(anchor))
        {
            found.push(Finding::on_line(
                path,
                line,
                format!("the link {link} leads to no heading of {target}"),
            ));
        }
    }
    found
}

/// Checks that the summary names every page below `docs/`, so that the site has them all.
pub fn check_summary(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.get(SUMMARY) else {
        return vec![Finding::for_file(SUMMARY, "does not exist")];
    };
    let named: BTreeSet<String> = links(summary)
        .filter_map(|(_, link)| resolve(SUMMARY, link))
        .collect();
    tree.keys()
        .filter(|path| {
            is_page(path) && path.starts_with("docs/") && *path != SUMMARY && !named.contains(*path)
        })
        .map(|path| Finding::for_file(SUMMARY, format!("does not name {path}")))
        .collect()
}

/// Whether a file is a Markdown page.
pub fn is_page(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "md")
}

/// The links of a page with their lines. Code is skipped.
fn links(page: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(page).flat_map(|(line, text)| {
        // Every second part is inside backticks, unless it is the text of a link.
        let ends = text.match_indices("](").filter(move |(at, _)| {
            let before = &text[..*at];
            before.matches('`').count() % 2 == 0
        });
        ends.filter_map(move |(at, _)| Some((line, text[at + 2..].split([')', ' ']).next()?)))
    })
}

/// The lines of a page outside fenced blocks, numbered from 1.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The anchors of a page: its headings as GitHub and mdbook write them into addresses.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|character| character.is_alphanumeric() || " -_".contains(*character));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

/// The path that a relative link of a page means, if it stays in the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a text file or a directory with one exists.
fn exists(tree: &Tree, path: &str) -> bool {
    let directory = format!("{path}/");
    tree.contains_key(path)
        || tree
            .range(directory.clone()..)
            .next()
            .is_some_and(|(first, _)| first.starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter();
        files
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn links_that_resolve_are_no_finding() {
        let page = "[c](b/c.md) [`code`](b/c.md#what-is-refused-today) ![x](../config/x/y.yaml \"title\") [dir](../config/x)\n\
                    # Here\n[web](https://example.com/a) [here](#here) `[no](link.md)`\n```sh\n[no](link.md)\n```\n";
        let tree = tree(&[
            ("docs/a.md", page),
            ("docs/b/c.md", "# Title\n\n## What is refused, today\n"),
            ("config/x/y.yaml", ""),
        ]);
        assert_eq!(check_links("docs/a.md", page, &tree), []);
    }

    #[test]
    fn links_to_nothing_are_found() {
        for link in [
            "gone.md",
            "b.md#gone",
            "b.md#in-code",
            "#gone",
            "../../out.md",
            "../docs/bb",
        ] {
            let page = format!("# A\n\n[x]({link})\n");
            let tree = tree(&[("docs/a.md", &page), ("docs/b.md", "```\n# In code\n```\n")]);
            let found = check_links("docs/a.md", &page, &tree);
            assert_eq!(found.len(), 1, "{link}");
            assert_eq!(found[0].line, 3, "{link}");
        }
    }

    #[test]
    fn a_page_that_the_summary_does_not_name_is_found() {
        let named = tree(&[(SUMMARY, "[a](a.md)\n"), ("docs/a.md", ""), ("README.md", "")]);
        assert_eq!(check_summary(&named), []);
        let unnamed = tree(&[(SUMMARY, "[a](a.md)\n"), ("docs/a.md", ""), ("docs/b/a.md", "")]);
        assert_eq!(check_summary(&unnamed).len(), 1);
        assert_eq!(check_summary(&Tree::new()).len(), 1);
    }
}
