//! What runs in an etcd pod before etcd: it judges the disk, waits for a permit where it must, and becomes etcd.
//!
//! | module | what for |
//! | --- | --- |
//! | [`view`] | a disk as it was read |
//! | [`verdict`] | what a disk is, to whoever expects something of it |
//! | [`permit`] | whether a permit is good for this process and disk, and what it leads to |
//! | [`nonce`], [`state`] | for how long a nonce is the present one; a waiting process, and its report |
//! | [`command`] | what etcd is told |
//! | [`log`], [`database`] | etcd's files, as far as judging a disk needs them |
//! | [`volume`], [`disk`], [`fingerprint`] | where things lie, reading them, and by what the volume is known again |
//! | [`image`] | whether the image holds the minor version of etcd that the pod template names |
//! | [`keeper`] | every change to a disk, step by step |
//! | [`peers`], [`certificates`], [`serve`] | what is asked of the network before a first start, and what is answered until then |
//! | [`download`], [`side`], [`room`] | what a restore brings, what it makes beside the data, and what that takes |
//! | [`restart`], [`wait`], [`run`] | the start that needs nobody, the one that waits, and which of them it is |
//! | [`tidy`] | what goes when its time is over, while the member runs |
//! | [`install`], [`arrival`] | what comes first in a pod: this program where etcd is, and how far the log goes |
//! | [`ready`] | the command beside: is the member ready |
//! | [`clock`], [`chance`] | the time since the boot and the date, and names nobody can guess |
//!
//! Those up to `command` decide, and a simulator uses them as they are: no IO, no clock, no chance in them.

pub mod arrival;
pub mod certificates;
pub mod chance;
pub mod clock;
pub mod command;
pub mod database;
pub mod disk;
pub mod download;
pub mod fingerprint;
pub mod image;
pub mod install;
pub mod keeper;
pub mod log;
pub mod nonce;
pub mod peers;
pub mod permit;
pub mod ready;
pub mod restart;
pub mod room;
pub mod run;
#[cfg(test)]
mod samples;
pub mod serve;
pub mod side;
pub mod state;
pub mod tidy;
pub mod verdict;
pub mod view;
pub mod volume;
pub mod wait;
