//! The test bed: real Kubernetes components as plain processes on one machine, and the scenarios that run on them.
//!
//! Tests reach everything through [`ControlPlane`] or [`Cluster`]. Nothing here may be needed by the operator itself: this crate
//! is a dev-dependency or a command, never part of the product. No process is ever found by its name: only what a
//! bed has recorded as its own is signalled.

pub mod bed_dir;
pub mod bill;
pub mod book;
pub mod cgroup;
pub mod chronicle;
pub mod cluster;
pub mod command;
pub mod components;
pub mod control_plane;
pub mod deadline;
pub mod emulator;
pub mod faults;
pub mod history;
pub mod host;
pub mod images;
pub mod install;
pub mod large;
mod launch;
pub mod namespaces;
pub mod network;
pub mod observe;
pub mod operator;
pub mod pki;
pub mod previous_release;
pub mod process;
pub mod proxy;
pub mod report;
pub mod rights;
pub mod scenario;
pub mod standing;
mod tunnel;
pub mod unprivileged;
pub mod up;
pub mod version_history;
pub mod volumes;
pub mod workload;

pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Options};
pub use operator::Operator;
pub use proxy::Cut;
