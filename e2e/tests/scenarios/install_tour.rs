//! The tutorial on the bed that `cargo xtask up` makes: typed in a clone, in a shell with the lines that `up` prints.
#![allow(clippy::print_stdout, reason = "how long it takes is what is promised")]

use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::book::{Kind, Page, repository};
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use tokio::process::Command;

use crate::install_commands::{Commands, exports, kubeconfig};

/// What a page of ten minutes may take between two calls of `up`, so that there is time left to end the bed.
const LIMIT: Duration = Duration::from_mins(25);

pub const SCENARIOS: &[Scenario] = &[
    // The page itself is followed before every change, on a bed that is made otherwise.
    Scenario::gate(
        "install",
        "the_tutorial_works_as_printed_on_the_bed_that_up_makes",
        Bed::Without,
        |stage| Box::pin(toured(stage)),
    )
    .full()
    .long(),
];

async fn toured(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let played = tokio::time::timeout(LIMIT, tour(&commands)).await;
    commands.end(played.context("it takes too long").flatten()).await
}

async fn tour(commands: &Commands<'_>) -> Result<()> {
    let made = commands.up(&[]).await?;
    let page = Page::read("docs/tutorial.md")?;
    let began = Instant::now();
    let said = typed(&exports(&made)?, &page).await?;
    let seconds = began.elapsed().as_secs();
    commands
        .stage
        .note(&format!("{said}\nthe page was followed in {seconds} s"));
    println!("docs/tutorial.md was followed on the bed of `up` in {seconds} s");
    ensure!(seconds <= 600, "ten minutes are promised, it took {seconds} s");
    let (_, restored) = said
        .split_once("etcdrestore.etcd.database.coreos.com/orders-copy condition met")
        .context("nothing was restored")?;
    for name in ["ada", "grace"] {
        ensure!(
            restored.contains(&format!("customers/{name}\npaid")),
            "{name} is lost:\n{said}"
        );
    }

    // The page leaves a mistake behind, and promises that another `up` mends it.
    let kubernetes = Kubernetes::at(&kubeconfig(&made)?).await?;
    let zone = [
        "--namespace",
        NAMESPACE,
        "get",
        "etcdbackup",
        "orders-nightly",
        "--output=jsonpath={.spec.timeZone}",
    ];
    let mistaken = kubernetes.kubectl(&zone).await?;
    ensure!(mistaken == "Middle/Earth", "{mistaken}");
    let again = commands.up(&[]).await?;
    ensure!(again.contains("stands already"), "{again}");
    let mended = kubernetes.kubectl(&zone).await?;
    ensure!(mended == "Europe/Berlin", "{mended}");
    Ok(())
}

/// All that a page has to be typed, in one shell after these lines; what it says. It ends where something fails that is
/// not meant to.
async fn typed(exports: &[&str], page: &Page) -> Result<String> {
    let mut script = format!("{}\n", exports.join("\n"));
    for block in page.shell() {
        let Kind::Shell { fails } = block.kind else {
            bail!("{} is nothing to type", block.place);
        };
        let mode = if fails == 0 { "set -e" } else { "set +e" };
        writeln!(
            script,
            "echo '### {}'\n{mode}\nrefused=0\ntrap 'refused=$((refused + 1))' ERR\n{}trap - ERR\n\
             [ $refused = {fails} ] || {{ echo \"$refused commands were refused, not {fails}\"; exit 1; }}",
            block.place, block.text
        )?;
    }
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script])
        .current_dir(repository())
        // The bed is on this host, whatever way leads out of it.
        .env("NO_PROXY", "*")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = shell.output().await.context("cannot run bash")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = said.lines().rev().find_map(|line| line.strip_prefix("### "));
    ensure!(
        output.status.success(),
        "{}: {}\n{said}\n{}",
        place.unwrap_or("nowhere"),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}
