//! The repository as text: the only module here that touches a disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Text files by their path from the root, with `/` between its parts.
pub type Tree = BTreeMap<String, String>;

/// Where no source is.
const LEFT_OUT: [&str; 3] = [".git", "target", ".cache"];

/// The root of the repository this was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
}

/// Every text file of the repository.
pub fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    read_folder(root, "", &mut tree)?;
    Ok(tree)
}

fn read_folder(folder: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // In a second work tree `.git` is a file that names a folder of this machine.
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), tree)?;
        } else if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
            tree.insert(path, text);
        }
    }
    Ok(())
}
