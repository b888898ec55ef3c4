//! What the pages for users tell them to type, so that it is typed before they do. A block of shell is every fenced one
//! whose first word is `sh`; after it may stand `fails=N`, for a block of which so many commands are refused on purpose,
//! or `unplayed`, for one that scenarios do not play. A page may show what they print: see [`transcript`].

mod desk;
mod transcript;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use desk::Desk;

/// How a block of shell begins.
const FENCE: &str = "```";
/// What begins a line that is to be typed, in whatever block it stands.
const TYPED: [&str; 7] = [
    "cargo",
    "curl",
    "etcd-operator",
    "etcdctl",
    "helm",
    "just",
    "kubectl",
];
/// Of a hundred blocks of shell, how many may be unplayed.
const MOST_UNPLAYED: usize = 5;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its path in the repository.
    pub path: String,
    /// Its fenced blocks of any language, in their order.
    pub blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `PATH:LINE` of its first line.
    pub place: String,
    /// The heading under which it stands.
    pub heading: String,
    /// What it is.
    pub kind: Kind,
    /// What stands in it.
    pub text: String,
}

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To be typed into a shell.
    Shell {
        /// How many of its commands are refused on purpose.
        fails: usize,
    },
    /// To be typed into a shell, by people only.
    Unplayed,
    /// Something to read, in this language, or in none.
    Text(String),
}

impl Page {
    /// Reads one.
    pub fn read(path: &str) -> Result<Self> {
        let text =
            std::fs::read_to_string(repository().join(path)).with_context(|| format!("no page {path}"))?;
        Self::parse(path, &text)
    }

    /// Has the page show what a desk said when all of it was typed there, and names of now where it had other ones.
    pub fn shows(&self, said: &str, renamed: &[(&str, &str)]) -> Result<()> {
        let file = repository().join(&self.path);
        let text = std::fs::read_to_string(&file)?;
        let told = transcript::told(&self.path, &text, said)?;
        let now = renamed
            .iter()
            .fold(told, |text, (before, now)| text.replace(before, now));
        std::fs::write(&file, now).with_context(|| format!("cannot write {}", file.display()))
    }

    fn parse(path: &str, text: &str) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut heading = String::new();
        let mut open: Option<(Block, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            let bare = line.trim_start();
            if let Some((mut block, indent)) = open.take() {
                if bare == FENCE {
                    block.says_what_it_is()?;
                    blocks.push(block);
                    continue;
                }
                let rest = line
                    .get(indent.min(line.len() - bare.len())..)
                    .unwrap_or_default();
                block.text.push_str(rest);
                block.text.push('\n');
                open = Some((block, indent));
            } else if let Some(told) = bare.strip_prefix(FENCE) {
                let place = format!("{path}:{}", number + 2);
                let kind = Kind::parse(told).with_context(|| place.clone())?;
                let heading = heading.clone();
                let text = String::new();
                let block = Block {
                    place,
                    heading,
                    kind,
                    text,
                };
                open = Some((block, line.len() - bare.len()));
            } else if let Some(told) = line.strip_prefix('#') {
                told.trim_start_matches('#').trim().clone_into(&mut heading);
            }
        }
        ensure!(open.is_none(), "a block of {path} does not end");
        Ok(Self {
            path: path.to_owned(),
            blocks,
        })
    }

    /// What is to be typed under a heading; there must be something.
    pub fn under(&self, heading: &str) -> Result<Vec<&Block>> {
        let found: Vec<&Block> = self.shell().filter(|block| block.heading == heading).collect();
        ensure!(!found.is_empty(), "{} has no shell under {heading:?}", self.path);
        Ok(found)
    }

    /// All that is to be typed.
    pub fn shell(&self) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .filter(|block| matches!(block.kind, Kind::Shell { .. }))
    }

    /// What it shows in this language; there must be something.
    pub fn all(&self, language: &str) -> Result<Vec<&str>> {
        let wanted = Kind::Text(language.to_owned());
        let found = self.blocks.iter().filter(|block| block.kind == wanted);
        let found: Vec<&str> = found.map(|block| &*block.text).collect();
        ensure!(!found.is_empty(), "{} shows no {language}", self.path);
        Ok(found)
    }
}

