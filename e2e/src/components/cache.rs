//! The cache of what was built, outside the clone: entries appear whole, by a rename, or not at all, and no two
//! runs make the same entry at the same time. What an entry holds is not known here.

use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// The longest another run may take to make an entry: for a machine that has stalled.
pub(crate) const LIMIT: Duration = Duration::from_hours(1);

/// Entries of one name that stay: what is checked out changes back and forth, and several clones share the cache.
const KEPT: usize = 4;

/// An entry of the cache, there or not.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    directory: PathBuf,
    /// What people call it.
    what: String,
    /// That, with the key of its inputs.
    name: String,
}

impl Entry {
    /// The entry for a name and everything that goes into it.
    pub(crate) fn new(name: &str, inputs: &[&[u8]]) -> Result<Self> {
        Ok(Self::within(directory()?, name, inputs))
    }

    fn within(directory: PathBuf, name: &str, inputs: &[&[u8]]) -> Self {
        Self {
            directory,
            what: name.to_owned(),
            name: format!("{name}-{}", key(inputs)),
        }
    }

    /// Where it is once it is there.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Whether it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.path().exists()
    }

    /// Lets `make` fill an empty directory, which then becomes the entry; does nothing if it is there already.
    pub(crate) async fn fill<F, Fut>(&self, make: F) -> Result<PathBuf>
    where
        F: FnOnce(PathBuf) -> Fut,
        Fut: Future<Output = Result<()>>,
    {
        let path = self.path();
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot make the cache {}", self.directory.display()))?;
        let _lock = lock(&self.beside("lock"), &self.name).await?;
        if path.exists() {
            return Ok(path);
        }
        let part = self.beside("part");
        // Nobody else makes this entry while the lock is held: what is here was left by a run that died.
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
        }
        fs::create_dir(&part).with_context(|| format!("cannot make {}", part.display()))?;
        make(part.clone()).await?;
        // Or a machine that loses its power may find the entry there and what is in it missing.
        sync(&part).with_context(|| format!("cannot bring {} to disk", part.display()))?;
        fs::rename(&part, &path)
            .with_context(|| format!("cannot move what is finished to {}", path.display()))?;
        self.remove_outdated()?;
        Ok(path)
    }

    /// Or every change of a binary would leave another image behind.
    fn remove_outdated(&self) -> Result<()> {
        let unreadable = || format!("cannot read the cache {}", self.directory.display());
        let mut alike = Vec::new();
        for entry in fs::read_dir(&self.directory).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let is_alike = entry
                .file_name()
                .to_str()
                .and_then(|name| name.strip_prefix(&self.what)?.strip_prefix('-'))
                .is_some_and(is_key);
            if is_alike {
                let made = entry.metadata().and_then(|metadata| metadata.modified());
                alike.push((made.with_context(unreadable)?, entry.path()));
            }
        }
        alike.sort();
        alike.truncate(alike.len().saturating_sub(KEPT));
        for (_, path) in alike {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            let lock = path.with_added_extension("lock");
            // Where somebody makes the entry anew right now, the lock is in use.
            if File::open(&lock).is_ok_and(|file| file.try_lock().is_ok()) {
                fs::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
            }
        }
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", self.name))
    }
}

/// `${XDG_CACHE_HOME:-~/.cache}/etcd-operator`.
pub(crate) fn directory() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .context("neither XDG_CACHE_HOME nor a home directory is known: where should builds be cached?")?;
    Ok(base.join("etcd-operator"))
}

async fn lock(path: &Path, name: &str) -> Result<File> {
    let mut told = false;
    crate::deadline::until(&format!("the build of {name} by another run"), LIMIT, || {
        let outcome = try_lock(path);
        if matches!(outcome, Ok(None)) && !std::mem::replace(&mut told, true) {
            super::progress::say(&format!("another run is making {name}: waiting for it"));
        }
        std::future::ready(outcome)
    })
    .await
}

