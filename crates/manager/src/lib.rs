//! The one binary, `etcd-operator`: command line, logs, and how the parts are put together. No decision is made here.
//!
//! | module | what for |
//! | --- | --- |
//! | [`cli`] | commands, flags and environment |
//! | [`logs`] | human or JSON logs |
//! | [`controllers`] | the three controllers on the shared informers |
//! | [`run`] | one manager process: start, readiness, leadership, shutdown |
//! | [`version`] | what this binary is |

pub mod cli;
pub mod controllers;
pub mod logs;
pub mod run;
pub mod version;
