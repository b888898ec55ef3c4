//! Whole runs against fake members and a store that injects faults: what is stored counts, and a failure leaves nothing.

mod deleting;
mod destinations;
mod fetching;
mod killed;
mod restoring;
mod storing;
mod support;
mod verifying;
