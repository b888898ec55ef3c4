//! EtcdClusters on a real Kubernetes: they come into being, grow, shrink, heal, sleep and go, and never lose a write.

mod heal;
mod life;
mod tenant;

use etcd_operator_e2e::scenario::{Bed, Scenario};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "cluster",
        "three_members_serve_and_what_is_asked_for_twice_changes_nothing",
        Bed::Shared,
        |stage| Box::pin(life::created(stage)),
    ),
    Scenario::gate(
        "cluster",
        "it_grows_to_five_and_shrinks_to_one_and_keeps_every_write",
        Bed::Shared,
        |stage| Box::pin(life::scaled(stage)),
    ),
    Scenario::gate(
        "cluster",
        "it_sleeps_and_wakes_with_all_its_data",
        Bed::Shared,
        |stage| Box::pin(life::slept(stage)),
    ),
    Scenario::gate(
        "cluster",
        "the_manifest_of_the_older_operator_runs",
        Bed::Shared,
        |stage| Box::pin(life::ancestor(stage)),
    ),
    Scenario::gate(
        "cluster",
        "a_wiped_member_comes_back_as_a_learner_and_no_write_is_lost",
        Bed::Shared,
        |stage| Box::pin(heal::wiped(stage)),
    ),
    Scenario::gate(
        "cluster",
        "members_restart_without_the_operator",
        Bed::Shared,
        |stage| Box::pin(heal::restarted(stage)),
    ),
    Scenario::gate(
        "cluster",
        "damaged_data_are_replaced_and_a_full_disk_is_not",
        Bed::Shared,
        |stage| Box::pin(heal::damaged(stage)),
    ),
];
