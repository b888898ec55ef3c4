//! Running a program to its end and hearing every line it says, with a heartbeat while it says nothing. What the
//! lines mean is not known here.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

/// How often a program that is followed says how far it is.
const BEAT: Duration = Duration::from_secs(10);
/// Lines of a program's output that are repeated when it fails.
const TAIL: usize = 30;

/// What is heard.
pub(super) enum Heard {
    /// A line of standard output.
    Out(String),
    /// A line of standard error.
    Err(String),
    /// Time has passed.
    Beat,
}

/// Runs `command` to success; `what` names it in an error, which repeats its last lines.
pub(super) async fn follow(
    mut command: Command,
    what: &str,
    limit: Duration,
    mut hear: impl FnMut(Heard),
) -> Result<()> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let (sender, mut lines) = mpsc::channel(64);
    let out = child.stdout.take().context("no standard output was captured")?;
    let err = child.stderr.take().context("no standard error was captured")?;
    tokio::spawn(pass_on(out, sender.clone(), Heard::Out));
    tokio::spawn(pass_on(err, sender, Heard::Err));

    let mut tail: Vec<String> = Vec::new();
    let mut beat = tokio::time::interval(BEAT);
    beat.tick().await;
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => {
                    if let Heard::Err(text) = &line {
                        if tail.len() == TAIL {
                            tail.remove(0);
                        }
                        tail.push(text.clone());
                    }
                    hear(line);
                }
                None => break,
            },
            _ = beat.tick() => {
                if start.elapsed() > limit {
                    bail!("{what} took longer than {} min", limit.as_secs() / 60);
                }
                hear(Heard::Beat);
            }
        }
    }
    let status: ExitStatus = child
        .wait()
        .await
        .with_context(|| format!("cannot wait for {what}"))?;
    if !status.success() {
        bail!("{what} failed ({status}):\n{}", tail.join("\n"));
    }
    Ok(())
}

async fn pass_on(from: impl AsyncRead + Unpin, to: mpsc::Sender<Heard>, kind: fn(String) -> Heard) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if to.send(kind(line)).await.is_err() {
            return;
        }
    }
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
    async fn a_failure_repeats_what_the_program_said_last() {
        let mut out = Vec::new();
        let error = follow(
            shell("echo one; echo two >&2; exit 3"),
            "the program",
            Duration::from_secs(10),
            |heard| {
                if let Heard::Out(line) = heard {
                    out.push(line);
                }
            },
        )
        .await
        .unwrap_err()
        .to_string();
        assert_eq!(out, ["one"]);
        assert!(
            error.contains("the program failed (exit status: 3)") && error.contains("two"),
            "{error}"
        );
    }
}
