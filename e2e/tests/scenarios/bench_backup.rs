//! How fast a backup is, next to etcd's own tool, and how much memory it takes: the binary as it is shipped, a database
//! that is in the page cache, and a store on the same disk.
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "what is measured is for people to read"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::{CREDENTIALS, REGION, profile};
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::operator;
use etcd_operator_e2e::process::ProcessId;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use tokio::process::Command;

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("bench", "backup_of_a_gibibyte", Bed::Without, |stage| {
        Box::pin(measured(stage, 1))
    })
    .bench()
    .long(),
    Scenario::gate("bench", "backup_of_four_gibibytes", Bed::Without, |stage| {
        Box::pin(measured(stage, 4))
    })
    .bench()
    .long(),
];

/// The share of etcd's own tool that is promised.
const SHARE: f64 = 0.9;
/// What may be resident.
const MOST: u64 = 64 << 20;
/// Where the S3 store keeps what it has.
const OBJECTS: &str = "objects";
/// Where it keeps what it knows of them.
const KNOWN: &str = "known-of-objects";
/// What checking a backup may add to storing it.
const CHECKS: f64 = 0.05;

/// What one run took.
struct Taken {
    time: Duration,
    resident: u64,
    said: String,
}

impl Taken {
    /// How much longer it took for what was looked at once all was stored.
    fn checks(&self) -> Result<f64> {
        let seconds = |field: &str| -> Result<f64> {
            let last = self.said.rsplit_once(field).map(|(_, rest)| rest);
            let number = last.and_then(|rest| rest.split_whitespace().next());
            let number = number.with_context(|| format!("it does not tell {field}: {}", self.said))?;
            Ok(number.parse()?)
        };
        let (storing, checking) = (seconds("storing_seconds=")?, seconds("checking_seconds=")?);
        Ok(checking / storing)
    }
}

/// Runs a program to its end, and looks at its memory meanwhile.
async fn run(mut command: Command) -> Result<Taken> {
    let from = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let process = child.id().and_then(ProcessId::of).context("it has no process")?;
    let mut resident = 0;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        // It may have ended just now.
        resident = resident.max(process.most_resident().unwrap_or(0));
    };
    let time = from.elapsed();
    let said = String::from_utf8_lossy(&child.wait_with_output().await?.stderr).into_owned();
    ensure!(ended.success(), "{ended}: {said}");
    Ok(Taken { time, resident, said })
}

