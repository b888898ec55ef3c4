//! Checks that the generated files in the repository equal their sources.

use std::fs;
use std::path::PathBuf;

use etcd_operator_gen::{diff, files, tree};

/// I-generated
#[test]
fn generated_files_equal_their_sources() {
    let found = tree::read(tree::root()).expect("the repository can be read");
    let lines: Vec<_> = diff::differences(&files(), &found)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines.is_empty(),
        "{}\nupdate with: cargo xtask gen",
        lines.join("\n")
    );
}

/// A temporary copy of the generated files.
struct GeneratedCopy(PathBuf);

impl GeneratedCopy {
    fn make(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let copy = Self(root);
        copy.update();
        copy
    }

    fn update(&self) {
        let wanted = files();
        tree::write(&self.0, &wanted, &self.differences()).expect("written");
    }

    fn differences(&self) -> Vec<diff::Difference> {
        diff::differences(&files(), &tree::read(&self.0).expect("read"))
    }

    fn lines(&self) -> Vec<String> {
        self.differences().iter().map(ToString::to_string).collect()
    }
}

impl Drop for GeneratedCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn changed_removed_and_added_files_are_found_and_updated() {
    let copy = GeneratedCopy::make("generated");
    assert_eq!(copy.lines(), [""; 0]);

    let page = copy.0.join("docs/reference/rbac.md");
    let text = fs::read_to_string(&page).expect("the page");
    fs::write(&page, text.replace("watch", "look")).expect("changed");
    fs::remove_file(copy.0.join("config/crd/kustomization.yaml")).expect("removed");
    fs::write(copy.0.join("config/crd/old.yaml"), "kind: Old\n").expect("added");
    assert_eq!(
        copy.lines(),
        [
            "missing config/crd/kustomization.yaml",
            "surplus config/crd/old.yaml",
            "stale docs/reference/rbac.md"
        ]
    );

    copy.update();
    assert_eq!(copy.lines(), [""; 0]);
}
