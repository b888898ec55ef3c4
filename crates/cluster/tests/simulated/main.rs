//! The real controller in a simulated world: stories that are told, and lives that a seed decides.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]
#![allow(clippy::print_stdout, reason = "statistics are what a long search is for")]

mod coverage;
mod endings;
mod fate;
mod leads;
mod operator;
mod restores;
mod seeds;
mod settle;
mod stories;
mod traces;
mod weather;

use std::time::Duration;

use mimalloc::MiMalloc;

/// A world is made of small pieces that come and go: a third of the time went into the usual allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);
