//! What runs before etcd, against every etcd: verdicts of real disks, and the real binary that waits, starts, restarts
//! and refuses.

mod disks;
mod joins;
mod names;
mod pods;
mod restores;
mod starts;
mod volumes;
