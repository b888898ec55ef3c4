//! EtcdBackups on a real Kubernetes: made, repeated, kept, deleted, refused, and what goes wrong meanwhile.

mod once;
mod repeated;
pub mod vault;
mod wrong;

use etcd_operator_e2e::scenario::{Bed, Scenario};

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("backup", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

macro_rules! alone {
    ($name:literal, $story:path) => {
        Scenario::gate("backup", $name, Bed::Alone, |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate.
const GATE: [Scenario; 3] = [
    shared!("one_goes_into_s3_and_comes_back_whole", once::into_s3),
    shared!(
        "an_interval_keeps_the_newest_and_deletion_takes_all",
        repeated::at_an_interval
    ),
    shared!("what_a_store_refuses_is_told_and_mended", wrong::told_and_mended),
];

/// The rest, for their time.
const FULL: [Scenario; 1] = [alone!(
    "the_operator_is_killed_while_one_is_made",
    wrong::operator_killed
)];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}
