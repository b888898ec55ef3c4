//! How long somebody who works on a bed that stays has patience: until it is done, they are interrupted, or the bed goes.

use std::future::{Future, ready};
use std::time::Duration;

use anyhow::{Result, bail};

use super::Standing;
use crate::deadline::until;

/// How soon a bed is gone whose end makes work on it fail.
const ENDING: Duration = Duration::from_secs(3);
const GONE: &str = "the bed was ended meanwhile, by `down` or a signal; `cargo xtask up` starts another";

/// Does it unless Ctrl-C comes first, which then says what becomes of the bed. Once this was called, Ctrl-C ends nothing
/// by itself any more.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>, then: &'static str) -> Result<T> {
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(Interrupted(then).into()),
    }
}

/// A person did not want to wait.
#[derive(Debug)]
pub(super) struct Interrupted(&'static str);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Does it unless the bed is taken away meanwhile.
pub async fn unless_gone<T>(bed: &Standing, work: impl Future<Output = Result<T>>) -> Result<T> {
    let keeper = bed.keeper.process();
    let gone = |within| {
        until("the end of the bed", within, move || {
            ready(Ok((!keeper.is_running()).then_some(())))
        })
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        Ok(()) = gone(Duration::MAX) => bail!(GONE),
    };
    match outcome {
        // A bed that ends makes the work on it fail first, with a complaint that says nothing of why.
        Err(error) if gone(ENDING).await.is_ok() => Err(error.context(GONE)),
        outcome => outcome,
    }
}
