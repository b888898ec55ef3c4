//! Reads the repository as text. The only module of this crate with IO.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Text files by path relative to the root, with `/` as separator.
pub type Tree = BTreeMap<String, String>;

/// Directories without sources.
const EXCLUDED: [&str; 3] = [".git", "target", ".cache"];

/// The root of the repository that this crate was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two directories below the root")
}

/// Reads every text file of the repository.
pub fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    read_directory(root, "", &mut tree)?;
    Ok(tree)
}

fn read_directory(directory: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // In a secondary Git worktree, `.git` is a file that contains a local path.
        if EXCLUDED.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            read_directory(&entry.path(), &format!("{path}/"), tree)?;
        } else if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
            tree.insert(path, text);
        }
    }
    Ok(())
}