impl Block {
    /// Refuses what is to be typed and does not say so: nobody would play it, nor count it among what is not played.
    fn says_what_it_is(&self) -> Result<()> {
        let typed = |line: &str| {
            let word = line.split_whitespace().next();
            word.is_some_and(|word| TYPED.contains(&word))
        };
        ensure!(
            self.kind != Kind::Text(String::new()) || !self.text.lines().any(typed),
            "{} is to be typed: begin it with {FENCE}sh",
            self.place
        );
        Ok(())
    }
}

impl Kind {
    fn parse(told: &str) -> Result<Self> {
        let mut words = told.split_whitespace();
        let language = words.next().unwrap_or_default();
        if language != "sh" {
            return Ok(Self::Text(language.to_owned()));
        }
        let kind = match words.next() {
            None => Self::Shell { fails: 0 },
            Some("unplayed") => Self::Unplayed,
            Some(word) => match word.strip_prefix("fails=").map(str::parse) {
                Some(Ok(fails)) => Self::Shell { fails },
                _ => bail!("{word:?} is neither fails=N nor unplayed"),
            },
        };
        ensure!(words.next().is_none(), "too many words after sh");
        Ok(kind)
    }
}

/// Blocks of shell on these pages that scenarios do not play. Too many of them among all are an error.
pub fn unplayed(pages: &[Page]) -> Result<Vec<&Block>> {
    let all = pages.iter().flat_map(|page| &page.blocks);
    let shell: Vec<&Block> = all.filter(|block| !matches!(block.kind, Kind::Text(_))).collect();
    let count = shell.len();
    let left: Vec<&Block> = shell
        .into_iter()
        .filter(|block| block.kind == Kind::Unplayed)
        .collect();
    let places: Vec<&str> = left.iter().map(|block| &*block.place).collect();
    ensure!(
        left.len() * 100 <= count * MOST_UNPLAYED,
        "{} of {count} blocks are not played, which is more than {MOST_UNPLAYED} %: {}",
        left.len(),
        places.join(", ")
    );
    Ok(left)
}