fn removed(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Takes out of a folder what is in it. The folder itself is the store's, which has it open.
fn emptied(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            std::fs::remove_dir_all(path)?;
        } else {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

async fn measured(stage: Arc<Stage>, gibibytes: u64) -> Result<()> {
    let operator = operator::released().await?;
    let etcdctl = components::find(Component::Etcdctl(large::VERSION)).await?;
    let snapshot = large::snapshot(gibibytes << 10).await?;
    let size = std::fs::metadata(&snapshot)?.len();
    let bed = BedDir::create()?;
    let etcd = Solo::serving(&snapshot, &bed.path().join("etcd"), None, Ipv4Addr::LOCALHOST).await?;
    let saved = bed.path().join("saved.db");
    let folder = bed.path().join("backups");
    std::fs::create_dir_all(&folder)?;
    let target = folder.join("orders");

    let (mut theirs, mut ours, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    let mut resident = 0;
    // The first of each fills the page cache and is not counted.
    for round in 0..=stage.runs() {
        removed(&saved)?;
        let mut save = Command::new(&etcdctl);
        save.args(["--endpoints", &etcd.endpoint, "snapshot", "save"])
            .arg(&saved);
        let taken = run(save).await?;
        if round > 0 {
            theirs.push(taken.time);
        }
        removed(&saved)?;

        let mut backup = Command::new(&operator);
        backup
            .args(["backup", "--endpoint", &etcd.endpoint, "--replace", "--to"])
            .arg(&target);
        let taken = run(backup).await?;
        if round > 0 {
            ours.push(taken.time);
            checks.push(taken.checks()?);
        }
        resident = resident.max(taken.resident);
        std::fs::remove_dir_all(&folder)?;
        std::fs::create_dir_all(&folder)?;
    }
    judged("a directory", size, &theirs, &ours, resident)?;
    checks.sort_unstable_by(f64::total_cmp);
    let added = checks[checks.len() / 2];
    println!("checks add {:.1} % to what storing takes", added * 100.0);
    ensure!(added <= CHECKS, "checks add {added:.3} of the time");

    let (store, arguments) = store(&bed).await?;
    let objects = bed.path().join(OBJECTS);
    let (mut ours, mut resident) = (Vec::new(), 0);
    for round in 0..=stage.runs() {
        // This store has all parts twice while it puts them together: no third time for what was replaced.
        emptied(&objects.join("bucket"))?;
        emptied(&bed.path().join(KNOWN))?;
        let mut backup = Command::new(&operator);
        backup
            .args([
                "backup",
                "--endpoint",
                &etcd.endpoint,
                "--to",
                "s3://bucket/orders",
            ])
            .args(&arguments);
        let taken = run(backup).await?;
        if round > 0 {
            ours.push(taken.time);
        }
        resident = resident.max(taken.resident);
    }
    drop(store);
    // What the store itself does to a byte is no time of ours: it is told and not judged.
    told("S3", size, &theirs, &ours, resident);
    ensure!(resident <= MOST, "{resident} bytes are resident");
    Ok(())
}

/// An S3 store on the same disk, and how it is reached.
async fn store(bed: &BedDir) -> Result<(tokio::process::Child, Vec<String>)> {
    let data = bed.path().join(OBJECTS);
    std::fs::create_dir_all(data.join("bucket"))?;
    // What it knows of an object with so many parts is more than the attributes of a file hold.
    let known = bed.path().join(KNOWN);
    std::fs::create_dir_all(&known)?;
    let secret = bed.path().join("aws");
    std::fs::create_dir_all(&secret)?;
    let (key, password) = CREDENTIALS;
    for (name, text) in profile(key, password, REGION) {
        std::fs::write(secret.join(name), text)?;
    }
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let child = Command::new(components::find(Component::Versitygw).await?)
        .args(["--access", key, "--secret", password])
        .args(["--port", &address.to_string(), "posix", "--sidecar"])
        .args([&known, &data])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    until("the store listens", Duration::from_mins(1), || async {
        Ok(tokio::net::TcpStream::connect(address)
            .await
            .is_ok()
            .then_some(()))
    })
    .await?;
    let arguments = vec![
        "--store-endpoint".to_owned(),
        format!("http://{address}"),
        "--path-style".to_owned(),
        "--store-secret".to_owned(),
        secret.display().to_string(),
    ];
    Ok((child, arguments))
}

fn median(all: &[Duration]) -> Duration {
    let mut all = all.to_vec();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Prints what was measured; returns how fast it was next to etcd's own tool.
fn told(what: &str, size: u64, theirs: &[Duration], ours: &[Duration], resident: u64) -> f64 {
    let each = |all: &[Duration]| {
        let seconds: Vec<_> = all
            .iter()
            .map(|one| format!("{:.2}", one.as_secs_f64()))
            .collect();
        seconds.join(" ")
    };
    let speed = |all: &[Duration]| size as f64 / 1e6 / median(all).as_secs_f64();
    let share = speed(ours) / speed(theirs);
    println!(
        "{size} bytes into {what}: etcdctl {:.0} MB/s ({} s), etcd-operator {:.0} MB/s ({} s): {share:.2} times, {:.1} MiB resident",
        speed(theirs),
        each(theirs),
        speed(ours),
        each(ours),
        resident as f64 / f64::from(1 << 20),
    );
    share
}

fn judged(what: &str, size: u64, theirs: &[Duration], ours: &[Duration], resident: u64) -> Result<()> {
    let share = told(what, size, theirs, ours, resident);
    ensure!(
        share >= SHARE,
        "{share:.2} times as fast as etcdctl, at least {SHARE} is promised"
    );
    ensure!(resident <= MOST, "{resident} bytes are resident");
    Ok(())
}
