//! What runs in a Job of a backup, and by hand: storing a snapshot of etcd, telling what is stored, deleting it, fetching
//! it and looking into it. No Kubernetes here; what is to be done comes as an order.

pub mod address;
pub mod backup;
pub mod budget;
pub mod catalog;
pub mod check;
pub mod choice;
pub mod clock;
pub mod compare;
pub mod failure;
pub mod fetch;
pub mod floor;
pub mod hand;
pub mod inspect;
pub mod leftovers;
pub mod list;
pub mod members;
pub mod names;
pub mod object;
pub mod outcome;
pub mod progress;
pub mod prune;
pub mod pump;
pub mod rehearsal;
pub mod served;
pub mod settings;
pub mod shape;
pub mod teller;
pub mod text;
pub mod verify;

pub use failure::Failure;
