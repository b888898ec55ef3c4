//! Objects made from the schema a custom resource definition publishes: one leaf at a time, or many by chance.
//!
//! The schema comes in as JSON and no field is known here by name (but in `kinds`, the few that exclude each other), so
//! that a field added to a kind is found by every test that asks for leaves, without a change here.

mod kinds;
mod leaf;
mod objects;
mod silent;
mod value;
mod wishes;

pub use kinds::seeds;
pub use leaf::{Leaf, leaves};
pub use objects::objects;
pub use silent::{Heard, silent};
pub use wishes::Wishes;
