//! Work in a thread of its own beside the steps, with its output in a file.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use crate::{places, run};

/// Lines of the log that a failure shows.
const SHOWN: usize = 40;

/// Work that was started and that a later step waits for.
pub(crate) struct Background {
    log: PathBuf,
    thread: JoinHandle<Result<(), String>>,
}

/// Where the output of background work goes.
pub(crate) struct Log(File);

impl Log {
    /// Runs a command to its end with its output in this file.
    pub(crate) fn run(&self, mut command: Command) -> Result<(), String> {
        let output = |error| format!("cannot write to the log: {error}");
        command
            .stdout(self.0.try_clone().map_err(output)?)
            .stderr(self.0.try_clone().map_err(output)?);
        run::plainly(command)
    }
}

impl Background {
    /// Starts `work`; its output goes to `target/xtask/NAME.log`.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Log) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, String> {
        let directory = places::root().join("target/xtask");
        let log = directory.join(format!("{name}.log"));
        let create = fs::create_dir_all(&directory).and_then(|()| File::create(&log));
        let file = Log(create.map_err(|error| format!("cannot write {}: {error}", log.display()))?);
        println!("{name} are built meanwhile; their output is in {}", log.display());
        let thread = std::thread::spawn(move || work(&file));
        Ok(Self { log, thread })
    }

    /// Waits for the end of the work. A failure brings the last lines of the log.
    pub(crate) fn finish(self) -> Result<(), String> {
        let outcome = self.thread.join().unwrap_or_else(|_| Err("panicked".to_owned()));
        outcome.map_err(|error| {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let shown = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
            format!("{error}\nthe end of {}:\n{shown}", self.log.display())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_failure_shows_what_the_command_printed() {
        let script = |text: &'static str| run::program(Path::new("sh"), ["-c", text]);
        let good = Background::start("test-good", move |log| log.run(script("echo fine")));
        assert_eq!(good.and_then(Background::finish), Ok(()));
        let bad = Background::start("test-bad", move |log| {
            log.run(script("echo the cause >&2; exit 3"))
        });
        let outcome = bad.and_then(Background::finish);
        assert!(
            outcome
                .as_ref()
                .is_err_and(|why| why.contains("exit status: 3") && why.contains("the cause")),
            "{outcome:?}"
        );
    }
}
