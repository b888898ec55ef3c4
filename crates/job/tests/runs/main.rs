//! Whole runs against members and a store that do as they are told: what is stored counts, what failed leaves nothing.

mod deleting;
mod fetching;
mod killed;
mod places;
mod restoring;
mod storing;
mod support;
mod verifying;