/// Where the repository lies.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_place_its_heading_and_what_is_said_of_it() {
        let text = "# One\n\nWords.\n\n```sh\nls\n```\n\n## Two\n\n   ```sh fails=1\n   cat <<'END'\n     deep\n   END\n   ```\n\n\
                    ```yaml\na: 1\n```\n```sh unplayed\nreboot\n```\n";
        let page = Page::parse("page.md", text).unwrap();
        let told: Vec<(&str, &str, &Kind, &str)> = page
            .blocks
            .iter()
            .map(|block| (&*block.place, &*block.heading, &block.kind, &*block.text))
            .collect();
        let wanted = [
            ("page.md:6", "One", &Kind::Shell { fails: 0 }, "ls\n"),
            (
                "page.md:12",
                "Two",
                &Kind::Shell { fails: 1 },
                "cat <<'END'\n  deep\nEND\n",
            ),
            ("page.md:18", "Two", &Kind::Text("yaml".to_owned()), "a: 1\n"),
            ("page.md:21", "Two", &Kind::Unplayed, "reboot\n"),
        ];
        assert_eq!(told, wanted);
        assert_eq!(page.under("Two").unwrap().len(), 1);
        assert!(page.under("Three").is_err());
        assert_eq!(page.all("yaml").unwrap(), ["a: 1\n"]);
        assert!(page.all("toml").is_err());
    }

    #[test]
    fn a_word_that_nobody_knows_and_a_block_without_end_are_told() {
        let error = Page::parse("page.md", "```sh quickly\nls\n```\n").unwrap_err();
        assert!(format!("{error:#}").contains("page.md:2"), "{error:#}");
        assert!(Page::parse("page.md", "```sh\nls\n").is_err());
    }

    #[test]
    fn what_is_to_be_typed_says_so() {
        let bare = |line: &str| Page::parse("page.md", &format!("```\nwords\n  {line}\n```\n"));
        for word in TYPED {
            let error = bare(&format!("{word} --version")).unwrap_err().to_string();
            assert!(error.contains("page.md:2"), "{error}");
        }
        assert!(bare("so does kubectl").is_ok());
        assert!(Page::parse("page.md", "```text\nkubectl get etcd\n```\n").is_ok());
    }

    /// The README, and the pages below `docs`.
    fn paths() -> Vec<String> {
        let mut paths = vec!["README.md".to_owned()];
        let mut folders = vec!["docs".to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(repository().join(&folder)).unwrap() {
                let path = entry.unwrap().path();
                let name = format!("{folder}/{}", path.file_name().unwrap().display());
                if path.is_dir() {
                    folders.push(name);
                } else if path.extension().is_some_and(|ending| ending == "md") {
                    paths.push(name);
                }
            }
        }
        paths.sort_unstable();
        paths
    }

    /// A page that nobody plays would tell people what nobody has tried.
    #[test]
    fn every_page_with_something_to_type_is_played_but_for_these() {
        let pages: Vec<Page> = paths().iter().map(|path| Page::read(path).unwrap()).collect();
        let played: Vec<&str> = pages
            .iter()
            .filter(|page| page.shell().next().is_some())
            .map(|page| &*page.path)
            .collect();
        assert_eq!(played, Desk::PAGES);
        let first_words: Vec<String> = unplayed(&pages)
            .unwrap()
            .iter()
            .map(|block| {
                block
                    .text
                    .split_whitespace()
                    .take(3)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        let known = [
            // What plays all this.
            "cargo xtask up",
            // What needs an engine or a registry.
            "skopeo copy docker://quay.io/coreos/etcd:v3.6.16",
            "skopeo copy --preserve-digests",
            "docker create --name",
        ];
        assert_eq!(first_words, known);
    }

    #[test]
    fn more_than_one_of_twenty_that_is_not_played_is_too_many() {
        let page = |played: usize| {
            let text =
                "```sh\nls\n```\n".repeat(played) + "```sh unplayed\nreboot\n```\n```text\nwords\n```\n";
            [Page::parse("page.md", &text).unwrap()]
        };
        assert_eq!(unplayed(&page(19)).unwrap()[0].text, "reboot\n");
        let error = unplayed(&page(18)).unwrap_err().to_string();
        assert!(
            error.contains("1 of 19") && error.contains("page.md:56"),
            "{error}"
        );
        assert!(unplayed(&[]).unwrap().is_empty());
    }

    /// A piece of one cannot be applied, and so not be tried.
    #[test]
    fn every_manifest_on_a_page_is_whole_and_applied_by_a_scenario_but_for_those_of_other_operators() {
        // Of operators that no bed has.
        let foreign = ["docs/how-to/gitops.md", "docs/how-to/monitor.md"];
        let mut shown = Vec::new();
        for path in paths() {
            let page = Page::read(&path).unwrap();
            for block in &page.blocks {
                if block.kind == Kind::Text("yaml".to_owned()) {
                    let all = ["apiVersion: ", "\nkind: ", "\nmetadata:\n  name: ", "\nspec:\n"];
                    assert!(
                        foreign.contains(&&*path) || all.iter().all(|part| block.text.contains(part)),
                        "{}",
                        block.place
                    );
                    shown.push(path.clone());
                }
            }
        }
        shown.dedup();
        let applied = [
            "docs/how-to/air-gapped.md",
            "docs/how-to/autoscale.md",
            "docs/how-to/disaster-drill.md",
            "docs/how-to/restore-elsewhere.md",
            "docs/how-to/restore-in-place.md",
            "docs/migration.md",
        ];
        let mut known = [&applied[..], &foreign].concat();
        known.sort_unstable();
        assert_eq!(shown, known);
    }
}
