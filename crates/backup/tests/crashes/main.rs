//! Runs the real controller against a fake API server and a model of the Jobs and the store. The tests kill the operator
//! between any two calls and start a new one.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

mod crash_anywhere;
mod edits;
mod fake_jobs;
mod job_slots;
mod obstacles;
mod operator;
mod test_cluster;
