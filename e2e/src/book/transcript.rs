//! Pages that show what their commands print. Below a block of shell may stand a block `text printed`: what stands in it was
//! printed by a run, and the next one that is asked to writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::FENCE;

/// How a block begins that shows what the one above it prints.
const PRINTED: &str = "```text printed";

/// The page of this path and text, with what a desk said in the place of what it showed before.
pub fn told(path: &str, text: &str, said: &str) -> Result<String> {
    let mut printed: BTreeMap<&str, String> = BTreeMap::new();
    let mut place = "";
    for line in said.lines() {
        if let Some(begun) = line.strip_prefix("### ") {
            place = begun;
        } else {
            let lines = printed.entry(place).or_default();
            writeln!(lines, "{}", line.trim_end())?;
        }
    }
    let mut page = String::new();
    let mut shell = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        writeln!(page, "{line}")?;
        if line.starts_with("```sh") {
            shell = Some(format!("{path}:{}", number + 2));
        } else if line == PRINTED {
            let shell = shell.take();
            let now = shell.and_then(|place| printed.remove(place.as_str()));
            ensure!(now.is_some(), "{path}:{}: nothing was printed", number + 1);
            page.push_str(now.unwrap_or_default().trim_end());
            page.push('\n');
            for (_, line) in lines.by_ref() {
                if line == FENCE {
                    page.push_str(FENCE);
                    page.push('\n');
                    break;
                }
            }
        }
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_what_was_printed_last_and_is_otherwise_as_it_was() {
        let page = "Words.\n\n```sh\nls\n```\n\nMore.\n\n```text printed\nold\nolder\n```\n\n```sh\ncat\n```\n\nEnd.\n";
        let said = "### page.md:4\none  \ntwo\n### page.md:14\nthree\n";
        let told = told("page.md", page, said).unwrap();
        assert_eq!(told, page.replace("old\nolder", "one\ntwo"));
    }

    #[test]
    fn a_place_without_words_is_told() {
        let page = "```sh\nls\n```\n```text printed\n```\n";
        assert!(told("page.md", page, "### page.md:9\nwords\n").is_err());
    }
}
