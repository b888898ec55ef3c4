//! Every generated file of the repository, from one source each: the types of the API and the table of
//! rights.
//!
//! [`files`] is a pure function: same build, same bytes. Only [`tree`] touches a disk.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`definitions`] | the CustomResourceDefinitions, for kustomize and for the chart |
//! | [`rbac`], [`roles`] | the table of rights, and the roles that grant them |
//! | [`reference`] | the reference pages in `docs/reference` |
//! | [`overview`] | the picture of the README |
//! | [`yaml`] | how objects become text |
//! | [`stale`], [`tree`] | what differs from the repository, and reading and writing it |

pub mod definitions;
pub mod overview;
pub mod rbac;
pub mod reference;
pub mod roles;
pub mod stale;
pub mod tree;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files by their path from the root of the repository.
pub type Files = BTreeMap<PathBuf, String>;

/// Folders in which nothing but generated files may lie.
pub const FOLDERS: [&str; 6] = [
    "config/crd",
    "config/rbac",
    "charts/etcd-operator/templates/crds",
    "charts/etcd-operator/templates/rights",
    "docs/reference",
    "docs/images",
];

/// Every generated file.
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
    use super::*;

    #[test]
    fn every_generated_file_lies_in_a_folder_of_generated_files_and_says_so() {
        for (path, text) in files() {
            let folder = path.parent().expect("a folder");
            assert!(
                FOLDERS.iter().any(|known| folder.starts_with(known)),
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
    fn the_same_files_are_made_each_time() {
        assert_eq!(files(), files());
    }
}
