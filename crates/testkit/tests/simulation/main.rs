//! The simulator proved without the operator: a small one that does things right is never blamed, and each way of doing
//! them wrong is.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

mod apprentice;
mod flaws;
mod interleavings;
mod machines;
mod objects;
mod stories;
