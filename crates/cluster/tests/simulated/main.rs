//! The real controller in a simulated world: stories that are told, and lives that a seed decides.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]
#![allow(clippy::print_stdout, reason = "statistics are what a long search is for")]

mod coverage;
mod endings;
mod operator;
mod seeds;
mod stories;
mod weather;

use std::time::Duration;

/// A life is made of small objects that come and go: what gives memory decides how many lives there are in a minute.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);
