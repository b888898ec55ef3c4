//! Every change this crate makes to a disk: directories set aside, restored ones put in place, and the identity written.
//! Data are never deleted, but for those that a restore made and nobody uses, and those that it set aside for a time that
//! is over.
//!
//! Each change is a row of steps, and a process may be killed between any two of them. What is on the disk then is
//! judged as before the change or as after it, never as something that starts by mistake: old data is out of the way,
//! and that is on the disk, before the identity says that the disk may run.

mod restore;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use etcd_operator_api::contract::{self, Document, Identity};
use jiff::Timestamp;

use crate::disk::trouble;
use crate::fingerprint::{self, Surroundings};
use crate::permit::Grant;
use crate::volume::Volume;

/// One operation on the file system. A change of the disk is a row of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A directory is made.
    MakeDirectory(PathBuf),
    /// A name in a directory is changed.
    Rename(PathBuf, PathBuf),
    /// A file is made and filled.
    Write(PathBuf),
    /// A file or directory is brought to the disk.
    Sync(PathBuf),
    /// A file or directory is deleted, with all that is in it.
    Remove(PathBuf),
}

/// Why a change of the disk failed, perhaps after some of its steps.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct NotKept {
    words: String,
    kind: ErrorKind,
}

impl From<String> for NotKept {
    fn from(words: String) -> Self {
        let kind = ErrorKind::Other;
        Self { words, kind }
    }
}

impl NotKept {
    /// Whether the only cause is that the volume is full or over its quota.
    pub fn is_for_lack_of_room(&self) -> bool {
        matches!(self.kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

/// Changes a disk, step by step.
pub struct Keeper<'a> {
    volume: &'a Volume,
    before: &'a mut dyn FnMut(&Step) -> io::Result<()>,
}

impl std::fmt::Debug for Keeper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper")
            .field("volume", self.volume)
            .finish_non_exhaustive()
    }
}

impl<'a> Keeper<'a> {
    /// Changes this volume. `before` is called before each step. If it fails, that step and the rest of the change are
    /// not done, and the change fails; the next change calls it again.
    pub fn new(volume: &'a Volume, before: &'a mut dyn FnMut(&Step) -> io::Result<()>) -> Self {
        Self { volume, before }
    }

    /// Does to the disk what a permit leads to, right before etcd starts: sets data aside, puts a restored directory in
    /// their place, and only then writes the identity.
    pub fn commit(
        &mut self,
        grant: &Grant,
        surroundings: &Surroundings,
        now: Timestamp,
    ) -> Result<(), NotKept> {
        self.settle()?;
        let root = Step::Sync(self.volume.root().to_owned());
        if let Some(name) = &grant.set_aside {
            self.step(&Step::Rename(self.volume.data(), self.volume.kept(name)))?;
            self.step(&root)?;
            if let Some(keeps) = &grant.keeps {
                self.note_kept(name, keeps, now)?;
            }
        }
        if let Some(name) = &grant.put {
            self.step(&Step::Rename(self.volume.restored(name), self.volume.data()))?;
            self.step(&root)?;
        }
        // Only now there is the directory by which the volume is known, too.
        let seen = fingerprint::of(self.volume, surroundings);
        let mut identity = grant.identity.clone();
        identity.fingerprint = identity.fingerprint.with_new_of(&seen);
        self.write(&identity)?;
        if grant.keeps.is_some() {
            // The mark has done its part; were it left, the next whole start would remove it.
            self.remove(&[self.volume.prepared()], &self.volume.own())?;
        }
        // Nobody restores from it any more, and in memory it would count against the member's.
        self.clear_download()
    }

    /// Writes the identity: wholly, or not at all.
    pub fn write(&mut self, identity: &Identity) -> Result<(), NotKept> {
        self.document(self.volume.new_identity(), self.volume.identity(), identity)
    }

    /// Writes a document: wholly, or not at all.
    fn document(&mut self, new: PathBuf, last: PathBuf, document: &impl Document) -> Result<(), NotKept> {
        let bytes = contract::write(document);
        self.step_with(&Step::Write(new.clone()), &bytes)?;
        self.step(&Step::Sync(new.clone()))?;
        self.step(&Step::Rename(new, last))?;
        self.step(&Step::Sync(self.volume.own()))
    }

    /// Deletes those of these paths that exist, which lie in one directory, and syncs that.
    fn remove(&mut self, paths: &[PathBuf], within: &Path) -> Result<(), NotKept> {
        let mut is_changed = false;
        for path in paths {
            if fs::symlink_metadata(path).is_ok() {
                self.step(&Step::Remove(path.clone()))?;
                is_changed = true;
            }
        }
        if is_changed {
            self.step(&Step::Sync(within.to_owned()))?;
        }
        Ok(())
    }

    /// Makes the operator's directory on the volume, if there is none yet.
    fn settle(&mut self) -> Result<(), NotKept> {
        let own = self.volume.own();
        if own.is_dir() {
            return Ok(());
        }
        self.step(&Step::MakeDirectory(own))?;
        self.step(&Step::Sync(self.volume.root().to_owned()))
    }

    fn step(&mut self, step: &Step) -> Result<(), NotKept> {
        self.step_with(step, &[])
    }

    /// Does a step, unless `before` fails. The bytes are for [`Step::Write`].
    fn step_with(&mut self, step: &Step, bytes: &[u8]) -> Result<(), NotKept> {
        let done = (self.before)(step).and_then(|()| take(step, bytes));
        done.map_err(|error| NotKept {
            words: match step {
                Step::MakeDirectory(path) => trouble("make", path, &error),
                Step::Rename(from, _) => trouble("rename", from, &error),
                Step::Write(path) => trouble("write", path, &error),
                Step::Sync(path) => trouble("sync", path, &error),
                Step::Remove(path) => trouble("remove", path, &error),
            },
            kind: error.kind(),
        })
    }
}

fn take(step: &Step, bytes: &[u8]) -> io::Result<()> {
    match step {
        Step::MakeDirectory(path) => fs::create_dir(path),
        Step::Rename(from, to) => rename(from, to),
        Step::Write(path) => File::create(path)?.write_all(bytes),
        Step::Sync(path) => File::open(path)?.sync_all(),
        Step::Remove(path) => {
            if fs::symlink_metadata(path)?.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            }
        }
    }
}

/// Renames, over nothing but a file or an empty directory: what is in a directory of that name is never lost.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if to.is_dir() && fs::read_dir(to)?.next().is_some() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}
