//! From nothing to an operator with samples, and back: `up` and `down`, twice, after a reboot, killed, and beside one
//! another.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::install::{Kubernetes, TO_TRY};
use etcd_operator_e2e::process::{ProcessId, Sent};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{deadline::until, host::Host, images};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::install_commands::{Commands, kubeconfig};

const SOON: Duration = Duration::from_mins(1);
/// What a story may take, so that there is time left to end its bed.
const STORY_LIMIT: Duration = Duration::from_mins(8);
/// What `down` may take, by the project's budget.
const AT_ONCE: Duration = Duration::from_secs(15);

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate(
        "install",
        "up_survives_a_reboot_converges_and_serves_a_context_and_down_leaves_nothing",
        Bed::Without,
        |stage| Box::pin(up_and_down(stage)),
    ),
    Scenario::gate(
        "install",
        "down_removes_the_cache_only_when_it_is_told_to",
        Bed::Without,
        |stage| Box::pin(purged(stage)),
    ),
    // What one node shows, with more of them, for half a minute more.
    Scenario::gate(
        "install",
        "up_makes_three_nodes_when_it_is_told_to",
        Bed::Without,
        |stage| Box::pin(three_nodes(stage)),
    )
    .full(),
    // Three more beds, one after the other.
    Scenario::gate(
        "install",
        "an_up_that_is_killed_leaves_nothing_and_two_at_once_make_one_bed",
        Bed::Without,
        |stage| Box::pin(killed_and_twice(stage)),
    )
    .full(),
    // Another bed that shows nothing of the operator.
    Scenario::gate(
        "install",
        "down_ends_a_bed_at_once_on_which_an_up_is_at_work",
        Bed::Without,
        |stage| Box::pin(ended_meanwhile(stage)),
    )
    .full(),
    // Once more a bed of its own that shows nothing of the operator.
    Scenario::gate(
        "install",
        "an_up_that_does_not_start_says_what_to_do_and_leaves_a_report",
        Bed::Without,
        |stage| Box::pin(not_started(stage)),
    )
    .full(),
];

async fn try_all(said: &str, kubeconfig: &Path) -> Result<()> {
    ensure!(TO_TRY.iter().all(|line| said.contains(line)), "{said}");
    let kubernetes = Kubernetes::at(kubeconfig).await?;
    for line in TO_TRY {
        let said = kubernetes.try_out(line).await?;
        ensure!(!said.trim().is_empty(), "`{line}` says nothing");
    }
    Ok(())
}

async fn up_and_down(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let played = tokio::time::timeout(STORY_LIMIT, converges(&commands)).await;
    commands.end(played.context("it takes too long").flatten()).await
}

async fn converges(commands: &Commands<'_>) -> Result<()> {
    let first = commands.up(&[]).await?;
    try_all(&first, &kubeconfig(&first)?).await?;

    reboot(commands, &kubeconfig(&first)?)?;
    let anew = commands.up(&[]).await?;
    ensure!(anew.contains("starting the bed"), "{anew}");
    let kubeconfig = kubeconfig(&anew)?;
    try_all(&anew, &kubeconfig).await?;

    let again = commands.up(&[]).await?;
    let place = kubeconfig.display().to_string();
    ensure!(
        again.contains("stands already") && again.contains(&place),
        "{again}"
    );
    let three = commands.up(&["--nodes=3"]).await;
    ensure!(
        three.is_err_and(|error| format!("{error:#}").contains("xtask down")),
        "it was replaced"
    );
    contexts(commands, &kubeconfig).await
}

