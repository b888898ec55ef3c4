//! Data of before are removed when their time is over, and not only at the next start: by a process of its own beside etcd,
//! which is there only as long as something is kept, and ends with etcd.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::clock;
use crate::keeper::{Keeper, NotKept};
use crate::volume::Volume;

/// This very program, whatever its file is called by now.
const SELF: &str = "/proc/self/exe";
/// How long it sleeps at most: the date may be set meanwhile.
const LONGEST: Duration = Duration::from_mins(10);
/// How long it sleeps at least.
const SHORTEST: Duration = Duration::from_millis(100);

/// Starts `etcd-operator tidy` as a child process, if the volume has a list of what is kept. If that fails, etcd starts
/// all the same, and the next start tidies.
pub fn start(volume: &Volume) {
    if !volume.kept_list().exists() {
        return;
    }
    let started = Command::new(SELF)
        .arg("tidy")
        .arg(volume.root())
        .stdin(Stdio::null())
        .spawn();
    match started {
        Ok(child) => tracing::info!(
            process = child.id(),
            "what was set aside is removed when its time is over"
        ),
        Err(error) => tracing::warn!("what was set aside stays until the next start: {error}"),
    }
}

/// Why it ended although something is still kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk cannot be written.
    #[error("{0}")]
    Disk(#[from] NotKept),
    /// It cannot be told when etcd ends, or wait.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Sleeps and removes until nothing is kept any more. Ends with its parent, which is etcd by then.
pub fn run(volume: &Volume) -> Result<(), Error> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // It may have ended just before.
    if getppid() != parent {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        while let Some(next) = Keeper::new(volume, &mut |_| Ok(())).tidy_kept(clock::date())? {
            tokio::time::sleep(pause(next, clock::date())).await;
        }
        Ok(())
    })
}

/// How long to sleep until then, at most ten minutes at a time.
fn pause(next: Timestamp, now: Timestamp) -> Duration {
    let rest = Duration::try_from(next.duration_since(now)).unwrap_or(Duration::ZERO);
    rest.clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_until_the_next_is_due_and_looks_at_the_date_now_and_then() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        for (next, now, wanted) in [
            (at(100), at(95), Duration::from_secs(5)),
            (at(100), at(200), SHORTEST),
            (at(1_000_000), at(0), LONGEST),
            (Timestamp::MAX, at(0), LONGEST),
        ] {
            assert_eq!(pause(next, now), wanted);
        }
    }
}
