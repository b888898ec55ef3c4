//! Logs to standard error, as text or JSON.

mod background;

use std::io::{IsTerminal as _, stderr};

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;
use background::BackgroundWriter;
pub use background::Flush;

/// Starts logging. `level` is a log level, or a filter such as `info,etcd_operator_runtime=debug`.
pub fn start(format: LogFormat, level: &str) -> Result<()> {
    start_with(format, level, stderr)
}

/// Starts logging from a thread of its own, so that a reader of standard error that stalls blocks no other thread. Dropping
/// the result waits a bounded time until the messages are written.
pub fn start_in_background(format: LogFormat, level: &str) -> Result<Flush> {
    let (writer, flush) =
        BackgroundWriter::start(stderr()).context("cannot start the thread that writes logs")?;
    start_with(format, level, writer)?;
    Ok(flush)
}

fn start_with<W>(format: LogFormat, level: &str, writer: W) -> Result<()>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // kube logs every failed connection; the informers log each problem once.
    let filter = EnvFilter::try_new(format!("kube_client=off,{level}"))
        .with_context(|| format!("--log-level '{level}' is not a level or filter; for example: info"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(writer);
    let started = match format {
        LogFormat::Human => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("cannot start logging: {e}"))
}
