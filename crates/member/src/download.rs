//! A snapshot that is brought onto a member's volume before it is restored there: whether that is needed at all, what must
//! go first, and the mark that says that it is complete.

use etcd_operator_api::contract::{Fetched, VERSION, Verdict};

use crate::disk::{self, Depth, read};
use crate::fingerprint::Surroundings;
use crate::keeper::{Keeper, NotKept, Step};
use crate::room::{self, LOG};
use crate::verdict::{Expected, judge};
use crate::view::DiskView;
use crate::volume::Volume;

/// The snapshot that a restore needs on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The restore it is for.
    pub restore_uid: String,
    /// The life of the data that begins with it.
    pub incarnation: i64,
    /// The SHA-256 of the object, in hexadecimal.
    pub object_sha256: String,
    /// Bytes of the snapshot.
    pub snapshot_size: u64,
    /// The UID of the `EtcdCluster`; an older operator does not tell it.
    pub cluster_uid: Option<String>,
}

/// Why a download cannot begin or end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPossible {
    /// The disk cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// There is no room.
    #[error("{0}")]
    NoRoom(String),
    /// The disk cannot be written.
    #[error("{0}")]
    Unwritable(String),
}

impl From<NotKept> for NotPossible {
    fn from(error: NotKept) -> Self {
        if error.is_for_lack_of_room() {
            Self::NoRoom(error.to_string())
        } else {
            Self::Unwritable(error.to_string())
        }
    }
}

/// Why no download is needed; `None` if it is. A pod that restarts after the restore needs no object store. An error if
/// the volume cannot be read.
pub fn is_needless(volume: &Volume, wanted: &Wanted) -> Result<Option<&'static str>, NotPossible> {
    let disk = read(volume, &Surroundings::default(), Depth::Start);
    match &disk.trouble {
        Some(trouble) => Err(NotPossible::Unreadable(trouble.clone())),
        None => Ok(needless(&disk, wanted)),
    }
}

/// [`is_needless`] for a volume that was read. Pure.
pub fn needless(disk: &DiskView, wanted: &Wanted) -> Option<&'static str> {
    let identity = disk.identity.found();
    if wanted
        .cluster_uid
        .as_ref()
        .is_some_and(|uid| is_foreign(disk, uid, wanted.incarnation))
    {
        return Some("the volume has data of somebody else, which are not touched");
    }
    if identity.is_some_and(|identity| identity.incarnation == wanted.incarnation) {
        return Some("the volume has the restored data's incarnation");
    }
    let prepared = disk.prepared.as_ref().ok().and_then(Option::as_ref);
    let is_prepared = prepared.is_some_and(|prepared| {
        prepared.restore_uid == wanted.restore_uid
            && prepared.object_sha256 == wanted.object_sha256
            && prepared.incarnation == wanted.incarnation
    });
    if is_prepared {
        return Some("it is restored already, beside the data");
    }
    is_there(disk, wanted).then_some("it is on the volume already")
}

/// Whether the volume is foreign to every member of this cluster. Then nothing is downloaded, and it stays as it is
/// until a user decides.
fn is_foreign(disk: &DiskView, cluster_uid: &str, incarnation: i64) -> bool {
    let identity = disk.identity.found();
    let expected = Expected {
        cluster_uid: cluster_uid.to_owned(),
        // Whose member it is cannot be told here: all pods have one order.
        member: identity.map_or_else(String::new, |identity| identity.member.clone()),
        incarnation,
    };
    judge(disk, &expected).verdict == Verdict::Foreign
}

/// Whether the object of this restore has been downloaded in full.
fn is_there(disk: &DiskView, wanted: &Wanted) -> bool {
    let fetched = disk.fetched.as_ref();
    fetched.is_some_and(|fetched| {
        fetched.restore_uid == wanted.restore_uid && fetched.object_sha256 == wanted.object_sha256
    })
}

