//! The one binary, `etcd-operator`: command line, logs, and how the parts are put together. No decision is made here.
//!
//! | module | what for |
//! | --- | --- |
//! | [`cli`] | commands, flags and environment |
//! | `values` | what the text of a flag or variable may be |
//! | [`logs`] | human or JSON logs |
//! | [`controllers`] | the three controllers on the shared informers |
//! | [`run`] | one manager process: start, readiness, leadership, shutdown |
//! | [`jobs`] | the commands about backups, in a Job and by hand |
//! | [`dry_run`] | what a restore would do |
//! | [`pod`] | the commands that run in a pod of etcd |
//! | [`connection`] | how the API server is found, and why it is not |
//! | [`version`] | what this binary is |

pub mod cli;
pub mod connection;
pub mod controllers;
pub mod dry_run;
pub mod jobs;
pub mod logs;
pub mod pod;
pub mod run;
mod values;
pub mod version;
