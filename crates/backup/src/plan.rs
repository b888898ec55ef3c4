//! What to do next for an `EtcdBackup`. Pure: the time comes in.

pub mod due;