/// The lock, unless somebody else has it, or had it and took its file away, which then locks nothing.
fn try_lock(path: &Path) -> Result<Option<File>> {
    let cannot = || format!("cannot lock {}", path.display());
    let file = File::create(path).with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    let own = file.metadata().with_context(cannot)?;
    let there = fs::metadata(path).is_ok_and(|there| there.ino() == own.ino());
    Ok(there.then_some(file))
}

/// Brings a directory to disk with all that is in it.
fn sync(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            sync(&entry?.path())?;
        }
    }
    if kind.is_dir() || kind.is_file() {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}

/// FNV-1a over all parts, each with its length so that no two lists run together. It tells builds apart; it need
/// not withstand anybody.
fn key(parts: &[&[u8]]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.len().to_le_bytes().iter().chain(*part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn is_key(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::bed_dir::BedDir;

    #[test]
    fn any_change_of_an_input_changes_the_key() {
        let base = key(&[b"go.mod", b"go.sum", b"go1.26.8", b"-trimpath"]);
        assert_eq!(base, key(&[b"go.mod", b"go.sum", b"go1.26.8", b"-trimpath"]));
        assert_ne!(base, key(&[b"go.mod", b"go.sum", b"go1.26.9", b"-trimpath"]));
        assert_ne!(base, key(&[b"go.modg", b"o.sum", b"go1.26.8", b"-trimpath"]));
    }

    #[tokio::test]
    async fn a_second_run_waits_for_the_lock_of_the_first() {
        let bed = BedDir::create().unwrap();
        let path = bed.path().join("x.lock");
        let first = lock(&path, "x").await.unwrap();
        let second = tokio::spawn({
            let path = path.clone();
            async move { lock(&path, "x").await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_lock_whose_file_was_taken_away_locks_nothing() {
        let bed = BedDir::create().unwrap();
        let path = bed.path().join("x.lock");
        let stale = File::create(&path).unwrap();
        stale.lock().unwrap();
        fs::remove_file(&path).unwrap();
        let held = lock(&path, "x").await.unwrap();
        assert!(try_lock(&path).unwrap().is_none());
        drop(held);
        assert!(try_lock(&path).unwrap().is_some());
    }

    #[tokio::test]
    async fn an_entry_is_made_once_and_one_that_failed_is_not_there() {
        let bed = BedDir::create().unwrap();
        let entry = Entry::within(bed.path().join("cache"), "x", &[b"1"]);
        let failed = entry.fill(|part| async move {
            fs::write(part.join("half"), "")?;
            bail!("no")
        });
        assert!(failed.await.is_err());
        assert!(!entry.is_there());

        let path = entry
            .fill(|part| async move { Ok(fs::write(part.join("whole"), "")?) })
            .await
            .unwrap();
        assert!(path.join("whole").exists() && !path.join("half").exists());
        entry
            .fill(|_| async { bail!("made a second time") })
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn old_entries_of_a_name_go_and_those_of_other_names_stay() {
        let bed = BedDir::create().unwrap();
        let cache = bed.path().join("cache");
        let fill = async |name: &str, input: &[u8]| {
            let entry = Entry::within(cache.clone(), name, &[input]);
            entry.fill(|_| async { Ok(()) }).await.unwrap()
        };
        let other = fill("x-y", b"0").await;
        let mut made = Vec::new();
        for input in 0..=u8::try_from(KEPT).unwrap() {
            let path = fill("x", &[input]).await;
            let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(input));
            File::open(&path).unwrap().set_modified(time).unwrap();
            made.push(path);
        }
        let newest = fill("x", b"newest").await;
        assert!(newest.exists() && other.exists());
        let there: Vec<bool> = made.iter().map(|path| path.exists()).collect();
        assert_eq!(there.iter().filter(|there| **there).count(), KEPT - 1);
        assert!(!there[0], "the oldest goes first");
        let locks = fs::read_dir(&cache).unwrap().flatten();
        let locks = locks.filter(|entry| entry.path().extension().is_some_and(|end| end == "lock"));
        assert_eq!(
            locks.count(),
            KEPT + 1,
            "each entry that is there has its lock, and no other"
        );
    }
}
