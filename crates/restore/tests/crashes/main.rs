//! The controller of restores over an API server, killed before and after every call it makes.

mod bed;
mod operator;
mod others;
mod stories;
