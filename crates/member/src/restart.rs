//! The start that needs nobody: a whole disk counts it and goes on. Everything else waits.

use etcd_operator_api::contract::Identity;
use jiff::Timestamp;

use crate::clock;
use crate::disk::{self, Depth};
use crate::fingerprint::Surroundings;
use crate::keeper::{Keeper, NotKept, Step};
use crate::permit;
use crate::verdict::{Expected, judge};
use crate::view::DiskView;
use crate::volume::Volume;

/// Whether etcd may start without a permit.
#[derive(Debug)]
pub enum Attempt {
    /// It is whole, and says that it was started once more.
    Starts,
    /// It waits, and looks like this.
    Waits(Box<DiskView>),
}

/// Writes the identity with this start counted. If the volume is full, what restores left is removed first: etcd would
/// need the room, too.
fn count(keeper: &mut Keeper<'_>, next: &Identity, now: Timestamp) -> Result<(), NotKept> {
    let written = keeper.write(next);
    let Err(error) = &written else {
        return written;
    };
    if !error.is_for_lack_of_room() {
        return written;
    }
    if let Err(error) = keeper.tidy(now) {
        tracing::warn!("the volume is full, and what a restore has left stays: {error}");
    }
    keeper.write(next)
}

/// Whether etcd may start without a permit, which is so only for a whole disk. It counts the start, and does not start
/// etcd. A full volume keeps no member from starting; any other failure to write does.
pub fn attempt(volume: &Volume, surroundings: &Surroundings, expected: &Expected) -> Attempt {
    let disk = disk::read(volume, surroundings, Depth::Start);
    if !judge(&disk, expected).is_whole() {
        return Attempt::Waits(Box::new(disk::read(volume, surroundings, Depth::Report)));
    }
    let head = disk.store().and_then(|store| store.whole().ok());
    let (Some(identity), Some(head)) = (disk.identity.found(), head) else {
        return Attempt::Waits(Box::new(disk));
    };
    let next = permit::restart(identity, head, &disk.fingerprint);
    let mut before = |_: &Step| Ok(());
    let mut keeper = Keeper::new(volume, &mut before);
    match count(&mut keeper, &next, clock::date()) {
        Ok(()) => {
            // What is left of restores is of no use to anybody, and in nobody's way.
            if let Err(error) = keeper.tidy(clock::date()) {
                tracing::warn!("what a restore has left stays until the next start: {error}");
            }
            Attempt::Starts
        }
        // The counter helps to find a volume that went back in time; it is not worth a member that stays down.
        Err(error) if error.is_for_lack_of_room() => {
            tracing::warn!("this start is not counted: {error}");
            Attempt::Starts
        }
        Err(error) => Attempt::Waits(Box::new(DiskView {
            trouble: Some(error.to_string()),
            ..disk
        })),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use etcd_operator_api::contract::{self, Kept, KeptDirectory};

    use super::*;
    use crate::samples::{self, Scratch};

    #[test]
    fn a_full_volume_is_rid_of_data_whose_time_is_over_and_the_start_is_counted_then() {
        let now = Timestamp::UNIX_EPOCH;
        let scratch = Scratch::new();
        let volume = Volume::at(scratch.path());
        scratch.file("operator/identity.json", contract::write(&samples::identity()));
        scratch.file("kept-1-1/member/old", "of before");
        scratch.file("kept-1-2/member/old", "of somebody else, for good");
        let kept = Kept {
            version: 1,
            directories: vec![KeptDirectory {
                directory: "kept-1-1".into(),
                restore_uid: "r".into(),
                until: now,
            }],
        };
        scratch.file("operator/kept.json", contract::write(&kept));
        let mut next = samples::identity();
        next.starts += 1;
        // As a full disk does: nothing can be written before something that takes room is gone.
        let old = scratch.path().join("kept-1-1/member/old");
        let mut before = |step: &Step| match step {
            Step::Write(_) if old.exists() => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        count(&mut Keeper::new(&volume, &mut before), &next, now).expect("counted");
        assert!(!scratch.path().join("kept-1-1").exists());
        assert!(scratch.path().join("kept-1-2/member/old").exists());
        let written = std::fs::read(volume.identity()).expect("read");
        assert_eq!(contract::read::<Identity>(&written).expect("an identity"), next);
        let list = std::fs::read(volume.kept_list()).expect("read");
        assert!(
            contract::read::<Kept>(&list)
                .expect("a list")
                .directories
                .is_empty()
        );
    }
}
