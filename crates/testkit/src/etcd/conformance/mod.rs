//! What etcd does about members, starts and lost disks, as a list of cases. The same list runs against the model and
//! against real processes; where they differ the model is wrong. A case ends by panicking at the first surprise.

mod bed;
mod changes;
mod losses;
mod starts;
mod versions;

use std::fmt;

use etcd_operator_etcd::version::{Minor, Version};
use futures::future::BoxFuture;

pub use self::bed::{Bed, ModelBed};

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// The behaviour, as a sentence.
    pub name: &'static str,
    /// Which minors show it.
    pub minors: &'static [Minor],
    run: fn(&dyn Bed) -> BoxFuture<'_, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    /// Runs the case on a bed of its own.
    pub async fn run(&self, bed: &dyn Bed) {
        (self.run)(bed).await;
    }

    /// Whether a version shows it.
    pub fn is_about(&self, version: &Version) -> bool {
        Minor::of(version).is_some_and(|minor| self.minors.contains(&minor))
    }
}

/// Every minor.
const ALL: &[Minor] = &Minor::ALL;
/// Minors with learners.
const LEARNERS: &[Minor] = &[Minor::V3_4, Minor::V3_5, Minor::V3_6, Minor::V3_7];
/// Minors with a next one.
const NOT_NEWEST: &[Minor] = &[Minor::V3_2, Minor::V3_3, Minor::V3_4, Minor::V3_5, Minor::V3_6];

macro_rules! cases {
    ($($module:ident :: $case:ident on $minors:expr,)+) => {
        vec![$(Case { name: stringify!($case), minors: $minors, run: |bed| Box::pin($module::$case(bed)) },)+]
    };
}

/// Every case.
pub fn cases() -> Vec<Case> {
    cases! {
        starts::members_that_start_together_read_the_same on ALL,
        starts::ids_come_from_addresses_and_token on ALL,
        starts::a_survivor_that_restarts_alone_answers_nobody on ALL,
        starts::a_join_with_another_list_of_members_fails on ALL,
        starts::a_join_that_reaches_nobody_fails_and_can_be_tried_again on ALL,
        changes::a_learner_is_promoted_once_it_is_in_sync on LEARNERS,
        changes::right_after_a_join_another_member_has_to_wait on LEARNERS,
        changes::a_voter_that_is_down_can_be_removed_and_a_healthy_one_not on ALL,
        changes::the_last_voter_stays on ALL,
        changes::a_removed_member_ends_well_and_ends_again on ALL,
        changes::a_member_is_replaced_in_place on LEARNERS,
        changes::a_stranger_at_the_address_of_a_learner_becomes_that_learner on LEARNERS,
        losses::an_emptied_voter_is_killed_by_a_leader_that_remembers on LEARNERS,
        losses::an_emptied_voter_that_starts_anew_loses_what_it_acknowledged on ALL,
        losses::an_emptied_voter_that_starts_anew_is_refused_if_a_peer_answers on ALL,
        losses::an_emptied_voter_that_joins_again_loses_what_it_acknowledged on ALL,
        losses::a_voter_turned_back_loses_what_it_acknowledged on ALL,
        versions::the_cluster_version_is_that_of_members_that_all_answer on ALL,
        versions::a_minor_upgrade_can_be_reversed_until_the_last_member_runs_it on NOT_NEWEST,
        versions::a_join_on_an_older_minor_fails on NOT_NEWEST,
        versions::a_version_two_minors_above_panics_on_the_log on &[Minor::V3_5],
        versions::a_version_two_minors_above_needs_a_snapshot_of_the_log on &[Minor::V3_5],
        versions::members_are_downgraded_by_request on &[Minor::V3_5, Minor::V3_6],
    }
}
