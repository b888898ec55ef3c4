//! The clock by which leaders judge themselves, on a machine that was suspended. Suspending the machine of a test is
//! out of the question; the kernel shows a process the same two clocks, one of them a day ahead, in a time namespace.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_runtime::clock::{Clock as _, SystemClock};

const THIS: &str = "the_clock_of_leaders_counts_on_while_the_machine_is_suspended";
/// Set where the clock is to be read and told.
const TELL: &str = "ETCD_OPERATOR_TEST_TELL_TIME";
const SUSPENDED: Duration = Duration::from_hours(24);
/// More than a start takes.
const SLACK: Duration = Duration::from_mins(5);

#[test]
fn the_clock_of_leaders_counts_on_while_the_machine_is_suspended() -> Result<()> {
    if std::env::var_os(TELL).is_some() {
        println!("elapsed={}", SystemClock.elapsed().as_secs());
        return Ok(());
    }
    let before = SystemClock.elapsed();
    let ahead = SUSPENDED.as_secs().to_string();
    let output = Command::new("unshare")
        .args(["--time", "--boottime", &ahead, "--fork", "--"])
        .arg(std::env::current_exe().context("cannot tell where this test lies")?)
        .args(["--exact", THIS, "--nocapture"])
        .env(TELL, "yes")
        .output()
        .context("cannot run unshare")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}\n{complained}");
    let (_, rest) = said.split_once("elapsed=").context("it told no time")?;
    let elapsed: u64 = rest.lines().next().unwrap_or_default().parse()?;
    let passed = Duration::from_secs(elapsed).saturating_sub(before);
    ensure!(
        passed.abs_diff(SUSPENDED) < SLACK,
        "{passed:?} passed by this clock, and the machine was suspended for {SUSPENDED:?}"
    );
    Ok(())
}
