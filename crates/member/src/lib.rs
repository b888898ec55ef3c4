//! What runs in an etcd pod before etcd: it judges the disk, waits for a permit where it must, and becomes etcd.
//!
//! | module | what for |
//! | --- | --- |
//! | [`view`] | a disk as it was read |
//! | [`verdict`] | what a disk is, to whoever expects something of it |
//! | [`permit`] | whether a permit is good for this process and disk, and what it leads to |
//! | [`nonce`] | for how long a nonce is the present one |
//!
//! These decide, and a simulator uses them as they are: no IO, no clock, no chance in them.

pub mod nonce;
pub mod permit;
#[cfg(test)]
mod samples;
pub mod verdict;
pub mod view;
