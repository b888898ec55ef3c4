//! EtcdRestores on a real Kubernetes: verified, carried out, rolled back.

pub mod clients;
mod destroyed;
mod drill;
mod guards;
mod hands;
mod hurt;
pub mod in_place;
mod large;
pub mod new_target;
mod ordered;
mod points;
pub mod seen;
mod stores;
mod told;

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
const FULL: [Scenario; 34] = [
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
        "the_manifests_of_the_older_operator_bring_back_what_was_destroyed",
        destroyed::as_it_was
    ),
    shared!(
        "all_pods_and_volumes_are_gone_and_all_data_come_back",
        destroyed::with_its_volumes
    ),
    shared!(
        "the_last_member_is_backed_up_and_its_data_brought_back_through_a_volume_of_one_node",
        destroyed::but_for_one
    ),
    shared!("from_s3_over_tls", stores::from_s3),
    shared!("from_oss_over_tls", stores::from_oss),
    shared!("from_gcs_over_tls", stores::from_gcs),
    shared!("from_abs_over_tls", stores::from_abs),
    shared!("one_of_a_newer_etcd_is_refused", guards::of_a_newer_etcd),
    shared!("one_that_etcdctl_saved_in_another_namespace", hands::of_etcdctl),
    shared!(
        "one_that_the_older_operator_stored_in_another_namespace",
        hands::of_the_older_operator
    ),
    shared!(
        "the_one_of_a_time_and_the_one_of_a_revision",
        points::by_time_and_by_revision
    ),
    shared!(
        "one_that_is_deleted_after_its_commit_goes_on_to_its_end",
        in_place::deleted_after_its_commit
    ),
    shared!(
        "members_and_backups_that_are_asked_for_meanwhile_come_after_it",
        ordered::asked_meanwhile
    ),
    shared!(
        "it_overtakes_members_that_are_on_their_way",
        ordered::asked_while_it_grows
    ),
    shared!("what_a_dry_run_tells_is_what_happens", told::as_it_happens),
    shared!(
        "the_operator_is_killed_at_twenty_moments_and_each_is_carried_out_once",
        hurt::operator_killed
    )
    .long(),
    shared!("a_gibibyte_is_served_again", large::one).long(),
    shared!("so_are_four", large::four).long(),
];

/// Those that break a bed, or need one that has never heard of anything.
const APART: [Scenario; 2] = [
    Scenario::gate(
        "restore",
        "a_node_is_cut_off_while_its_member_fetches",
        Bed::Alone,
        |stage| Box::pin(hurt::node_cut_off(stage)),
    )
    .on_three_nodes(),
    Scenario::gate(
        "restore",
        "a_new_kubernetes_is_given_everything_from_the_bucket_alone",
        Bed::Own(1),
        |stage| Box::pin(drill::on_a_new_kubernetes(stage)),
    )
    // A shell on a node asks the resolver of this host, to which no way leads from there.
    .leaving()
    .long(),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    let full = FULL.into_iter().chain(APART).map(Scenario::full);
    GATE.into_iter().chain(full)
}
