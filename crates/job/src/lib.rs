//! The work of backup Jobs, also available by hand: storing a snapshot of etcd, listing, deleting, fetching and inspecting
//! backups. No Kubernetes here; an order says what to do.

pub mod address;
pub mod backup;
pub mod budget;
pub mod catalog;
pub mod checks;
pub mod cli_messages;
pub mod clock;
pub mod compare;
pub mod encoder;
pub mod failure;
pub mod fetch;
pub mod inspect;
pub mod leftovers;
pub mod list;
pub mod live_digest;
pub mod member_choice;
pub mod members;
pub mod names;
pub mod object;
pub mod outcome;
pub mod progress;
pub mod progress_reporter;
pub mod prune;
pub mod settings;
pub mod stream_limits;
pub mod test_restore;
pub mod text;
pub mod transfer;
pub mod verify;

pub use failure::Failure;
