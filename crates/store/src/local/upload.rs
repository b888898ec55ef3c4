//! Uploads to a local directory. Each upload has its own directory with the object name and the data. When
//! all parts are written, the data is synced and renamed to its destination.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, RenameFlags};

use super::paths::{self, RootDirectory, io_fault};
use crate::backend::{Part, PendingUpload, UnfinishedUpload, UploadId, UploadToken};
use crate::error::{Class, Fault};
use crate::key::Key;

const NAME: &str = "name";
const DATA: &str = "data";

pub(super) fn begin(root: &RootDirectory, key: &Key, mark: &UploadToken) -> Result<UploadId, Fault> {
    // Reported before gigabytes are written.
    let object = root.object_path(key)?;
    if object.is_dir() {
        return Err(Fault::new(
            Class::Unsupported,
            "a directory with this name exists",
        ));
    }
    let folder = root.uploads_directory()?.join(&mark.0);
    let made = fs::create_dir(&folder).and_then(|()| {
        File::create_new(folder.join(DATA))?;
        fs::write(folder.join(NAME), key.as_str())
    });
    match made {
        Ok(()) => Ok(UploadId(mark.0.clone())),
        // The token is unique per upload, so an earlier attempt of this call created the directory.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(UploadId(mark.0.clone())),
        Err(error) => {
            let _ = fs::remove_dir_all(&folder);
            Err(io_fault(&error))
        }
    }
}

pub(super) fn write_part(
    root: &RootDirectory,
    target: &PendingUpload,
    number: u32,
    body: &[u8],
) -> Result<Part, Fault> {
    let data = upload_directory(root, target)?.join(DATA);
    let file = OpenOptions::new()
        .write(true)
        .open(&data)
        .map_err(|error| upload_fault(&error))?;
    let offset = u64::from(number.saturating_sub(1)).saturating_mul(target.part_size);
    let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
    file.write_all_at(body, offset)
        .and_then(|()| flush_and_drop_cache(&file, offset, size))
        .map_err(|error| io_fault(&error))?;
    Ok(Part {
        number,
        tag: format!("{offset}+{size}"),
        size,
    })
}

/// Writes the data to disk and drops it from the page cache. Dirty pages count as memory of the process that
/// wrote them. They also evict the pages that etcd members on this node read.
fn flush_and_drop_cache(file: &File, offset: u64, size: u64) -> std::io::Result<()> {
    file.sync_data()?;
    if let Some(size) = NonZeroU64::new(size) {
        // A file system without a page cache may refuse.
        let _ = rustix::fs::fadvise(file, offset, Some(size), Advice::DontNeed);
    }
    Ok(())
}

pub(super) fn complete(root: &RootDirectory, target: &PendingUpload, size: u64) -> Result<(), Fault> {
    let folder = upload_directory(root, target)?;
    let data = folder.join(DATA);
    let object = root.object_path(&target.key)?;
    let file = OpenOptions::new()
        .write(true)
        .open(&data)
        .map_err(|error| upload_fault(&error))?;
    let written = file.metadata().map_err(|error| io_fault(&error))?.len();
    if written < size {
        let detail = format!("only {written} of {size} bytes are on the disk");
        return Err(Fault::new(Class::Corrupt, detail));
    }
    // A part may have been replaced by a shorter one.
    file.set_len(size)
        .and_then(|()| file.sync_all())
        .map_err(|error| io_fault(&error))?;
    paths::make_parents(&object)?;
    fs::rename(&data, &object).map_err(|error| io_fault(&error))?;
    paths::sync_parent(&object)?;
    // The object exists. If this fails, the next sweep removes the rest.
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

pub(super) fn abort(root: &RootDirectory, target: &PendingUpload) -> Result<(), Fault> {
    fs::remove_dir_all(upload_directory(root, target)?).map_err(|error| upload_fault(&error))
}

/// Writes a file whose name must not exist, completely or not at all.
pub(super) fn create(root: &RootDirectory, key: &Key, body: &[u8]) -> Result<(), Fault> {
    let object = root.object_path(key)?;
    let folder = root
        .uploads_directory()?
        .join(format!("create-{}", crate::clock::random_token()));
    fs::create_dir(&folder).map_err(|error| io_fault(&error))?;
    let linked = write_and_link(&folder, &object, key, body);
    let _ = fs::remove_dir_all(&folder);
    linked
}

fn write_and_link(folder: &Path, object: &Path, key: &Key, body: &[u8]) -> Result<(), Fault> {
    let to_fault = |error: std::io::Error| io_fault(&error);
    fs::write(folder.join(NAME), key.as_str()).map_err(to_fault)?;
    let data = folder.join(DATA);
    let mut file = File::create_new(&data).map_err(to_fault)?;
    file.write_all(body)
        .and_then(|()| file.sync_all())
        .map_err(to_fault)?;
    paths::make_parents(object)?;
    publish_if_absent(&data, object)?;
    paths::sync_parent(object)
}

/// Publishes a file under its final name unless that name exists. Uses a hard link, or a rename that replaces
/// nothing if the file system has no hard links.
fn publish_if_absent(data: &Path, object: &Path) -> Result<(), Fault> {
    let error = match fs::hard_link(data, object) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => error,
        linked => return linked.map_err(|error| io_fault(&error)),
    };
    match rename_if_free(data, object) {
        Ok(()) => Ok(()),
        Err(taken) if taken.kind() == ErrorKind::AlreadyExists => Err(io_fault(&taken)),
        Err(_) => Err(io_fault(&error)),
    }
}

fn rename_if_free(data: &Path, object: &Path) -> std::io::Result<()> {
    rustix::fs::renameat_with(CWD, data, CWD, object, RenameFlags::NOREPLACE)?;
    Ok(())
}

pub(super) fn list_unfinished(root: &RootDirectory, prefix: &str) -> Result<Vec<UnfinishedUpload>, Fault> {
    let mut all = Vec::new();
    for found in fs::read_dir(root.uploads_directory()?).map_err(|error| io_fault(&error))? {
        let found = found.map_err(|error| io_fault(&error))?;
        let name_file = found.path().join(NAME);
        // Uploads that end in the meantime are skipped.
        let (Ok(name), Ok(metadata)) = (fs::read_to_string(&name_file), fs::metadata(&name_file)) else {
            continue;
        };
        let (Ok(id), Some(began_at)) = (found.file_name().into_string(), paths::modified_at(&metadata))
        else {
            continue;
        };
        if name.starts_with(prefix) {
            all.push(UnfinishedUpload {
                name,
                id: UploadId(id),
                began_at,
            });
        }
    }
    Ok(all)
}

/// The directory of an upload. The ID is validated, so that the path cannot leave the uploads directory.
fn upload_directory(root: &RootDirectory, target: &PendingUpload) -> Result<PathBuf, Fault> {
    let id = &target.id.0;
    let is_valid = !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_valid {
        return Err(Fault::new(
            Class::NoUpload,
            "this is not an upload ID of this store",
        ));
    }
    Ok(root.uploads_directory()?.join(id))
}

fn upload_fault(error: &std::io::Error) -> Fault {
    if error.kind() == ErrorKind::NotFound {
        return Fault::new(Class::NoUpload, "its directory no longer exists");
    }
    io_fault(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hard_links_a_rename_replaces_nothing_either() {
        let folder =
            std::env::temp_dir().join(format!("etcd-operator-rename-{}", crate::clock::random_token()));
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
