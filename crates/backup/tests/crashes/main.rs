//! The real controller on a fake API server, with a small model of what Kubernetes and a store do with its Jobs. It is
//! killed between any two calls, and started again.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

mod bed;
mod edits;
mod jobs;
mod operator;
mod stories;
