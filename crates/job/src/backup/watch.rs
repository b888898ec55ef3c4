//! Watching a stream for the cluster's sake, and saying why it must end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::choice::Candidate;
use crate::clock::Moment;
use crate::failure::Failure;
use crate::floor::Floor;
use crate::members::Members;
use crate::pump::Flow;
use etcd_operator_api::contract::Limits;

/// How often it is looked how much has come.
const LOOK: Duration = Duration::from_millis(250);
/// After how many looks the member is asked for the size of its database.
const LOOKS: u32 = 8;

/// Says why the stream must end; never comes back while all is well.
pub async fn watch(limits: Limits, members: &dyn Members, candidate: &Candidate, flow: &Flow) -> Failure {
    let mut floor = Floor::new(limits, candidate.db_size);
    let began = Moment::now();
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0_u32;
    loop {
        ticks.tick().await;
        // What is left to be stored holds etcd up no more.
        if flow.has_ended.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        if let Err(why) = floor.came(began.age(), flow.received.load(Ordering::Relaxed)) {
            return why.into();
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS)
            && let Some(size) = members.size(candidate).await
            && let Err(why) = floor.size(size)
        {
            return why.into();
        }
    }
}
