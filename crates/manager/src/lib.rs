//! The binary `etcd-operator`: command line, logs, and the wiring of the other crates. It makes no decisions about clusters.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`cli`] | subcommands, flags and environment variables |
//! | `values` | parsers for values of flags and variables |
//! | [`logs`] | human or JSON logs |
//! | [`controllers`] | connects the three controllers to the shared informers |
//! | [`run`] | the manager process: start, readiness, leadership, shutdown |
//! | [`jobs`] | the backup commands, in a Job and by hand |
//! | [`dry_run`] | predicts what a restore would do |
//! | [`pod`] | the commands that run in a member's pod |
//! | [`connection`] | the configuration for the API server |
//! | [`version`] | version information of the binary |

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
