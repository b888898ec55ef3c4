//! Maps object names to paths below the root directory, lists the objects there, and converts I/O errors to
//! faults. Symbolic links are never followed: they may lead out of the directory.

use std::fs::{self, File, Metadata};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::backend::{Etag, ListedObject, ObjectMetadata};
use crate::error::{Class, Fault};
use crate::key::Key;

/// The directory of unfinished uploads.
pub(super) const UPLOADS: &str = ".etcd-operator-uploads";

/// The root directory of a store.
#[derive(Debug)]
pub(super) struct RootDirectory(PathBuf);

impl RootDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path of the root directory; an error if it does not exist. The store never creates it, so as not to write where a volume is
    /// not mounted. An empty mount point is not detected.
    pub(super) fn directory(&self) -> Result<&Path, Fault> {
        match fs::metadata(&self.0) {
            Ok(found) if found.is_dir() => Ok(&self.0),
            Ok(_) => Err(Fault::new(Class::NoBucket, "it is not a directory")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Fault::new(Class::NoBucket, "the directory does not exist"))
            }
            Err(error) => Err(io_fault(&error)),
        }
    }

    /// The path of an object, whether it exists or not.
    pub(super) fn object_path(&self, key: &Key) -> Result<PathBuf, Fault> {
        let mut path = self.directory()?.to_path_buf();
        if key.as_str().split('/').next() == Some(UPLOADS) {
            let detail = format!("{UPLOADS} is reserved for unfinished uploads");
            return Err(Fault::new(Class::Unsupported, detail));
        }
        for part in key.as_str().split('/') {
            path.push(part);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                let detail = format!("{part} is a symbolic link; symbolic links are not followed");
                return Err(Fault::new(Class::Forbidden, detail));
            }
        }
        Ok(path)
    }

    /// The directory of unfinished uploads. It is created if it does not exist.
    pub(super) fn uploads_directory(&self) -> Result<PathBuf, Fault> {
        let path = self.directory()?.join(UPLOADS);
        match fs::create_dir(&path) {
            Ok(()) => sync_parent(&path)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_fault(&error)),
        }
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            let detail = format!("{UPLOADS} is a symbolic link; symbolic links are not followed");
            return Err(Fault::new(Class::Forbidden, detail));
        }
        Ok(path)
    }

    /// All objects whose names start with `prefix`.
    pub(super) fn entries(&self, prefix: &str) -> Result<Vec<ListedObject>, Fault> {
        let root = self.directory()?;
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        if folder.split('/').any(|part| part == ".." || part == ".") {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let listed = match fs::read_dir(root.join(&folder)) {
                Ok(listed) => listed,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(error) => return Err(io_fault(&error)),
            };
            for found in listed {
                let found = found.map_err(|error| io_fault(&error))?;
                let Ok(name) = found.file_name().into_string() else {
                    continue;
                };
                let name = if folder.is_empty() {
                    name
                } else {
                    format!("{folder}/{name}")
                };
                let Ok(metadata) = fs::symlink_metadata(found.path()) else {
                    continue;
                };
                if metadata.is_dir() && name != UPLOADS {
                    // Descends only into directories on the way to the prefix, or below it.
                    if name.starts_with(prefix) || prefix.starts_with(&format!("{name}/")) {
                        folders.push(name);
                    }
                } else if metadata.is_file() && name.starts_with(prefix) {
                    entries.push(ListedObject {
                        name,
                        size: metadata.len(),
                        modified: modified_at(&metadata),
                    });
                }
            }
        }
        Ok(entries)
    }
}

/// The metadata of the file at `path`. Only regular files are objects.
pub(super) fn metadata_at(path: &Path) -> Result<ObjectMetadata, Fault> {
    object_metadata(&fs::symlink_metadata(path).map_err(|error| io_fault(&error))?)
}

pub(super) fn object_metadata(found: &Metadata) -> Result<ObjectMetadata, Fault> {
    if !found.is_file() {
        return Err(Fault::new(Class::NotFound, "it is not a regular file"));
    }
    let etag = format!(
        "{:x}-{:x}-{:x}.{:x}",
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec()
    );
    Ok(ObjectMetadata {
        size: found.len(),
        etag: Etag(etag),
        mark: None,
        modified: modified_at(found),
    })
}

pub(super) fn modified_at(found: &Metadata) -> Option<Timestamp> {
    found
        .modified()
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok())
}

/// Syncs the parent directory, so that a created or renamed file survives a power failure.
pub(super) fn sync_parent(path: &Path) -> Result<(), Fault> {
    let parent = path.parent().unwrap_or(path);
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io_fault(&error))
}

/// Creates the directories above `path` and syncs each into its parent.
pub(super) fn make_parents(path: &Path) -> Result<(), Fault> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    if parent.is_dir() {
        return Ok(());
    }
    make_parents(parent)?;
    match fs::create_dir(parent) {
        Ok(()) => sync_parent(parent),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_fault(&error)),
    }
}

/// Converts an I/O error to a fault.
pub(super) fn io_fault(error: &Error) -> Fault {
    let class = match error.kind() {
        ErrorKind::NotFound => Class::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Class::Forbidden,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Class::Full,
        ErrorKind::AlreadyExists => Class::Exists,
        ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput
        | ErrorKind::DirectoryNotEmpty => Class::Unsupported,
        _ => Class::Transient,
    };
    Fault::new(class, error.to_string())
}
