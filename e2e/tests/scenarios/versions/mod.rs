//! Upgrades to other minor versions, one minor after the other, while clients keep writing.

mod backup_first;

use etcd_operator_e2e::scenario::{Bed, Scenario};

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("versions", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

/// Those for their time.
const FULL: [Scenario; 2] = [
    shared!("a_backup_comes_first", backup_first::comes_first),
    shared!(
        "a_broken_store_blocks_the_upgrade",
        backup_first::broken_store_blocks
    ),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    FULL.map(Scenario::full).into_iter()
}
