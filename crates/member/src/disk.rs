//! Reads a disk into a [`DiskView`]. Nothing is written, and nothing is concluded: what cannot be read is said to be so,
//! never taken for missing.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use etcd_operator_api::contract::{self, Document, Fetched, Identity, Prepared};
use etcd_operator_etcd::id::{MemberId, RaftIndex};

use crate::database;
use crate::fingerprint::{self, Surroundings};
use crate::log::{self, SegmentName};
use crate::view::{Data, DiskView, IdentityFile, Store};
use crate::volume::{self, KEPT, RESTORED, Volume};

/// No document of ours is longer.
const LONGEST: u64 = 1 << 20;

/// How much of a disk is read: what a start needs, or what a report tells as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What it takes to start a whole disk: a few pages.
    Start,
    /// What a report tells, too: how far the log goes, what is in it, and who the members are.
    Report,
}

/// Reads a volume. It never fails: what cannot be read is in `trouble`, and then nothing else of the view counts.
pub fn read(volume: &Volume, surroundings: &Surroundings, depth: Depth) -> DiskView {
    let mut disk = DiskView::default();
    if let Err(trouble) = fill(&mut disk, volume, surroundings, depth) {
        disk.trouble = Some(trouble);
    }
    disk
}

/// Fills the view up to the first thing that cannot be read; the rest stays as if it were not there.
fn fill(
    disk: &mut DiskView,
    volume: &Volume,
    surroundings: &Surroundings,
    depth: Depth,
) -> Result<(), String> {
    // A volume that is not there must not look like an empty one.
    let names = names(volume.root())?.ok_or_else(|| format!("{} does not exist", volume.root().display()))?;
    let those = |are: &dyn Fn(&str) -> bool| {
        let mut found: Vec<String> = names.iter().filter(|name| are(name)).cloned().collect();
        found.sort();
        found
    };
    disk.kept = those(&|name| name.starts_with(KEPT));
    disk.restored = those(&|name| name.starts_with(RESTORED));
    disk.strange = those(&volume::is_strange);
    disk.fingerprint = fingerprint::of(volume, surroundings);
    disk.identity = match document::<Identity>(&volume.identity())? {
        None => IdentityFile::Absent,
        Some(Ok(identity)) => IdentityFile::Found(identity),
        Some(Err(why)) => IdentityFile::Unusable(why),
    };
    disk.prepared = document::<Prepared>(&volume.prepared())?.transpose();
    disk.fetched = fetched(volume)?;
    disk.data = data(&volume.data(), depth)?;
    Ok(())
}

/// The mark of a complete download. `None` also if its snapshot is not there in full, if the node has rebooted since
/// and the mark counts only until then, or if the mark cannot be parsed: the download begins anew.
fn fetched(volume: &Volume) -> Result<Option<Fetched>, String> {
    let Some(Ok(fetched)) = document::<Fetched>(&volume.fetched())? else {
        return Ok(None);
    };
    let snapshot = fs::metadata(volume.snapshot());
    let is_there = snapshot.is_ok_and(|found| found.is_file() && found.len() == fetched.snapshot_size);
    let is_believed = fetched.boot.is_none() || fetched.boot == boot();
    Ok((is_there && is_believed).then_some(fetched))
}

/// The boot ID of the node, if the kernel tells it. A file that was written under the same one reads as it was written,
/// synced or not.
pub(crate) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// What is in a data directory of etcd. Damage is part of the result; an error means that something could not be read.
pub(crate) fn data(directory: &Path, depth: Depth) -> Result<Data, String> {
    let (wal, database) = (directory.join("member/wal"), directory.join("member/snap/db"));
    if names(directory)?.is_none_or(|names| names.is_empty()) {
        return Ok(Data::None);
    }
    let names = names(&wal)?.unwrap_or_default();
    let mut segments: Vec<SegmentName> = names.iter().filter_map(|name| SegmentName::read(name)).collect();
    segments.sort();
    let Some(newest) = segments.last() else {
        return Ok(Data::Unlogged);
    };
    let failure = RefCell::new(None);
    let open = |path: PathBuf| Careful::open(path, &failure);
    let segment = |name: &SegmentName| open(wal.join(name.to_string()));
    let is_there = database
        .try_exists()
        .map_err(|error| trouble("look for", &database, &error))?;
    let mut store = Store {
        head: log::head(BufReader::new(segment(newest)?)),
        end: None,
        database: if is_there {
            database::check(&mut open(database.clone())?)
        } else {
            Err(format!("there is no database at {}", database.display()))
        },
        members: Vec::new(),
    };
    if depth == Depth::Report {
        let end = log::end(&segments, |name| {
            segment(name).map(|file| BufReader::with_capacity(1 << 16, file))
        })?;
        store.end = Some(end);
        if store.database.is_ok() {
            // A list that cannot be read is as good as none: it is asked for by consent to adopt alone.
            store.members = database::members(&mut open(database)?).unwrap_or_default();
        }
    }
    match failure.into_inner() {
        Some(trouble) => Err(trouble),
        None => Ok(Data::Logged(store)),
    }
}

