//! Generates files of the repository from a single source each: the API types, the table of permissions,
//! the flags of the manager, and the values of the chart.
//!
//! [`files`] is a pure function. Only [`tree`] does IO.
//!
//! | module | content |
//! | --- | --- |
//! | [`definitions`] | the CustomResourceDefinitions, for kustomize and for the chart |
//! | [`rbac`], [`roles`] | the table of permissions, and the roles that grant them |
//! | [`reference`] | the reference pages in `docs/reference`, and the README of the chart |
//! | [`overview`] | the picture of the README |
//! | [`yaml`] | serialization of objects |
//! | [`diff`], [`tree`] | differences from the repository; reading and writing files |

pub mod definitions;
pub mod diff;
pub mod overview;
pub mod rbac;
pub mod reference;
pub mod roles;

pub mod tree;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files by path relative to the root of the repository.
pub type Files = BTreeMap<PathBuf, String>;

/// Directories that contain only generated files.
pub const DIRECTORIES: [&str; 6] = [
    "config/crd",
    "config/rbac",
    "charts/etcd-operator/templates/crds",
    "charts/etcd-operator/templates/rights",
    "docs/reference",
    "docs/images",
];

/// Generated files in other directories.
pub const FILES: [&str; 1] = ["charts/etcd-operator/README.md"];

/// All generated files.
pub fn files() -> Files {
    let mut files = Files::new();
    files.extend(definitions::files());
    files.extend(roles::files());
    files.extend(reference::files());
    files.extend(overview::files());
    files
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_generated_file_is_in_a_generated_directory_and_marked() {
        for (path, text) in files() {
            let directory = path.parent().expect("a directory");
            assert!(
                DIRECTORIES.iter().any(|known| directory.starts_with(known))
                    || FILES.iter().any(|known| path.as_path() == Path::new(known)),
                "{}",
                path.display()
            );
            let head: String = text.lines().take(3).collect();
            assert!(head.contains("cargo xtask gen"), "{}: {head}", path.display());
            assert!(
                text.ends_with('\n') && !text.ends_with("\n\n"),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn generation_is_deterministic() {
        assert_eq!(files(), files());
    }
}
