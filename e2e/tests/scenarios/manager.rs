//! The manager at rest: what it costs when nothing changes, for as long as its own rhythms take.
#![allow(clippy::print_stdout, reason = "the numbers are what this is played for")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};

use crate::crowd;

/// As long as the longest time after which an object is looked at again.
const QUIET: Duration = Duration::from_mins(5);

pub const SCENARIOS: &[Scenario] = &[Scenario::gate(
    "manager",
    "five_minutes_after_the_last_verdict_nothing_was_written",
    Bed::Without,
    |stage| Box::pin(quiet(stage)),
)
.full()];

async fn quiet(stage: Arc<Stage>) -> Result<()> {
    let seen = crowd::play(QUIET).await?;
    stage.note(&format!("{seen:?}"));
    println!("{seen:#?}");
    crowd::check(&seen)
}
