//! Which of several backups is meant: by a time, and by a revision.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::in_place::{into_s3, shows_only};
use super::new_target::from_the_backup;
use super::seen::Restore;
use crate::backup::vault::{Backup, Bucket};
use crate::cluster::tenant::Tenant;

/// What was written before the first backup, before the second, and before the third.
const WRITTEN: [&str; 3] = ["one", "two", "three"];

fn at(cluster: &str, point: &Value) -> Value {
    let mut spec = from_the_backup(cluster);
    spec["source"]["at"] = point.clone();
    spec
}

fn finished(record: &BackupRecord) -> Result<Timestamp> {
    record
        .completed()
        .with_context(|| format!("{record:?} has no end"))
}

/// The newest that was finished not after a time, and the newest that is not above a revision, each in a cluster of its own;
/// before the first there is none, and nothing is touched.
pub async fn by_time_and_by_revision(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let source = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    let backup = Backup::named(&stage, "orders");
    source.put(WRITTEN[0]).await?;
    backup.apply(&into_s3()).await?;
    let mut records = vec![backup.made(0).await?.1];
    for key in &WRITTEN[1..] {
        source.put(key).await?;
        backup.ask(&source, key).await?;
        let record = backup.newer(&records[records.len() - 1]).await?;
        records.push(record);
    }
    let [first, second, third] = &records[..] else {
        anyhow::bail!("not three backups: {records:?}");
    };
    ensure!(
        first.revision < second.revision && second.revision < third.revision,
        "{records:?}"
    );
    let pods = source.pod_uids().await?;

    let never = Restore::named(&stage, "never");
    let before = finished(first)? - SignedDuration::from_mins(1);
    never.apply(&at("c", &json!({"time": before}))).await?;
    let status = never
        .says("tells that there is no such backup", |status| {
            let reason = status.reason.as_deref().unwrap_or_default();
            reason.contains("3 backups") && reason.contains("none that completed at or before")
        })
        .await?;
    ensure!(
        status.phase.as_deref() == Some("Waiting") && !status.committed && status.object.is_none(),
        "{status:?}"
    );

    let between = i64::midpoint(finished(second)?.as_second(), finished(third)?.as_second());
    let between = json!({"time": Timestamp::from_second(between)?});
    let exactly = json!({"revision": first.revision});
    let meant = [
        ("then", between, second, &WRITTEN[..2]),
        ("once", exactly, first, &WRITTEN[..1]),
    ];
    for (name, point, ..) in &meant {
        let mut spec = at(name, point);
        spec["clusterTemplate"] = json!({"spec": {
            "size": 1, "version": source.version().number(), "storage": {"medium": "EmptyDir"},
        }});
        Restore::named(&stage, name).apply(&spec).await?;
    }
    for (name, point, record, written) in meant {
        let status = Restore::named(&stage, name).succeeds().await?;
        ensure!(
            status.object.as_ref() == Some(&record.object) && status.revision == record.revision,
            "{point}: {status:?}"
        );
        let copy = source.named(name);
        copy.converged(1).await?;
        shows_only(&copy, written.iter().map(|key| (*key).to_owned()).collect()).await?;
    }

    let status = never.status().await?.context("no status")?;
    ensure!(!status.committed && !status.succeeded, "{status:?}");
    ensure!(source.pod_uids().await? == pods, "a pod was touched");
    shows_only(&source, WRITTEN.map(str::to_owned).to_vec()).await
}
