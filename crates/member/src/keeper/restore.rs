//! What a restore leaves on a disk, and what becomes of it: a download, a directory beside the data, old data that are
//! kept for a while. Each mark is written after what it speaks of, and removed before it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use etcd_operator_api::contract::{self, Fetched, Kept, KeptDirectory, Prepared, VERSION};
use jiff::{SignedDuration, Timestamp};

use super::{Keeper, NotKept, Step};
use crate::disk::trouble;
use crate::permit::SetAside;
use crate::volume::{KEPT, RESTORED};

impl Keeper<'_> {
    /// Records until when a directory is kept that was just set aside. If the process is killed before, it is kept for
    /// good.
    pub(super) fn note_kept(&mut self, name: &str, keeps: &SetAside, now: Timestamp) -> Result<(), NotKept> {
        let mut kept = self.kept()?;
        let seconds = i64::try_from(keeps.seconds).unwrap_or(i64::MAX);
        let until = now.checked_add(SignedDuration::from_secs(seconds));
        kept.directories.push(KeptDirectory {
            directory: name.to_owned(),
            restore_uid: keeps.restore_uid.clone(),
            until: until.unwrap_or(Timestamp::MAX),
        });
        self.write_kept(&kept)
    }

    /// Marks a download as complete. The snapshot is synced before, unless the mark counts only until the node reboots.
    pub fn mark_fetched(&mut self, fetched: &Fetched) -> Result<(), NotKept> {
        self.settle()?;
        if fetched.boot.is_none() {
            self.step(&Step::Sync(self.volume.snapshot()))?;
        }
        self.step(&Step::Sync(self.volume.download()))?;
        self.step(&Step::Sync(self.volume.root().to_owned()))?;
        self.document(self.volume.new_document(), self.volume.fetched(), fetched)
    }

    /// Removes all directories that were restored beside the data, and first the mark that one is complete.
    pub fn clear_restored(&mut self) -> Result<(), NotKept> {
        self.remove(&[self.volume.prepared()], &self.volume.own())?;
        let directories = self.named(RESTORED)?;
        self.remove(&directories, self.volume.root())
    }

    /// Syncs all of a restored directory, then marks it as complete, and then removes the download.
    pub fn mark_prepared(&mut self, prepared: &Prepared) -> Result<(), NotKept> {
        self.settle()?;
        self.sync_all(&self.volume.restored(&prepared.directory))?;
        self.step(&Step::Sync(self.volume.root().to_owned()))?;
        self.document(self.volume.new_document(), self.volume.prepared(), prepared)?;
        self.clear_download()
    }

    /// Removes a download, complete or not, and first its mark.
    pub fn clear_download(&mut self) -> Result<(), NotKept> {
        self.remove(&[self.volume.fetched()], &self.volume.own())?;
        self.remove(&[self.volume.download()], self.volume.root())
    }

    /// Removes what restores left on a disk that starts by itself: restored directories, downloads, and data that were
    /// set aside and whose time is over.
    pub fn tidy(&mut self, now: Timestamp) -> Result<(), NotKept> {
        self.clear_restored()?;
        self.clear_download()?;
        self.tidy_kept(now).map(|_| ())
    }

    /// Removes data that were set aside and whose time is over. Returns until when the next of them are kept, or `None`
    /// if no others are kept for a time.
    pub fn tidy_kept(&mut self, now: Timestamp) -> Result<Option<Timestamp>, NotKept> {
        let kept = self.kept()?;
        let is_there = |kept: &KeptDirectory| self.volume.kept(&kept.directory).is_dir();
        let (stay, go): (Vec<_>, Vec<_>) = kept
            .directories
            .into_iter()
            .partition(|kept| kept.until > now && is_there(kept));
        let next = stay.iter().map(|kept| kept.until).min();
        if go.is_empty() {
            return Ok(next);
        }
        let over: Vec<PathBuf> = go
            .iter()
            .filter(|kept| is_plain(&kept.directory))
            .map(|kept| self.volume.kept(&kept.directory))
            .collect();
        // What is in them goes first, as a full volume takes no list before; then the list, and only then the directories:
        // an entry that outlived its directory would be about the next one of that name.
        // What a link leads to is nobody's here.
        let is_own = |path: &&PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        for directory in over.iter().filter(is_own) {
            let inside = entries(directory)?;
            self.remove(&inside, directory)?;
        }
        self.write_kept(&Kept {
            version: VERSION,
            directories: stay,
        })?;
        self.remove(&over, self.volume.root())?;
        Ok(next)
    }

    fn write_kept(&mut self, kept: &Kept) -> Result<(), NotKept> {
        self.document(self.volume.new_document(), self.volume.kept_list(), kept)
    }

    /// The list of what is kept for a time; empty if there is no file. One that cannot be parsed is an error: nothing
    /// is deleted on a guess.
    fn kept(&self) -> Result<Kept, NotKept> {
        let path = self.volume.kept_list();
        let none = Kept {
            version: VERSION,
            directories: Vec::new(),
        };
        match fs::read(&path) {
            Ok(bytes) => {
                contract::read(&bytes).map_err(|error| format!("{}: {error}", path.display()).into())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(none),
            Err(error) => Err(trouble("read", &path, &error).into()),
        }
    }

    /// What is in the root of the volume under names with this prefix.
    fn named(&self, prefix: &str) -> Result<Vec<PathBuf>, NotKept> {
        let root = self.volume.root();
        let failed = |error: std::io::Error| NotKept::from(trouble("list", root, &error));
        let mut found = Vec::new();
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    /// Brings a directory to the disk, from its leaves on.
    fn sync_all(&mut self, directory: &Path) -> Result<(), NotKept> {
        for path in entries(directory)? {
            if path.is_dir() {
                self.sync_all(&path)?;
            } else {
                self.step(&Step::Sync(path))?;
            }
        }
        self.step(&Step::Sync(directory.to_owned()))
    }
}

/// What is in a directory, in order.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, NotKept> {
    let failed = |error: std::io::Error| NotKept::from(trouble("list", directory, &error));
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    Ok(entries)
}

/// Whether a name is one that this crate gives to data that it sets aside, and so leads to no other directory.
fn is_plain(name: &str) -> bool {
    name.starts_with(KEPT) && !name.contains('/')
}
