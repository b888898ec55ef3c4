//! Waiting for a condition, never for a length of time: every wait has a deadline and says what it waited for.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Asks `probe` until it yields a value; an error names `what` and comes after `within` at the latest, even when
/// one single probe hangs.
pub async fn until<T, F, Fut>(what: &str, within: Duration, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let wait = async {
        loop {
            if let Some(value) = probe().await? {
                return Ok(value);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(within, wait).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("{what}: not within {} s", within.as_secs_f32()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gives_up_at_the_deadline_and_names_the_condition() {
        let outcome: Result<()> = until("the moon", Duration::from_secs(3), || async { Ok(None) }).await;
        assert_eq!(outcome.unwrap_err().to_string(), "the moon: not within 3 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_probe_does_not_outlive_the_deadline() {
        let outcome: Result<()> = until("an answer", Duration::from_secs(1), std::future::pending).await;
        assert!(outcome.is_err());
    }
}
