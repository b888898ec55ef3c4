//! Databases of a gibibyte and of four, of an etcd that the operator does not run: what the Job takes, and what it leaves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::large::{self, Solo};
use etcd_operator_e2e::scenario::Stage;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::json;

use super::vault::{Backup, Bucket};
use crate::cluster::tenant::Tenant;

/// For four gibibytes on a machine that also compiles.
const LONG: Duration = Duration::from_mins(20);
/// What a Job may hold in memory at any time.
const MOST: u64 = 64 << 20;

/// Where it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Into {
    S3,
    Volume,
}

async fn backed_up(stage: Arc<Stage>, gibibytes: u64, into: Into) -> Result<()> {
    let snapshot = large::snapshot(gibibytes << 10).await?;
    // The operator is what is needed of this; its version is any.
    let _tenant = Tenant::on(Arc::clone(&stage), large::VERSION).await?;
    let (data, entry, address) = large::beside(&stage);
    let etcd = Solo::serving(&snapshot, &data, Some(entry), address).await?;
    let room = format!("{}Gi", gibibytes * 2);
    stage.claim("objects", None, &room).await?;
    let backup = Backup::named(&stage, "large");
    let mut spec = json!({
        "etcdEndpoints": [etcd.endpoint], "backupPolicy": {"timeoutInSecond": LONG.as_secs()},
    });
    let bucket = match into {
        Into::S3 => {
            spec["storageType"] = json!("S3");
            spec["s3"] = Bucket::s3("etcd/large");
            Some(Bucket::start(&stage, Some("objects")).await?)
        }
        Into::Volume => {
            spec["storageType"] = json!("Local");
            spec["local"] = json!({"persistentVolumeClaim": "objects", "path": "etcd/large"});
            None
        }
    };
    read_program(stage.cluster().control_plane().directory())?;
    let start = Instant::now();
    backup.apply(&spec).await?;
    let most = watched(&stage, &backup).await?;
    let (_, record) = backup.made(0).await?;
    let size = record.size.context("no size")?.unsigned_abs();
    stage.note(&format!(
        "{size} bytes in {:.1?}, of which the run took {}; at most {} bytes resident, {} by the control group",
        start.elapsed(),
        record.duration.clone().unwrap_or_default(),
        most.resident,
        most.counted,
    ));
    ensure!(size > gibibytes << 30, "only {size} bytes");
    // Resident are pages of the program itself, too, of which this build has many: those of the one that is shipped are
    // judged by the bench.
    ensure!(most.resident > 0 && most.counted > 0, "nobody was looked at");
    ensure!(most.counted <= MOST, "{} bytes in memory", most.counted);
    if let (Some(bucket), 1) = (&bucket, gibibytes) {
        std::fs::remove_file(bucket.holds(&record, &[]).await?)?;
    }
    drop(etcd);
    std::fs::remove_dir_all(&data).context("cannot remove the database")
}

/// Reads the program on every node. Its pages count as memory of whoever reads them first, and this build has many times
/// those of the one that is shipped.
fn read_program(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // What a container takes away meanwhile is no program of ours.
            let _ = read_program(&entry.path());
        } else if kind.is_file() && entry.file_name() == "etcd-operator" {
            std::io::copy(&mut std::fs::File::open(entry.path())?, &mut std::io::sink())?;
        }
    }
    Ok(())
}

/// The most memory at any time, in bytes.
struct Memory {
    /// Of the process, resident.
    resident: u64,
    /// Of the container, as its control group counts it.
    counted: u64,
}

/// The most a Job's process has had in memory that was its own, as its container's process tells until it ends.
async fn watched(stage: &Stage, backup: &Backup) -> Result<Memory> {
    let pods = stage.pods().await?;
    let chosen = ListParams::default().labels("etcd.database.coreos.com/task=Backup");
    let (most, counted) = (AtomicU64::new(0), AtomicU64::new(0));
    until("the Job has ended", LONG, || async {
        let found = pods.list(&chosen).await?.items;
        let running = found.iter().find(|pod| is_running(pod));
        if let Some(name) = running.and_then(|pod| pod.metadata.name.as_deref())
            && let Ok(container) = stage.cluster().container(stage.namespace(), name, "backup").await
        {
            for process in container.processes().unwrap_or_default() {
                most.fetch_max(process.most_resident().unwrap_or(0), Ordering::Relaxed);
            }
            counted.fetch_max(container.most_memory().unwrap_or(0), Ordering::Relaxed);
        }
        let jobs = backup.jobs().await?;
        let is_over = most.load(Ordering::Relaxed) > 0 && jobs.is_empty();
        Ok(is_over.then_some(()))
    })
    .await?;
    Ok(Memory {
        resident: most.into_inner(),
        counted: counted.into_inner(),
    })
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

pub async fn one_into_s3(stage: Arc<Stage>) -> Result<()> {
    backed_up(stage, 1, Into::S3).await
}

pub async fn four_into_s3(stage: Arc<Stage>) -> Result<()> {
    backed_up(stage, 4, Into::S3).await
}

pub async fn one_onto_a_volume(stage: Arc<Stage>) -> Result<()> {
    backed_up(stage, 1, Into::Volume).await
}
