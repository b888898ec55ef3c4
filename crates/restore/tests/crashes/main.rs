//! The controller of restores over an API server, killed before and after every call it makes.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

mod bed;
mod operator;
mod others;
mod stories;
mod surprises;
