//! Running a program to its end: with input, with a limit, and with its own words in the error.
//!
//! Processes that stay are not started here; see [`crate::launch`].

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long a command of the bed itself may take: seconds on an idle machine, and machines are busy.
const LIMIT: Duration = Duration::from_mins(3);

/// Cargo as if it were called by hand. What it tells a test about its own package is taken away again: build scripts of
/// dependencies watch some of it, and would have all that stands on them built anew, now and at the next call by hand.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let word = name.to_string_lossy();
        if word.starts_with("CARGO_PKG_") || word.starts_with("CARGO_MANIFEST_") || word == "CARGO_CRATE_NAME"
        {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Runs it with this on its standard input; its exit status is for the caller to judge.
pub async fn output(mut command: Command, input: &str) -> Result<Output> {
    let program = describe(&command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let work = async {
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input closes it; its exit status tells the rest.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        output
    };
    tokio::time::timeout(LIMIT, work)
        .await
        .with_context(|| format!("{program} did not end within {} s", LIMIT.as_secs()))?
        .with_context(|| format!("cannot run {program}"))
}

/// Runs it and returns what it printed; anything but success is an error with what it said.
pub async fn succeed(command: Command, input: &str) -> Result<String> {
    let what = describe(&command);
    printed(output(command, input).await?, &what)
}

/// What a program printed, if it succeeded.
pub fn printed(output: Output, what: &str) -> Result<String> {
    if !output.status.success() {
        bail!(
            "{what} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what} did not print UTF-8"))
}

fn describe(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_failure_repeats_what_the_program_said() {
        let error = succeed(shell("echo no such island >&2; exit 3"), "")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no such island"), "{error}");
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }

    #[tokio::test]
    async fn input_reaches_the_program_and_one_that_ignores_it_does_no_harm() {
        assert_eq!(succeed(shell("cat"), "a word").await.unwrap(), "a word");
        let long = "x".repeat(1 << 20);
        assert_eq!(succeed(shell("echo done"), &long).await.unwrap(), "done\n");
    }
}
