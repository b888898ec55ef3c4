//! EtcdClusters on a real Kubernetes: they come into being, grow, shrink, heal, sleep and go, and never lose a write.

pub mod by_hand;
pub mod control;
pub mod heal;
mod helm;
mod kept;
pub mod kills;
mod life;
pub mod nodes;
mod rolled_back;
pub mod secure;
mod stale;
pub mod tenant;
mod wishes;
mod wrong;

use etcd_operator_e2e::scenario::{Bed, Scenario};

macro_rules! shared {
    ($name:literal, $story:path) => {
        Scenario::gate("cluster", $name, Bed::Shared, |stage| Box::pin($story(stage)))
    };
}

macro_rules! alone {
    ($name:literal, $story:path) => {
        Scenario::gate("cluster", $name, Bed::Alone, |stage| Box::pin($story(stage)))
    };
}

macro_rules! own {
    ($name:literal, $story:path) => {
        Scenario::gate("cluster", $name, Bed::Own(1), |stage| Box::pin($story(stage)))
    };
}

/// Those of the gate; it would take too long with all of them.
const GATE: [Scenario; 7] = [
    shared!(
        "three_members_serve_and_what_is_asked_for_twice_changes_nothing",
        life::created
    ),
    shared!(
        "it_grows_to_five_and_shrinks_to_one_and_keeps_every_write",
        life::scaled
    ),
    shared!("it_sleeps_and_wakes_with_all_its_data", life::slept),
    shared!("the_manifest_of_the_older_operator_runs", life::ancestor),
    shared!(
        "a_wiped_member_comes_back_as_a_learner_and_no_write_is_lost",
        heal::wiped_follower
    ),
    shared!("members_restart_without_being_replaced", heal::restarted),
    shared!("damaged_data_are_replaced_and_a_full_disk_is_not", heal::damaged),
];

/// The rest, for their time: each of these takes a minute or more, or a bed for itself.
const FULL: [Scenario; 40] = [
    shared!("one_member_and_five_members", life::of_one_and_of_five),
    shared!("size_and_image_are_enough", life::size_and_image),
    shared!("wishes_about_pods_are_seen_on_one_that_runs", wishes::seen),
    shared!("an_autoscaler_finds_what_it_needs", life::autoscaled),
    alone!("nine_members_come_from_nothing_and_two_go_again", life::of_nine).long(),
    alone!("twenty_at_once", life::many),
    shared!("two_of_one_name_in_two_namespaces_do_not_meet", life::namesakes),
    shared!("a_size_that_changes_while_it_is_followed", life::changed_its_mind),
    shared!("a_paused_cluster_is_left_alone", life::paused),
    shared!("a_wiped_leader_comes_back_on_every_minor", heal::wiped_leader),
    shared!(
        "the_first_disk_is_lost_at_each_moment_of_the_first_start",
        heal::wiped_while_it_formed
    ),
    shared!("killed_and_deleted_members_come_back_as_themselves", heal::killed),
    shared!("a_log_that_was_cut_is_replaced", heal::cut_log),
    shared!(
        "a_voter_emptied_while_another_was_down_loses_nothing",
        heal::emptied_while_another_was_down
    ),
    shared!(
        "a_volume_of_before_never_votes_in_the_place_of_its_member",
        rolled_back::never_votes
    )
    .long(),
    shared!(
        "data_put_back_in_their_place_are_found_out",
        rolled_back::found_out
    ),
    shared!("with_nothing_but_defaults_pods_come_and_go", heal::with_defaults),
    alone!("names_that_cannot_be_found_are_waited_for", heal::without_names),
    alone!(
        "names_that_cannot_be_found_at_first_are_waited_for",
        heal::without_names_at_first
    ),
    Scenario {
        bed: Bed::Own(3),
        ..shared!("a_node_that_is_lost_for_good_is_replaced", nodes::lost)
    },
    Scenario {
        bed: Bed::Own(3),
        ..shared!(
            "with_nothing_but_defaults_a_lost_node_is_replaced_after_five_minutes",
            nodes::lost_with_defaults
        )
    }
    .long(),
    alone!("nodes_are_drained_one_after_the_other", nodes::drained).on_three_nodes(),
    shared!("a_member_that_is_cut_off_is_waited_for", nodes::cut_off),
    alone!(
        "members_without_a_node_delay_only_themselves",
        nodes::without_room
    ),
    alone!("clients_do_not_miss_the_api_server", nodes::api_server_away),
    alone!(
        "the_operator_is_killed_at_twenty_moments",
        control::killed_at_any_moment
    )
    .long(),
    alone!("a_leader_that_stood_still_harms_nothing", stale::stood_still).long(),
    alone!("members_restart_while_no_operator_runs", control::away),
    alone!("helm_waits_for_what_a_release_declares", helm::release_waited_for).long(),
    alone!(
        "clusters_that_do_not_answer_delay_no_other",
        control::silent_beside
    ),
    shared!(
        "what_is_deleted_of_a_cluster_is_put_back",
        by_hand::children_put_back
    ),
    shared!("what_is_changed_by_hand_is_put_back", by_hand::drift_put_back),
    shared!(
        "members_show_one_another_certificates",
        secure::static_certificates
    ),
    shared!(
        "certificates_that_are_their_own_ca_are_accepted",
        secure::self_signed_certificates
    ),
    shared!(
        "two_cas_are_told_before_a_member_is_missing",
        secure::two_authorities
    ),
    shared!(
        "authentication_in_etcd_is_told_and_nothing_is_replaced",
        by_hand::authentication_enabled
    ),
    shared!(
        "a_member_that_was_removed_by_hand_is_replaced",
        by_hand::removed_by_hand
    ),
    shared!(
        "kept_volumes_are_taken_over_by_consent_only",
        kept::adopted_by_consent
    ),
    shared!(
        "kept_volumes_are_emptied_by_consent_only",
        kept::discarded_by_consent
    ),
    shared!(
        "data_go_with_the_cluster_where_that_was_asked_for",
        kept::deleted_if_asked_for
    ),
];

/// Bad wishes, and names that are taken.
const REFUSED: [Scenario; 3] = [
    shared!("objects_of_others_are_not_taken_over", kept::names_of_others),
    // A node that looks for an image knocks where nothing may leave: the shared bed counts that.
    own!("what_cannot_be_had_is_told_and_corrected", wrong::told_and_mended).leaving(),
    own!(
        "an_image_that_cannot_be_had_is_corrected_in_place",
        wrong::image_corrected
    )
    .leaving(),
];

/// All of them.
pub fn scenarios() -> impl Iterator<Item = Scenario> {
    let rest = FULL.into_iter().chain(REFUSED);
    GATE.into_iter().chain(rest.map(Scenario::full))
}