/// Prepares the volume for the download. It removes directories that were restored and a complete download; the file of
/// an incomplete one stays, to be resumed. Fails if there is no room for the rest of the snapshot and the member that
/// is made of it.
pub fn begin(volume: &Volume, wanted: &Wanted) -> Result<(), NotPossible> {
    let mut before = |_: &Step| Ok(());
    let mut keeper = Keeper::new(volume, &mut before);
    keeper.clear_restored()?;
    if volume.fetched().exists() {
        keeper.clear_download()?;
    }
    let download = volume.download();
    let unwritable =
        |error: std::io::Error| NotPossible::Unwritable(disk::trouble("write into", &download, &error));
    std::fs::create_dir_all(&download).map_err(unwritable)?;
    let mut there = 0;
    for entry in std::fs::read_dir(&download).map_err(unwritable)? {
        let entry = entry.and_then(|entry| entry.metadata()).map_err(unwritable)?;
        there += entry.len();
    }
    let size = wanted.snapshot_size;
    let needed = size
        .saturating_sub(there)
        .saturating_add(size)
        .saturating_add(LOG);
    let free = room::free(volume.root()).map_err(NotPossible::Unreadable)?;
    let parts = format!(
        "{size} for the snapshot, of which {there} are there, {size} for the database and {LOG} for etcd's log"
    );
    room::judge(volume.root(), free, needed, &parts).map_err(NotPossible::NoRoom)
}

/// Marks the download as complete, which the caller has verified. The snapshot is not synced, as it is deleted once it
/// is restored: if the node reboots before, it is downloaded again.
pub fn end(volume: &Volume, wanted: &Wanted) -> Result<(), NotPossible> {
    let fetched = Fetched {
        version: VERSION,
        restore_uid: wanted.restore_uid.clone(),
        object_sha256: wanted.object_sha256.clone(),
        snapshot_size: wanted.snapshot_size,
        boot: disk::boot(),
    };
    Ok(Keeper::new(volume, &mut |_| Ok(())).mark_fetched(&fetched)?)
}

#[cfg(test)]
mod tests {
    use etcd_operator_api::contract::{self, Prepared};

    use super::*;
    use crate::samples::{self, Scratch};

    fn wanted() -> Wanted {
        Wanted {
            restore_uid: "restore-1".into(),
            incarnation: 3,
            object_sha256: "00ff".into(),
            snapshot_size: 8,
            cluster_uid: Some(samples::identity().cluster_uid),
        }
    }

    #[test]
    fn nothing_is_brought_onto_a_volume_of_somebody_else() {
        let others = Wanted {
            cluster_uid: Some("another".to_owned()),
            ..wanted()
        };
        let scratch = Scratch::new();
        let volume = volume(&scratch);
        assert!(is_needless(&volume, &others).expect("readable").is_some());
        let of_before = Wanted {
            cluster_uid: None,
            ..wanted()
        };
        assert_eq!(
            is_needless(&volume, &of_before),
            Ok(None),
            "an older operator does not say"
        );
        let nameless = Scratch::new();
        nameless.file("data/member/snap/db", "somebody's");
        let nameless = Volume::at(nameless.path());
        assert!(is_needless(&nameless, &wanted()).expect("readable").is_some());
        let ledgers = Scratch::new();
        ledgers.file("ledger-2026.txt", "somebody's");
        let ledgers = Volume::at(ledgers.path());
        assert!(is_needless(&ledgers, &wanted()).expect("readable").is_some());
        let empty = Scratch::new();
        assert_eq!(is_needless(&Volume::at(empty.path()), &wanted()), Ok(None));
    }

