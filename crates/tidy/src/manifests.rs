//! Checks the Cargo manifests: every crate uses the lints of the workspace, and the workspace forbids unsafe
//! code.

use crate::Finding;
use crate::tree::Tree;

/// Checks the manifests of a workspace.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let root = tree.get("Cargo.toml").map_or("", String::as_str);
    if !section(root, "workspace.lints.rust").contains(&"unsafe_code = \"forbid\"") {
        let what = "[workspace.lints.rust] must say unsafe_code = \"forbid\"";
        found.push(Finding::for_file("Cargo.toml", what));
    }
    let manifests = tree.iter().filter(|(path, _)| path.ends_with("/Cargo.toml"));
    for (path, text) in manifests {
        if !section(text, "lints").contains(&"workspace = true") {
            found.push(Finding::for_file(path, "must have [lints] with workspace = true"));
        }
    }
    found
}

/// The lines of a section, without empty lines.
fn section<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("[{name}]");
    text.lines()
        .map(str::trim)
        .skip_while(|line| *line != head)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(root: &str, member: &str) -> Vec<Finding> {
        let tree = [("Cargo.toml", root), ("crates/a/Cargo.toml", member)];
        findings(&tree.map(|(path, text)| (path.to_owned(), text.to_owned())).into())
    }

    const ROOT: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
    const MEMBER: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";

    #[test]
    fn a_crate_without_the_workspace_lints_is_found() {
        assert_eq!(workspace(ROOT, MEMBER), []);
        assert_eq!(workspace(ROOT, "[package]\nname = \"a\"\n").len(), 1);
        assert_eq!(
            workspace(ROOT, "[lints]\n[dependencies]\nworkspace = true\n").len(),
            1
        );
    }

    #[test]
    fn a_workspace_that_does_not_forbid_unsafe_code_is_found() {
        assert_eq!(
            workspace("[workspace.lints.rust]\nunsafe_code = \"warn\"\n", MEMBER).len(),
            1
        );
        assert_eq!(workspace("[x]\nunsafe_code = \"forbid\"\n", MEMBER).len(), 1);
    }
}
