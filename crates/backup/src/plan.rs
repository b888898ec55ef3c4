//! What to do next for an `EtcdBackup`. Pure: the time comes in, and what is stored comes in as a list.

pub mod due;
pub mod retention;
