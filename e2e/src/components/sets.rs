//! What is built together, from where and how, in types; the table of all such sets is in `table`. Nothing here builds
//! anything.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Binaries that are built by one run and cached as one entry.
#[derive(Debug)]
pub struct ComponentSet {
    /// What people call it, and the beginning of the cache entry's name.
    pub name: &'static str,
    /// Where its binaries come from.
    pub source: Source,
    /// What is built.
    pub binaries: &'static [Binary],
    /// Seconds a build with empty caches takes on two cores: for telling how much is left, nothing else.
    pub cold_seconds: u64,
}

/// One row: a binary and where it is within its source.
#[derive(Debug)]
pub struct Binary {
    /// Name of the executable.
    pub name: &'static str,
    /// Go package with its `main`, or the path within a Debian or npm package.
    pub from: &'static str,
}

/// Where the binaries of a set come from.
#[derive(Debug)]
pub enum Source {
    /// A Go module pinned by `go.mod` and `go.sum` under `e2e/tools`.
    Go(GoModule),
    /// Debian packages, for what no Go module can be had of.
    Debian {
        /// The packages, unpacked and never installed.
        packages: &'static [&'static str],
        /// The upstream version they must be of.
        version: &'static str,
    },
    /// An npm package pinned by a `package-lock.json` under `e2e/tools`, in the directory of this name.
    Npm(&'static str),
}

/// How binaries come out of a tools module.
#[derive(Debug)]
pub struct GoModule {
    /// Directory of the tools module under `e2e/tools`.
    pub tools: &'static str,
    /// The required module whose version is the version of the set; none for a module of our own.
    pub module: Option<&'static str>,
    /// Variables that are told the version, or the binaries call themselves v0.0.0.
    pub stamps: &'static [Stamp],
    /// How C takes part.
    pub linkage: Linkage,
    /// Files to leave out, relative to a vendored copy of the modules; none means that nothing is vendored.
    pub without: &'static [&'static str],
}

/// A variable set by the linker.
#[derive(Debug)]
pub struct Stamp {
    /// Its package and name.
    pub variable: &'static str,
    /// What it is set to.
    pub value: Stamped,
}

/// What a stamped variable says.
#[derive(Clone, Copy, Debug)]
pub enum Stamped {
    /// The version with its leading `v`.
    Version,
    /// The first number of the version.
    Major,
    /// The second number of the version.
    Minor,
    /// A text of its own.
    Text(&'static str),
}

/// How C takes part in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Not at all.
    PureGo,
    /// Compiled in, with libseccomp, and linked statically.
    StaticC,
}

impl ComponentSet {
    /// The version it is pinned to, with the leading `v`; empty for a tool of our own.
    pub fn version(&self) -> Result<String> {
        match &self.source {
            Source::Debian { version, .. } => Ok((*version).to_owned()),
            Source::Go(module) => module.version(),
            Source::Npm(tools) => npm_version(tools),
        }
    }

    /// The names of its binaries, for people.
    pub(super) fn binary_names(&self) -> String {
        let names: Vec<&str> = self.binaries.iter().map(|binary| binary.name).collect();
        names.join(", ")
    }
}

impl GoModule {
    /// Directory with its `go.mod` and `go.sum`.
    pub(super) fn directory(&self) -> PathBuf {
        tools_directory(self.tools)
    }

    fn version(&self) -> Result<String> {
        let Some(module) = self.module else {
            return Ok(String::new());
        };
        let path = self.directory().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        required_version(&text, module)
            .with_context(|| format!("{} does not require {module}", path.display()))
    }
}

/// A directory under `e2e/tools`.
pub(super) fn tools_directory(tools: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(tools)
}

/// The version `package.json` asks for of the package that has the name of its directory.
fn npm_version(tools: &str) -> Result<String> {
    let path = tools_directory(tools).join("package.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let package: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    package["dependencies"][tools]
        .as_str()
        .map(|version| format!("v{version}"))
        .with_context(|| format!("{} does not ask for {tools}", path.display()))
}

/// Reads both forms, `require M V` and a line within `require ( … )`.
fn required_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .split_ascii_whitespace()
            .skip_while(|word| *word == "require");
        (words.next() == Some(module))
            .then(|| {
                words
                    .next()
                    .map(|version| version.trim_end_matches("+incompatible").to_owned())
            })
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::SETS;

    #[test]
    fn every_set_finds_its_version_and_every_row_is_a_tool_of_its_module() {
        for set in SETS {
            let Source::Go(module) = &set.source else {
                assert!(set.version().unwrap().starts_with('v'), "{}", set.name);
                continue;
            };
            assert_eq!(
                set.version().unwrap().starts_with('v'),
                module.module.is_some(),
                "{}",
                set.name
            );
            let go_mod = fs::read_to_string(module.directory().join("go.mod")).unwrap();
            for row in set.binaries {
                let is_tool = go_mod
                    .lines()
                    .any(|line| line.trim().trim_start_matches("tool ") == row.from);
                let is_own = module.module.is_none() && go_mod.contains(&format!("module {}\n", row.from));
                assert!(
                    is_tool || is_own,
                    "{} is not listed under `tool` in e2e/tools/{}/go.mod",
                    row.from,
                    module.tools
                );
            }
        }
    }

    #[test]
    fn the_version_is_read_from_either_form_of_require() {
        assert_eq!(
            required_version("require a.b/c v1.2.3\n", "a.b/c").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(
            required_version("require (\n\ta.b/c v1.2.3+incompatible // indirect\n)\n", "a.b/c").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(required_version("tool (\n\ta.b/c/d\n)\n", "a.b/c"), None);
    }
}
