//! What goes wrong on purpose, as methods of [`crate::Cluster`]. Every fault that lasts is a value with a probe that reads
//! its effect, and is healed through it; a fault that did nothing is a defect of the bed, and is found by scenarios.
//!
//! Faults reach into the kernel (packets, processes, disks), not into what is under test.

mod database;
mod disk;
mod hop;
mod network;
mod node;
mod process;
mod store;

pub use disk::SlowDisk;
pub use hop::Hop;
pub use network::{Rate, Rules, Unplugged};
pub use process::Container;
pub use store::{CREDENTIALS, REGION, Store, StoreFault, profile, signing};
