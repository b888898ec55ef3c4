//! Reports the progress of a transfer: a bar on a terminal, else a log line now and then.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::progress::Progress;

/// How often the bar is redrawn.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// How often a line is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Reports how many of `total` bytes are `done`, until it is dropped.
pub async fn report(what: &'static str, done: &AtomicU64, total: u64) -> std::convert::Infallible {
    let is_terminal = stderr().is_terminal();
    let began = Stopwatch::start();
    let _clear_line = if is_terminal { Some(ClearLine) } else { None };
    let mut ticks = tokio::time::interval(if is_terminal { BAR_INTERVAL } else { LOG_INTERVAL });
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let progress = Progress {
            done: done.load(Ordering::Relaxed),
            total,
            elapsed: began.elapsed(),
        };
        if is_terminal {
            // A failure to write to the terminal cannot be reported anywhere.
            let _ = write!(stderr(), "\r\x1b[2K{what}  {progress}");
        } else {
            tracing::info!(
                bytes = progress.done,
                total,
                percent = progress.percent(),
                bytes_per_second = progress.bytes_per_second(),
                seconds_left = progress.time_left().map(|left| left.as_secs()),
                "{what}"
            );
        }
    }
}

/// Clears the line of the bar when it is dropped.
struct ClearLine;

impl Drop for ClearLine {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[2K");
    }
}
