//! Telling how far something is while it goes on: a line that is written over on a terminal, else a line in the log now
//! and then.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::progress::Progress;

/// How often a bar moves.
const BAR: Duration = Duration::from_millis(200);
/// How often the log has a line.
const LINE: Duration = Duration::from_secs(10);

/// Tells until it is dropped.
pub async fn tell(what: &'static str, done: &AtomicU64, total: u64) -> std::convert::Infallible {
    let is_terminal = stderr().is_terminal();
    let began = Moment::now();
    let _end = if is_terminal { Some(End) } else { None };
    let mut ticks = tokio::time::interval(if is_terminal { BAR } else { LINE });
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let progress = Progress {
            done: done.load(Ordering::Relaxed),
            total,
            time: began.age(),
        };
        if is_terminal {
            // Nobody is left to be told that nobody can be told.
            let _ = write!(stderr(), "\r\x1b[2K{what}  {progress}");
        } else {
            tracing::info!(
                bytes = progress.done,
                total,
                percent = progress.percent(),
                bytes_per_second = progress.rate(),
                seconds_left = progress.left().map(|left| left.as_secs()),
                "{what}"
            );
        }
    }
}

/// Leaves the terminal with an empty line.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let _ = write!(stderr(), "\r\x1b[2K");
    }
}