/// What a reboot does: everything ends at once, notes and directories stay, and pids are given to others.
fn reboot(commands: &Commands<'_>, kubeconfig: &Path) -> Result<()> {
    let bed = kubeconfig.parent().context("the kubeconfig lies nowhere")?;
    let mut note: Value = serde_json::from_slice(&std::fs::read(commands.note())?)?;
    let of_note = |process: &Value| -> Option<ProcessId> {
        let pid = u32::try_from(process["pid"].as_u64()?).ok()?;
        Some(ProcessId::recorded(pid, process["started"].as_u64()?))
    };
    let keeper = of_note(&note["keeper"]).context("the note names no keeper")?;
    let recorded = std::fs::read_to_string(bed.join("processes"))?;
    let recorded = recorded.lines().map(str::parse);
    for process in recorded.chain([Ok(keeper)]) {
        process?.send(Sent::Kill)?;
    }
    for entry in std::fs::read_dir(bed)?.flatten() {
        let _ = std::fs::remove_dir_all(entry.path().join("run"));
    }
    let somebody = ProcessId::own()?;
    note["boot"] = json!("that of yesterday");
    note["keeper"] = json!({ "pid": somebody.pid(), "started": somebody.started() });
    std::fs::write(commands.note(), note.to_string())?;
    Ok(())
}

/// A Kubernetes of somebody's own: with an image its nodes can pull, with one that is given to them, and with neither.
async fn contexts(commands: &Commands<'_>, kubeconfig: &Path) -> Result<()> {
    let image = format!("--image={}", images::OPERATOR);
    let other = commands.up_in("bed", &[&image], kubeconfig, None).await?;
    ensure!(other.contains("use-context 'bed'"), "{other}");
    let without = commands.up_in("bed", &[], kubeconfig, None).await;
    ensure!(
        without.is_err_and(|error| format!("{error:#}").contains("--image")),
        "nobody gave it an image"
    );

    // A stand-in for kind: the nodes have the image already.
    let programs = commands.state.path().join("programs");
    std::fs::create_dir(&programs)?;
    let kind = programs.join("kind");
    std::fs::write(&kind, "#!/bin/sh\necho \"$@\" > \"$0.called\"\n")?;
    std::fs::set_permissions(&kind, Permissions::from_mode(0o755))?;
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&usual)))?;
    let renamed = commands
        .state
        .write("kind.kubeconfig", std::fs::read(kubeconfig)?)?;
    let text = std::fs::read_to_string(&renamed)?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    config["contexts"][0]["name"] = json!("kind-bed");
    std::fs::write(&renamed, config.to_string())?;
    let other = commands.up_in("kind-bed", &[], &renamed, Some(&path)).await?;
    ensure!(other.contains("use-context 'kind-bed'"), "{other}");
    let called = std::fs::read_to_string(kind.with_extension("called"))?;
    ensure!(
        called.starts_with("load image-archive /") && called.ends_with(" --name bed\n"),
        "{called}"
    );
    Ok(())
}

