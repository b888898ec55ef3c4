//! Watches a snapshot stream, and aborts it when it exceeds the limits that protect the cluster.

use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd_operator_api::contract::Limits;

use crate::clock::Stopwatch;
use crate::failure::Failure;
use crate::member_choice::Candidate;
use crate::members::Members;
use crate::stream_limits::StreamMonitor;
use crate::transfer::TransferProgress;

/// How often the received bytes are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// After how many of these checks the size of the database is checked, too.
const CHECKS_PER_SIZE_CHECK: u32 = 8;

/// Returns when the stream must be aborted, with the reason; never returns while it stays within the limits.
pub async fn watch(
    limits: Limits,
    members: &dyn Members,
    candidate: &Candidate,
    progress: &TransferProgress,
) -> Failure {
    let mut monitor = StreamMonitor::new(limits, candidate.db_size);
    let began = Stopwatch::start();
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut checks = 0_u32;
    loop {
        ticks.tick().await;
        // Once etcd has sent everything, a slow store no longer affects the member.
        if progress.has_stream_ended.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let received = progress.received.load(Ordering::Relaxed);
        if let Err(exceeded) = monitor.record_received(began.elapsed(), received) {
            return exceeded.into();
        }
        checks += 1;
        if checks.is_multiple_of(CHECKS_PER_SIZE_CHECK)
            && let Some(size) = members.database_size(candidate).await
            && let Err(exceeded) = monitor.check_database_size(size)
        {
            return exceeded.into();
        }
    }
}
