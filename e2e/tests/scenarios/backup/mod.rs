//! EtcdBackups on a real Kubernetes: made, repeated, kept, deleted, refused, and what goes wrong meanwhile.

pub mod hurt;
mod large;
mod once;
mod repeated;
mod restored;
mod slots;
pub mod stores;
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
const FULL: [Scenario; 23] = [
    alone!("the_operator_is_killed_while_one_is_made", wrong::operator_killed),
    shared!("into_s3_over_tls", stores::into_s3),
    shared!("into_oss_over_tls", stores::into_oss),
    shared!("into_gcs_over_tls", stores::into_gcs),
    shared!("into_abs_over_tls", stores::into_abs),
    shared!("onto_a_volume", stores::onto_a_volume),
    shared!("on_a_schedule_by_the_clock_of_a_place", repeated::on_a_schedule),
    shared!(
        "one_that_is_being_restored_is_not_pruned_before_that_is_over",
        repeated::while_restored
    ),
    shared!(
        "the_manifest_of_the_older_operator_is_obeyed",
        repeated::as_it_was
    )
    .long(),
    alone!("two_hundred_that_are_due_at_once", repeated::two_hundred).long(),
    alone!("those_of_a_sleeping_cluster_stop_no_other", slots::asleep).long(),
    alone!("pods_that_fit_nowhere_stop_no_other", slots::unschedulable).long(),
    shared!("a_store_that_is_away_is_waited_for", hurt::store_away),
    shared!("bytes_that_change_are_found", hurt::corrupted),
    alone!("a_slow_store_is_given_up_and_harms_no_cluster", hurt::slow_store),
    alone!("one_is_deleted_whose_node_is_cut_off", hurt::node_cut).long(),
    shared!("members_die_while_they_are_read", hurt::member_killed),
    shared!("one_is_restored_and_started_before_it_counts", restored::started),
    shared!("by_addresses_of_which_one_answers", hurt::by_addresses),
    shared!("sealed_ones_are_opened_by_their_key_alone", hurt::sealed),
    alone!("a_gibibyte_into_s3", large::one_into_s3).long(),
    alone!("a_gibibyte_onto_a_volume", large::one_onto_a_volume).long(),
    alone!("four_gibibytes_into_s3", large::four_into_s3).long(),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    GATE.into_iter().chain(FULL.map(Scenario::full))
}
