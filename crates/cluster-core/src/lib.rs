//! What the `EtcdCluster` controller decides. Pure: no client, no clock, no chance, no log; the `cluster` crate looks, writes and calls.
//!
//! One pass over one cluster goes: what is asked for ([`desired`]) and what is seen ([`observed_state`]) make a [`plan`] of at most one
//! step; what must survive the operator ([`persisted_state`], [`pending_operation`]) and what people are told ([`status`], [`blocker`])
//! go into the status, and the objects are made to fit ([`build`]).

pub mod blocker;
pub mod build;
pub mod desired;
pub mod next_version;
pub mod observed_state;
pub mod pending_operation;
pub mod persisted_state;
pub mod plan;
pub mod status;
pub mod trim;
