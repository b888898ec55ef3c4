//! Logs to standard error, as text or JSON.

use std::io::{IsTerminal as _, stderr};

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Starts logging. `level` is a log level, or a filter such as `info,etcd_operator_runtime=debug`.
pub fn start(format: LogFormat, level: &str) -> Result<()> {
    // kube logs every failed connection; the informers log each problem once.
    let filter = EnvFilter::try_new(format!("kube_client=off,{level}"))
        .with_context(|| format!("--log-level '{level}' is not a level or filter; for example: info"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    let started = match format {
        LogFormat::Human => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("cannot start logging: {e}"))
}
