//! The start that needs nobody: a whole disk counts it and goes on. Everything else waits.

use crate::clock;
use crate::disk::{self, Depth};
use crate::fingerprint::Surroundings;
use crate::keeper::{Keeper, Step};
use crate::permit;
use crate::verdict::{Expected, judge};
use crate::view::DiskView;
use crate::volume::Volume;

/// Whether a disk starts by itself.
#[derive(Debug)]
pub enum Attempt {
    /// It is whole, and says that it was started once more.
    Starts,
    /// It waits, and looks like this.
    Waits(Box<DiskView>),
}

/// Starts a disk that is whole.
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
    match keeper.write(&next) {
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
