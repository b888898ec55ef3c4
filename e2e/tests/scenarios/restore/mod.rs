//! EtcdRestores on a real Kubernetes: verified, carried out, rolled back.

mod guards;
mod hurt;
mod in_place;
mod large;
mod new_target;
mod seen;

use etcd_operator_e2e::scenario::{Bed, Scenario};

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("restore", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate.
const GATE: [Scenario; 2] = [
    shared!(
        "a_cluster_is_rolled_back_to_what_its_backup_holds",
        in_place::of_3_6
    ),
    shared!(
        "a_cluster_awaits_its_restore_and_begins_with_it",
        new_target::awaited
    ),
];

/// The rest, for their time.
const FULL: [Scenario; 19] = [
    shared!("so_is_one_of_the_minor_before", in_place::of_3_5),
    shared!("a_single_member_from_a_volume", in_place::from_a_volume),
    shared!("what_cannot_be_restored_touches_nothing", in_place::refused),
    shared!("one_that_is_deleted_midway_is_rolled_back", in_place::withdrawn),
    shared!(
        "a_cluster_that_is_applied_beside_its_restore_never_starts_empty",
        new_target::applied_together
    ),
    shared!(
        "a_single_ephemeral_member_is_made_of_three",
        new_target::three_to_one
    ),
    shared!("five_members_are_made_of_one", new_target::one_to_five),
    shared!(
        "a_cluster_waits_again_when_its_restore_is_given_up",
        new_target::given_up
    ),
    shared!(
        "data_in_memory_are_replaced_in_place",
        new_target::in_place_without_volumes
    ),
    shared!(
        "a_sealed_one_by_its_path_after_a_backup_of_what_is_there",
        guards::sealed_and_backed_up_first
    ),
    shared!("damage_is_found_before_anything_is_touched", guards::damaged),
    shared!("users_come_along_and_locks_do_not", guards::with_users),
    shared!("alarms_go_and_leases_stay", guards::without_space),
    shared!("a_full_disk_is_told_and_rolled_back", guards::full_disk),
    shared!("one_of_3_2_25_is_as_well", in_place::of_3_2),
    shared!(
        "members_that_only_learned_do_not_come_along",
        new_target::with_a_learner
    ),
    shared!(
        "the_operator_is_killed_at_twenty_moments_and_each_is_carried_out_once",
        hurt::operator_killed
    )
    .long(),
    shared!("a_gibibyte_is_served_again", large::one).long(),
    shared!("so_are_four", large::four).long(),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}
