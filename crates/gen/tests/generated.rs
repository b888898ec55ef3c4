//! The files in the repository are the ones their sources make.

use std::fs;
use std::path::PathBuf;

use etcd_operator_gen::{files, stale, tree};

/// I-generated
#[test]
fn generated_files_equal_their_sources() {
    let found = tree::read(tree::root()).expect("the repository can be read");
    let lines: Vec<_> = stale::differences(&files(), &found)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines.is_empty(),
        "{}\nmend with: cargo xtask gen",
        lines.join("\n")
    );
}

/// A copy of the generated files in a folder that goes with the test.
struct Copy(PathBuf);

impl Copy {
    fn make(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let copy = Self(root);
        copy.mend();
        copy
    }

    fn mend(&self) {
        let wanted = files();
        tree::write(&self.0, &wanted, &self.differences()).expect("written");
    }

    fn differences(&self) -> Vec<stale::Difference> {
        stale::differences(&files(), &tree::read(&self.0).expect("read"))
    }

    fn lines(&self) -> Vec<String> {
        self.differences().iter().map(ToString::to_string).collect()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_changed_removed_or_added_by_hand_is_found_and_mended() {
    let copy = Copy::make("generated");
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

    copy.mend();
    assert_eq!(copy.lines(), [""; 0]);
}
