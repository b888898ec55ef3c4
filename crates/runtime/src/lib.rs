//! What every controller of the operator stands on.

pub mod clock;
pub mod controller;
pub mod error;
#[cfg(test)]
mod fake;
pub mod fence;
pub mod gate;
pub mod informer;
pub mod jitter;
pub mod key;
pub mod leader;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod store;
pub mod wakeup;