async fn killed_and_twice(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let played = tokio::time::timeout(STORY_LIMIT, async {
        // Nobody is told of its end: what it has begun must end by itself or by `down`.
        let mut up = Command::new(env!("CARGO_BIN_EXE_bed"))
            .args(["up", &commands.operator])
            .env("XDG_STATE_HOME", commands.state.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let keeper = commands.note().with_file_name("keeper.json");
        until("the bed has a keeper", SOON, || async {
            Ok(keeper.exists().then_some(()))
        })
        .await?;
        up.kill().await?;
        let down = commands.run(&["down"], &[]).await?;
        ensure!(down.contains("nothing is left of it"), "{down}");

        let (one, other) = tokio::join!(commands.up(&[]), commands.up(&[]));
        ensure!(kubeconfig(&one?)? == kubeconfig(&other?)?, "two beds stand");
        Ok(())
    })
    .await;
    commands.end(played.context("it takes too long").flatten()).await
}

/// Both who installs and who waits for what was installed is told, and nobody waits for them.
async fn ended_meanwhile(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let played = tokio::time::timeout(STORY_LIMIT, async {
        for moment in ["installing the chart", "waiting for the manager"] {
            let mut up = Command::new(env!("CARGO_BIN_EXE_bed"))
                .args(["up", &commands.operator])
                .env("XDG_STATE_HOME", commands.state.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let said = up.stdout.take().context("what it says cannot be read")?;
            let mut said = BufReader::new(said).lines();
            while !said
                .next_line()
                .await?
                .with_context(|| format!("it ended before {moment}"))?
                .contains(moment)
            {}
            let began = Instant::now();
            let down = commands.run(&["down"], &[]).await?;
            ensure!(down.contains("nothing is left of it"), "{down}");
            let took = began.elapsed();
            ensure!(took < AT_ONCE, "{moment}: `down` took {} s", took.as_secs());
            let ended = tokio::time::timeout(AT_ONCE, up.wait_with_output())
                .await
                .with_context(|| format!("{moment}: `up` goes on without a bed"))??;
            let complaint = String::from_utf8_lossy(&ended.stderr);
            ensure!(!ended.status.success(), "{moment}: `up` says it is done");
            ensure!(
                complaint.contains("the bed was ended meanwhile"),
                "{moment}: {complaint}"
            );
        }
        commands.up(&[]).await?;
        Ok(())
    })
    .await;
    commands.end(played.context("it takes too long").flatten()).await
}

/// With a cache of its own, in which an image is damaged.
async fn not_started(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let pause = images::base().await?.swap_remove(0);
    let entry = pause.parent().context("an image lies nowhere")?;
    let cache = commands.state.path().join("cache/etcd-operator");
    std::fs::create_dir_all(&cache)?;
    for other in std::fs::read_dir(entry.parent().context("the cache lies nowhere")?)?.flatten() {
        if other.path() != entry {
            std::os::unix::fs::symlink(other.path(), cache.join(other.file_name()))?;
        }
    }
    let damaged = cache.join(entry.file_name().context("an image has no name")?);
    std::fs::create_dir(&damaged)?;
    std::fs::write(damaged.join("image.tar"), "no archive")?;

    let home = commands.state.path().join("cache");
    let around = [("XDG_CACHE_HOME", home.as_os_str())];
    let Err(failure) = commands.run(&["up", &commands.operator], &around).await else {
        bail!("a bed started with a damaged image");
    };
    let failure = format!("{failure:#}");
    let report = commands.note().with_file_name("report");
    for told in [
        "down --purge",
        &damaged.display().to_string(),
        &report.display().to_string(),
    ] {
        ensure!(failure.contains(told), "{failure}");
    }
    ensure!(report.join("processes/node-1/containerd.log").is_file());
    let left = Host::left_since(&commands.before).await?;
    ensure!(left.is_empty(), "left: {left:#?}");
    let down = commands.run(&["down"], &[]).await?;
    ensure!(!report.exists(), "{down}");
    Ok(())
}

async fn three_nodes(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let played = async {
        let said = commands.up(&["--nodes=3"]).await?;
        let kubeconfig = kubeconfig(&said)?;
        try_all(&said, &kubeconfig).await?;
        let kubernetes = Kubernetes::at(&kubeconfig).await?;
        let wait = ["wait", "node", "--all", "--for=condition=Ready", "--timeout=100s"];
        let ready = kubernetes.kubectl(&wait).await?;
        ensure!(ready.lines().count() == 3, "{ready}");
        Ok(())
    }
    .await;
    commands.end(played).await
}

/// With a cache of its own, which holds what a cache does that nothing was built into.
async fn purged(stage: Arc<Stage>) -> Result<()> {
    let commands = Commands::new(&stage).await?;
    let cache = commands.state.path().join("cache");
    let entry = cache.join("etcd-operator/kubernetes-0123456789abcdef");
    std::fs::create_dir_all(&entry)?;
    let around = [("XDG_CACHE_HOME", cache.as_os_str())];
    let said = commands.run(&["down"], &around).await?;
    ensure!(entry.exists(), "`down` removed the cache: {said}");
    let said = commands.run(&["down", "--purge"], &around).await?;
    ensure!(said.contains(&cache.display().to_string()), "{said}");
    ensure!(!cache.join("etcd-operator").exists(), "{said}");
    Ok(())
}