/// The member whose log is in a data directory of etcd, and its last index; `None` if the log has no entry. What is
/// read is synced before: an index that was reported must not be lost with the machine.
pub(crate) fn reached(directory: &Path) -> Result<Option<(MemberId, RaftIndex)>, String> {
    let wal = directory.join("member/wal");
    let names = names(&wal)?.unwrap_or_default();
    let mut segments: Vec<SegmentName> = names.iter().filter_map(|name| SegmentName::read(name)).collect();
    segments.sort();
    let Some(newest) = segments.last() else {
        return Ok(None);
    };
    let failure = RefCell::new(None);
    let open = |name: &SegmentName| {
        let segment = Careful::open(wal.join(name.to_string()), &failure)?;
        let synced = segment.file.sync_data();
        synced.map_err(|error| trouble("sync", &segment.path, &error))?;
        Ok::<_, String>(BufReader::with_capacity(1 << 16, segment))
    };
    let head = log::head(open(newest)?);
    let last = log::last(&segments, open)?;
    // What comes before something that cannot be read is not all.
    match (failure.into_inner(), last) {
        (Some(trouble), _) => Err(trouble),
        (None, Some((_, index))) => Ok(Some((head?.member, index))),
        (None, None) => Ok(None),
    }
}

/// A file that records its read errors in `failure`: what could not be read must not be taken for damage.
struct Careful<'a> {
    file: File,
    path: PathBuf,
    failure: &'a RefCell<Option<String>>,
}

impl<'a> Careful<'a> {
    fn open(path: PathBuf, failure: &'a RefCell<Option<String>>) -> Result<Self, String> {
        let file = File::open(&path).map_err(|error| trouble("read", &path, &error))?;
        Ok(Self { file, path, failure })
    }

    fn remembered<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome
            && error.kind() != ErrorKind::Interrupted
        {
            *self.failure.borrow_mut() = Some(trouble("read", &self.path, error));
        }
        outcome
    }
}

impl Read for Careful<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let outcome = self.file.read(buffer);
        self.remembered(outcome)
    }
}

impl Seek for Careful<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let outcome = self.file.seek(to);
        self.remembered(outcome)
    }
}

/// A document of the operator: `None` if there is no file, an inner error if it cannot be parsed, an outer one if it
/// cannot be read.
fn document<D: Document>(path: &Path) -> Result<Option<Result<D, String>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(trouble("read", path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|error| trouble("read", path, &error))?;
    let read = contract::read(&bytes).map_err(|error| format!("{}: {error}", path.display()));
    Ok(Some(read))
}

/// The names in a directory; none if there is no such directory.
fn names(path: &Path) -> Result<Option<Vec<String>>, String> {
    let failed = |error: &io::Error| trouble("list", path, error);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(|error| failed(&error))
}

