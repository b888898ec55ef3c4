//! Uploads into a directory: a folder of their own with the name and the data, synced and renamed into place when all
//! parts are there.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, RenameFlags};

use super::paths::{self, Root, fault};
use crate::error::{Class, Fault};
use crate::key::Key;
use crate::port::{Begun, Mark, Part, Target, UploadId};

const NAME: &str = "name";
const DATA: &str = "data";

pub(super) fn begin(root: &Root, key: &Key, mark: &Mark) -> Result<UploadId, Fault> {
    // Said now, not after gigabytes were written.
    let object = root.object(key)?;
    if object.is_dir() {
        return Err(Fault::new(Class::Unsupported, "a directory has this name"));
    }
    let folder = root.uploads()?.join(&mark.0);
    let made = fs::create_dir(&folder).and_then(|()| {
        File::create_new(folder.join(DATA))?;
        fs::write(folder.join(NAME), key.as_str())
    });
    match made {
        Ok(()) => Ok(UploadId(mark.0.clone())),
        // The mark is drawn anew for every upload, so this is our own earlier try.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(UploadId(mark.0.clone())),
        Err(error) => {
            let _ = fs::remove_dir_all(&folder);
            Err(fault(&error))
        }
    }
}

pub(super) fn part(root: &Root, target: &Target, number: u32, body: &[u8]) -> Result<Part, Fault> {
    let data = folder(root, target)?.join(DATA);
    let file = OpenOptions::new()
        .write(true)
        .open(&data)
        .map_err(|error| no_upload(&error))?;
    let offset = u64::from(number.saturating_sub(1)).saturating_mul(target.part_size);
    let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
    file.write_all_at(body, offset)
        .and_then(|()| out_of_memory(&file, offset, size))
        .map_err(|error| fault(&error))?;
    Ok(Part {
        number,
        tag: format!("{offset}+{size}"),
        size,
    })
}

/// Sends to the disk what was written, and lets go of the copy in memory. A file of gigabytes that is left to be written
/// by the kernel counts as memory of whoever wrote it, and drives from memory what the members on this node read.
fn out_of_memory(file: &File, offset: u64, size: u64) -> std::io::Result<()> {
    file.sync_data()?;
    if let Some(size) = NonZeroU64::new(size) {
        // A file system without such copies may refuse.
        let _ = rustix::fs::fadvise(file, offset, Some(size), Advice::DontNeed);
    }
    Ok(())
}

pub(super) fn complete(root: &Root, target: &Target, size: u64) -> Result<(), Fault> {
    let folder = folder(root, target)?;
    let data = folder.join(DATA);
    let object = root.object(&target.key)?;
    let file = OpenOptions::new()
        .write(true)
        .open(&data)
        .map_err(|error| no_upload(&error))?;
    let written = file.metadata().map_err(|error| fault(&error))?.len();
    if written < size {
        let said = format!("{written} of {size} bytes are on the disk");
        return Err(Fault::new(Class::Corrupt, said));
    }
    // A part may have been replaced by a shorter one.
    file.set_len(size)
        .and_then(|()| file.sync_all())
        .map_err(|error| fault(&error))?;
    paths::make_parents(&object)?;
    fs::rename(&data, &object).map_err(|error| fault(&error))?;
    paths::sync_parent(&object)?;
    // The object is there; what is left of the folder is swept later if this fails.
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

pub(super) fn abort(root: &Root, target: &Target) -> Result<(), Fault> {
    fs::remove_dir_all(folder(root, target)?).map_err(|error| no_upload(&error))
}

/// Writes a file of a name that must not be taken; whole or not at all.
pub(super) fn create(root: &Root, key: &Key, body: &[u8]) -> Result<(), Fault> {
    let object = root.object(key)?;
    let folder = root.uploads()?.join(format!("create-{}", crate::clock::token()));
    fs::create_dir(&folder).map_err(|error| fault(&error))?;
    let linked = write_and_link(&folder, &object, key, body);
    let _ = fs::remove_dir_all(&folder);
    linked
}

fn write_and_link(folder: &Path, object: &Path, key: &Key, body: &[u8]) -> Result<(), Fault> {
    let of = |error: std::io::Error| fault(&error);
    fs::write(folder.join(NAME), key.as_str()).map_err(of)?;
    let data = folder.join(DATA);
    let mut file = File::create_new(&data).map_err(of)?;
    file.write_all(body).and_then(|()| file.sync_all()).map_err(of)?;
    paths::make_parents(object)?;
    claim(&data, object)?;
    paths::sync_parent(object)
}

/// Gives a file its name unless the name is taken: as a second one, or, where the file system has no second names, by a
/// rename that replaces nothing.
fn claim(data: &Path, object: &Path) -> Result<(), Fault> {
    let error = match fs::hard_link(data, object) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => error,
        linked => return linked.map_err(|error| fault(&error)),
    };
    match rename_if_free(data, object) {
        Ok(()) => Ok(()),
        Err(taken) if taken.kind() == ErrorKind::AlreadyExists => Err(fault(&taken)),
        Err(_) => Err(fault(&error)),
    }
}

fn rename_if_free(data: &Path, object: &Path) -> std::io::Result<()> {
    rustix::fs::renameat_with(CWD, data, CWD, object, RenameFlags::NOREPLACE)?;
    Ok(())
}

pub(super) fn begun(root: &Root, prefix: &str) -> Result<Vec<Begun>, Fault> {
    let mut all = Vec::new();
    for found in fs::read_dir(root.uploads()?).map_err(|error| fault(&error))? {
        let found = found.map_err(|error| fault(&error))?;
        let name_file = found.path().join(NAME);
        // An upload that ends meanwhile is no error.
        let (Ok(name), Ok(metadata)) = (fs::read_to_string(&name_file), fs::metadata(&name_file)) else {
            continue;
        };
        let (Ok(id), Some(at)) = (found.file_name().into_string(), paths::modified(&metadata)) else {
            continue;
        };
        if name.starts_with(prefix) {
            all.push(Begun {
                name,
                id: UploadId(id),
                at,
            });
        }
    }
    Ok(all)
}

/// The folder of an upload; its name comes from a list or from us, and never leads elsewhere.
fn folder(root: &Root, target: &Target) -> Result<PathBuf, Fault> {
    let id = &target.id.0;
    let is_plain = !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_plain {
        return Err(Fault::new(Class::NoUpload, "this is no upload of ours"));
    }
    Ok(root.uploads()?.join(id))
}

fn no_upload(error: &std::io::Error) -> Fault {
    if error.kind() == ErrorKind::NotFound {
        return Fault::new(Class::NoUpload, "its folder is gone");
    }
    fault(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_have_one_name_only_a_rename_replaces_nothing_either() {
        let folder = std::env::temp_dir().join(format!("etcd-operator-rename-{}", crate::clock::token()));
        fs::create_dir(&folder).expect("a folder");
        let (first, second, object) = (folder.join("1"), folder.join("2"), folder.join("object"));
        fs::write(&first, "first").expect("written");
        fs::write(&second, "second").expect("written");
        rename_if_free(&first, &object).expect("the name is free");
        let taken = rename_if_free(&second, &object).expect_err("the name is taken");
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&object).expect("there"), "first");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
