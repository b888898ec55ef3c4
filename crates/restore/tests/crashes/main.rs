//! The restore controller on a fake API server, killed before and after every call it makes.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

mod crash_points;
mod fixture;
mod interference;
mod operator;
mod simulated_cluster;