/// The text of an IO error. If permission was denied, it says whose the nearest existing path is.
pub(crate) fn trouble(what: &str, path: &Path, error: &io::Error) -> String {
    let words = format!("cannot {what} {}: {error}", path.display());
    if error.kind() != ErrorKind::PermissionDenied {
        return words;
    }
    let known = path
        .ancestors()
        .find_map(|path| fs::metadata(path).ok().map(|metadata| (path, metadata)));
    match known {
        Some((path, metadata)) => format!(
            "{words}; {} belongs to user {} and group {} with mode {:o}, and this process is user {}",
            path.display(),
            metadata.uid(),
            metadata.gid(),
            metadata.mode() & 0o7777,
            rustix::process::geteuid().as_raw()
        ),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::contract::Verdict;

    use super::*;
    use crate::samples::{self, Scratch};
    use crate::verdict::{Finding, judge};

    /// What a volume with these on it is found to be: directories where the name ends so, files otherwise.
    fn found(paths: &[&str]) -> (DiskView, Finding) {
        let scratch = Scratch::new();
        for path in paths {
            match path.strip_suffix('/') {
                Some(path) => fs::create_dir_all(scratch.path().join(path)).expect("a directory"),
                None => scratch.file(path, "2026"),
            }
        }
        seen(&scratch)
    }

    fn seen(scratch: &Scratch) -> (DiskView, Finding) {
        let disk = read(
            &Volume::at(scratch.path()),
            &Surroundings::default(),
            Depth::Report,
        );
        let finding = judge(&disk, &samples::expected());
        (disk, finding)
    }

    #[test]
    fn files_and_directories_of_somebody_else_make_a_nameless_volume_foreign() {
        for (paths, named) in [
            (&["ledger-2026.txt"][..], "ledger-2026.txt"),
            (&["ledgers/2026/january.txt"], "ledgers"),
            (&["ledgers/"], "ledgers"),
            (&["lost+found/", "ledger-2026.txt"], "ledger-2026.txt"),
            (&["operator/", "data/", "restore/snapshot.db", "b", "a/"], "a, b"),
        ] {
            let (disk, finding) = found(paths);
            let words = format!("no identity, but files of somebody else: {named}");
            assert_eq!(
                (finding.verdict, finding.detail),
                (Verdict::Foreign, words),
                "{paths:?}"
            );
            assert!(!disk.is_bare(), "{paths:?}: who knows what clients wrote there");
        }
    }

    #[test]
    fn what_only_resembles_a_name_of_ours_or_of_storage_is_somebody_elses() {
        for name in [
            "data.bak",
            "Data",
            "operators",
            "restore-1",
            "restored",
            "kept",
            "lost+found.old",
            ".snapshots-of-mine",
            ".zfs.txt",
            ".hidden",
        ] {
            let (disk, finding) = found(&[name]);
            assert_eq!(finding.verdict, Verdict::Foreign, "{name}");
            assert_eq!(disk.strange, [name]);
        }
    }

    /// Killed at whatever moment, this program leaves no other names before there is an identity; and each of storage's is on
    /// a volume that nobody has used.
    #[test]
    fn a_volume_with_nothing_but_names_of_ours_and_of_storage_is_empty() {
        for paths in [
            &[][..],
            &["lost+found/"],
            &[".snapshot/hourly.0/"],
            &[".snapshots/"],
            &[".zfs/snapshot/"],
            &["data/"],
            &["operator/"],
            &["operator/identity.json.new", "operator/document.json.new"],
            &["operator/kept.json", "operator/something-of-a-later-version"],
            &["restore/"],
            &["restore/snapshot.db.part", "restore/snapshot.db.part.json"],
            &["restore/snapshot.db"],
            &["operator/", "restored-uid/member/snap/db"],
            &["lost+found/", ".snapshot/", "operator/", "data/", "restore/"],
        ] {
            let (disk, finding) = found(paths);
            assert_eq!(finding.verdict, Verdict::Empty, "{paths:?}: {finding:?}");
            assert!(disk.is_bare(), "{paths:?}");
        }
        // Foreign as ever, and for what it is.
        let (_, finding) = found(&["kept-1-1/"]);
        assert_eq!(finding.verdict, Verdict::Foreign);
        assert!(finding.detail.ends_with("were kept: kept-1-1"), "{finding:?}");
    }

    #[test]
    fn where_an_identity_says_whose_the_volume_is_files_beside_it_change_nothing() {
        let own = samples::identity();
        let blank = Identity {
            ran: false,
            ..own.clone()
        };
        let others = Identity {
            cluster_uid: "another".into(),
            ..own.clone()
        };
        for (identity, wanted) in [
            (own, Verdict::Unborn),
            (blank, Verdict::Empty),
            (others, Verdict::Foreign),
        ] {
            let scratch = Scratch::new();
            scratch.file("operator/identity.json", contract::write(&identity));
            let (before, finding) = seen(&scratch);
            assert_eq!(finding.verdict, wanted);
            scratch.file("ledger-2026.txt", "2026");
            let (after, with_file) = seen(&scratch);
            assert_eq!(with_file, finding);
            assert_eq!(after.strange, ["ledger-2026.txt"]);
            assert_eq!(after.is_bare(), before.is_bare());
        }
    }

    #[test]
    fn a_root_that_cannot_be_listed_is_unreadable_and_not_empty() {
        let scratch = Scratch::new();
        scratch.file("volume", "no directory");
        let volume = Volume::at(scratch.path().join("volume"));
        let disk = read(&volume, &Surroundings::default(), Depth::Report);
        assert_eq!(judge(&disk, &samples::expected()).verdict, Verdict::Unreadable);
    }
}
