//! What every controller of the operator stands on.

pub mod clock;
pub mod controller;
pub mod error;
pub mod fence;
pub mod gate;
pub mod jitter;
pub mod key;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod wakeup;
