//! EtcdRestores on a real Kubernetes: verified, carried out, rolled back.

mod in_place;
mod seen;

use etcd_operator_e2e::scenario::{Bed, Scenario};

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("restore", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate.
const GATE: [Scenario; 1] = [shared!(
    "a_cluster_is_rolled_back_to_what_its_backup_holds",
    in_place::of_3_6
)];

/// The rest, for their time.
const FULL: [Scenario; 4] = [
    shared!("so_is_one_of_the_minor_before", in_place::of_3_5),
    shared!("a_single_member_from_a_volume", in_place::from_a_volume),
    shared!("what_cannot_be_restored_touches_nothing", in_place::refused),
    shared!("one_that_is_deleted_midway_is_rolled_back", in_place::withdrawn),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}
