//! The repository on disk: reading what lies in the folders of generated files, and writing them.

use std::fs;
use std::io;
use std::path::Path;

use crate::stale::{Difference, Trouble};
use crate::{FOLDERS, Files};

/// The root of the repository this was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders below the root")
}

/// Everything in the folders of generated files. A file that is no text counts as empty, so as stale or surplus.
pub fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for folder in FOLDERS {
        read_folder(root, Path::new(folder), &mut files)?;
    }
    Ok(files)
}

fn read_folder(root: &Path, folder: &Path, files: &mut Files) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_folder(root, &path, files)?;
        } else {
            let bytes = fs::read(entry.path())?;
            files.insert(path, String::from_utf8(bytes).unwrap_or_default());
        }
    }
    Ok(())
}

/// Makes the files on disk what they should be; what nothing makes any more is removed.
pub fn write(root: &Path, wanted: &Files, differences: &[Difference]) -> io::Result<()> {
    for Difference { path, trouble } in differences {
        let place = root.join(path);
        match (trouble, wanted.get(path)) {
            (Trouble::Missing | Trouble::Stale, Some(text)) => {
                if let Some(folder) = place.parent() {
                    fs::create_dir_all(folder)?;
                }
                fs::write(place, text)?;
            }
            _ => fs::remove_file(place)?,
        }
    }
    Ok(())
}
