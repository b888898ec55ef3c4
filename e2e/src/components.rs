//! Which binaries the bed is made of, and where they come from: one table, a row for each.
//!
//! They are built from Go modules pinned by a `go.mod` and `go.sum` under `e2e/tools`, into a cache outside the
//! clone. Versions stand in those files only, never here.

mod build;
mod go;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Binaries that are built by one call of Go and cached as one entry.
#[derive(Debug)]
pub struct ComponentSet {
    /// What people call it, and the beginning of the cache entry's name.
    pub name: &'static str,
    /// Directory of the tools module under `e2e/tools`.
    pub tools: &'static str,
    /// The required Go module whose version is the version of the set.
    pub module: &'static str,
    /// Variables' packages that are stamped with that version, or clients are told v0.0.0.
    pub stamped: &'static [&'static str],
    /// What is built.
    pub binaries: &'static [Binary],
}

/// One row: a binary and the Go package it is built from.
#[derive(Debug)]
pub struct Binary {
    /// Name of the executable.
    pub name: &'static str,
    /// Go package with its `main`.
    pub package: &'static str,
}

/// Everything the bed can build, in the order of need.
pub const SETS: &[ComponentSet] = &[
    ComponentSet {
        name: "etcd-3.6",
        tools: "etcd-3.6",
        module: "go.etcd.io/etcd/server/v3",
        stamped: &[],
        binaries: &[
            Binary {
                name: "etcd",
                package: "go.etcd.io/etcd/server/v3",
            },
            Binary {
                name: "etcdctl",
                package: "go.etcd.io/etcd/etcdctl/v3",
            },
            Binary {
                name: "etcdutl",
                package: "go.etcd.io/etcd/etcdutl/v3",
            },
        ],
    },
    ComponentSet {
        name: "kubernetes",
        tools: "kubernetes",
        module: "k8s.io/kubernetes",
        stamped: &["k8s.io/component-base/version"],
        binaries: &[
            Binary {
                name: "kube-apiserver",
                package: "k8s.io/kubernetes/cmd/kube-apiserver",
            },
            Binary {
                name: "kubectl",
                package: "k8s.io/kubernetes/cmd/kubectl",
            },
        ],
    },
];

/// What a directory named by `KUBEBUILDER_ASSETS` holds by convention; such binaries are used as they are.
const ASSETS: &[&str] = &["kube-apiserver", "etcd", "kubectl"];

/// A binary of the control plane: from `KUBEBUILDER_ASSETS` where that holds it, else from the cache, built first
/// if it has to be.
pub async fn find(binary: &str) -> Result<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    if let Some(path) = in_assets(assets.as_deref(), binary) {
        return Ok(path);
    }
    let Some(set) = SETS
        .iter()
        .find(|set| set.binaries.iter().any(|row| row.name == binary))
    else {
        bail!("no component of the bed is named {binary}");
    };
    Ok(build::ensure(set, &[]).await?.join(binary))
}

/// Builds whatever is not in the cache yet.
pub async fn build_all() -> Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for (index, set) in SETS.iter().enumerate() {
        directories.push(build::ensure(set, &SETS[index + 1..]).await?);
    }
    Ok(directories)
}

impl ComponentSet {
    /// Directory with its `go.mod` and `go.sum`.
    fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tools")
            .join(self.tools)
    }

    /// The version its `go.mod` pins, with the leading `v`.
    pub fn version(&self) -> Result<String> {
        let path = self.source().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        required_version(&text, self.module)
            .with_context(|| format!("{} does not require {}", path.display(), self.module))
    }

    fn binary_names(&self) -> String {
        self.binaries
            .iter()
            .map(|binary| binary.name)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn in_assets(assets: Option<&Path>, binary: &str) -> Option<PathBuf> {
    let path = assets.filter(|_| ASSETS.contains(&binary))?.join(binary);
    path.is_file().then_some(path)
}

/// Reads both forms, `require M V` and a line within `require ( … )`.
fn required_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .split_ascii_whitespace()
            .skip_while(|word| *word == "require");
        (words.next() == Some(module))
            .then(|| words.next().map(str::to_owned))
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_finds_its_version_and_every_row_is_a_tool_of_its_module() {
        for set in SETS {
            assert!(set.version().unwrap().starts_with('v'), "{}", set.name);
            let go_mod = fs::read_to_string(set.source().join("go.mod")).unwrap();
            for row in set.binaries {
                assert!(
                    go_mod.lines().any(|line| line.trim() == row.package),
                    "{} is not listed under `tool` in e2e/tools/{}/go.mod",
                    row.package,
                    set.tools
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
            required_version("require (\n\ta.b/c v1.2.3 // indirect\n)\n", "a.b/c").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(required_version("tool (\n\ta.b/c/d\n)\n", "a.b/c"), None);
    }

    #[test]
    fn assets_are_used_only_for_what_they_really_hold() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        bed.write("kubectl", "").unwrap();
        bed.write("etcdctl", "").unwrap();
        assert_eq!(
            in_assets(Some(bed.path()), "kubectl"),
            Some(bed.path().join("kubectl"))
        );
        assert_eq!(in_assets(Some(bed.path()), "kube-apiserver"), None);
        assert_eq!(in_assets(Some(bed.path()), "etcdctl"), None);
        assert_eq!(in_assets(None, "kubectl"), None);
    }
}