    #[test]
    fn a_new_volume_is_nobody_elses_wherever_a_download_onto_it_ends() {
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path());
        let is_empty = |at: &str| {
            let disk = read(&volume, &Surroundings::default(), Depth::Report);
            let finding = judge(&disk, &samples::expected());
            assert_eq!(finding.verdict, Verdict::Empty, "{at}: {finding:?}");
        };
        is_empty("before");
        begin(&volume, &wanted()).expect("there is room");
        is_empty("way was made");
        scratch.file("restore/snapshot.db.part.json", "{}");
        scratch.file("restore/snapshot.db.part", "half");
        is_empty("half is there");
        begin(&volume, &wanted()).expect("there is room");
        scratch.file("restore/snapshot.db", "snapshot");
        is_empty("all is there");
        end(&volume, &wanted()).expect("marked");
        is_empty("it is marked");
        scratch.file("restored-restore-1/member/snap/db", "half");
        is_empty("half a member is made of it");
    }

    /// A volume of the life before.
    fn volume(scratch: &Scratch) -> Volume {
        let volume = Volume::at(scratch.path());
        scratch.file("operator/identity.json", contract::write(&samples::identity()));
        scratch.file("data/member/precious", "");
        volume
    }

    #[test]
    fn it_is_needed_until_it_is_there_and_no_longer_once_it_is_restored_or_serves() {
        let scratch = Scratch::new();
        let volume = volume(&scratch);
        let needless = || is_needless(&volume, &wanted()).expect("readable");
        assert_eq!(needless(), None);
        begin(&volume, &wanted()).expect("there is room");
        scratch.file("restore/snapshot.db", "half");
        assert_eq!(needless(), None, "without its mark it may be anything");
        scratch.file("restore/snapshot.db", "snapshot");
        end(&volume, &wanted()).expect("marked");
        assert!(needless().is_some());
        scratch.file("restore/snapshot.db", "cut");
        assert_eq!(needless(), None, "its size is another one");

        scratch.file("restore/snapshot.db", "snapshot");
        assert!(needless().is_some());
        let text = std::fs::read_to_string(volume.fetched()).expect("the mark");
        let mut mark: Fetched = contract::read(text.as_bytes()).expect("a mark");
        assert!(mark.boot.is_some(), "it is not on the disk yet");
        mark.boot = Some("another".to_owned());
        scratch.file("operator/fetched.json", contract::write(&mark));
        assert_eq!(needless(), None, "the node went before it was on its disk");
        mark.boot = None;
        scratch.file("operator/fetched.json", contract::write(&mark));
        assert!(needless().is_some());
        scratch.file("restore/snapshot.db", "cut");

        let prepared = Prepared {
            version: 1,
            restore_uid: "restore-1".into(),
            object_sha256: "00ff".into(),
            incarnation: 3,
            directory: "restored-restore-1".into(),
            cluster_id: None,
            member_id: None,
        };
        scratch.file("operator/prepared.json", contract::write(&prepared));
        assert!(needless().is_some());
        let again = Wanted {
            incarnation: 4,
            ..wanted()
        };
        assert_eq!(is_needless(&volume, &again), Ok(None));
        let mut identity = samples::identity();
        identity.incarnation = 4;
        scratch.file("operator/identity.json", contract::write(&identity));
        assert!(is_needless(&volume, &again).expect("readable").is_some());
    }

    #[test]
    fn what_others_left_goes_and_a_part_of_the_same_stays() {
        let scratch = Scratch::new();
        let volume = volume(&scratch);
        scratch.file("restored-other/member/snap/db", "half");
        scratch.file("restore/snapshot.db.part", "half");
        begin(&volume, &wanted()).expect("there is room");
        assert!(!scratch.path().join("restored-other").exists());
        assert!(scratch.path().join("restore/snapshot.db.part").exists());
        scratch.file("restore/snapshot.db", "snapshot");
        end(&volume, &wanted()).expect("marked");
        let other = Wanted {
            restore_uid: "restore-2".into(),
            ..wanted()
        };
        assert_eq!(is_needless(&volume, &other), Ok(None));
        begin(&volume, &other).expect("there is room");
        assert!(!volume.snapshot().exists() && !volume.fetched().exists());
        assert!(scratch.path().join("data/member/precious").exists());
    }

    #[test]
    fn a_snapshot_that_does_not_fit_is_refused_before_a_byte_of_it_comes() {
        let scratch = Scratch::new();
        let volume = volume(&scratch);
        let huge = Wanted {
            snapshot_size: u64::MAX / 2,
            ..wanted()
        };
        let why = begin(&volume, &huge).expect_err("no disk is that large");
        assert!(matches!(&why, NotPossible::NoRoom(_)), "{why:?}");
        assert!(why.to_string().contains("are needed"), "{why}");
    }
}
