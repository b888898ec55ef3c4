//! Reads and writes the directories of generated files.

use std::fs;
use std::io;
use std::path::Path;

use crate::diff::{Difference, DifferenceKind};
use crate::{DIRECTORIES, FILES, Files};

/// The root of the repository that this crate was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two directories below the root")
}

/// Reads all files in the directories of generated files, and the generated files elsewhere. A file that is not text counts as empty, and so as
/// stale or surplus.
pub fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for directory in DIRECTORIES {
        read_directory(root, Path::new(directory), &mut files)?;
    }
    for file in FILES {
        match fs::read(root.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            bytes => {
                let text = String::from_utf8(bytes?).unwrap_or_default();
                files.insert(file.into(), text);
            }
        }
    }
    Ok(files)
}

fn read_directory(root: &Path, directory: &Path, files: &mut Files) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_directory(root, &path, files)?;
        } else {
            let bytes = fs::read(entry.path())?;
            files.insert(path, String::from_utf8(bytes).unwrap_or_default());
        }
    }
    Ok(())
}

/// Writes missing and stale files, and deletes surplus ones.
pub fn write(root: &Path, expected: &Files, differences: &[Difference]) -> io::Result<()> {
    for Difference { path, kind } in differences {
        let target = root.join(path);
        match (kind, expected.get(path)) {
            (DifferenceKind::Missing | DifferenceKind::Stale, Some(text)) => {
                if let Some(directory) = target.parent() {
                    fs::create_dir_all(directory)?;
                }
                fs::write(target, text)?;
            }
            _ => fs::remove_file(target)?,
        }
    }
    Ok(())
}
