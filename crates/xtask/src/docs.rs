//! `cargo xtask docs`: the pages as one site with search, built by mdbook, and checked for links that lead to nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tool::Tool;
use crate::{Failure, no_arguments, places, run};

const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    features: &["--no-default-features", "--features", "search"],
};
/// Where the site is built, below the root of the repository.
const OUTPUT: &str = "target/docs";
/// Files and directories that pages link to beside one another, and the pages outside `docs`.
const COPIED: [&str; 12] = [
    ".ci/floor",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "charts/etcd-operator",
    "config/samples",
    "docs",
    "e2e",
    "fuzz/README.md",
];
/// Of directories, only what a reader may open.
const OPENED: [&str; 7] = ["md", "rs", "svg", "toml", "txt", "yaml", "go"];

/// `cargo xtask docs`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    no_arguments(arguments)?;
    let mdbook = MDBOOK.install(run::plainly)?;
    let output = places::root().join(OUTPUT);
    if output.exists() {
        fs::remove_dir_all(&output)
            .map_err(|error| format!("cannot remove {}: {error}", output.display()))?;
    }
    let source = output.join("src");
    for path in COPIED {
        copy(&places::root().join(path), &source.join(path))?;
    }
    copy(&source.join("docs/book.toml"), &output.join("book.toml"))?;
    let summary = read(&source.join("docs/SUMMARY.md"))?;
    write(&source.join("SUMMARY.md"), from_root(&summary).as_bytes())?;
    run::plainly(run::program(&mdbook, ["build".as_ref(), output.as_os_str()]))?;
    let site = output.join("site");
    let dead = dead_links(&site)?;
    if !dead.is_empty() {
        return Err(Failure::Failed(format!(
            "links lead to nothing:\n  {}",
            dead.join("\n  ")
        )));
    }
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// The summary with links as they are from the root of the repository, and not from `docs`.
fn from_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

/// Copies a file or a directory. A page README.md becomes index.md, as mdbook names it, with all links to it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if !from.is_dir() {
        if from.extension().is_none_or(|end| end != "md") {
            return write(to, &bytes(from)?);
        }
        let page = read(from)?
            .replace("README.md)", "index.md)")
            .replace("README.md#", "index.md#");
        let is_readme = to.ends_with("README.md");
        let to = if is_readme {
            to.with_file_name("index.md")
        } else {
            to.to_owned()
        };
        return write(&to, page.as_bytes());
    }
    for path in entries(from)? {
        let is_opened = path
            .extension()
            .is_some_and(|end| OPENED.iter().any(|opened| end == *opened));
        let is_built = path.ends_with("target");
        if let Some(name) = path.file_name()
            && (is_opened || path.is_dir() && !is_built)
        {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// `PAGE: LINK` for each relative link of a page of the site that leads to no file.
fn dead_links(site: &Path) -> Result<Vec<String>, String> {
    let mut dead = Vec::new();
    let mut directories = vec![site.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in entries(&directory)? {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                let page = read(&path)?;
                let gone = links(&page).filter(|link| !leads_somewhere(&directory, link));
                dead.extend(gone.map(|link| format!("{}: {link}", path.display())));
            }
        }
    }
    dead.sort();
    dead.dedup();
    Ok(dead)
}

/// The targets of a page's links, without anchors.
fn links(html: &str) -> impl Iterator<Item = &str> {
    html.split("<a ")
        .skip(1)
        .filter_map(|rest| rest.split('>').next()?.split("href=\"").nth(1)?.split('"').next())
        .filter(|link| !link.contains("://"))
        .map(|link| link.split('#').next().unwrap_or(link))
}

fn leads_somewhere(directory: &Path, link: &str) -> bool {
    link.is_empty() || directory.join(link).exists()
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    fs::write(path, content).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_pages_from_the_root() {
        assert_eq!(
            from_root("[a](../A.md)\n- [b](how-to/b.md)\n"),
            "[a](A.md)\n- [b](docs/how-to/b.md)\n"
        );
    }

    #[test]
    fn links_that_lead_to_nothing_are_found() {
        let html = "<a href=\"src/deny.rs#x\">a</a> <a class=\"b\" href=\"gone.html\">b</a> <a href=\"https://c.d/\">c</a> \
                    <a href=\"#here\">d</a> <a id=\"e\">e</a>";
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dead: Vec<&str> = links(html).filter(|link| !leads_somewhere(here, link)).collect();
        assert_eq!(dead, ["gone.html"]);
    }

    #[test]
    fn what_is_copied_exists() {
        for path in COPIED {
            assert!(places::root().join(path).exists(), "{path}");
        }
    }
}
