//! Backups again and again: at an interval, on a schedule, on demand; what is kept and what goes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::{EtcdBackup, EtcdRestoreStatus};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::emulator::{Emulator, Speech};
use etcd_operator_e2e::scenario::Stage;
use kube::api::{Api, ListParams};
use serde_json::json;

use super::vault::{Backup, Bucket, condition, made};
use crate::cluster::tenant::Tenant;
use crate::restore::in_place::{into_s3, shows_the_backup, write};
use crate::restore::new_target::from_the_backup;
use crate::restore::seen::{Restore, is_over};

/// How long two hundred take that wait for their turns, on a machine that also compiles.
const CROWDED: Duration = Duration::from_mins(25);

/// Long enough for a few rounds.
const ROUNDS: Duration = Duration::from_mins(6);

/// As the older operator's users have it, with a short interval; a neighbour whose path begins alike keeps its own.
pub async fn at_an_interval(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    tenant.put("before").await?;
    let neighbour = Backup::named(&stage, "neighbour");
    neighbour
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd2/orders"),
        }))
        .await?;
    let backup = Backup::named(&stage, "orders");
    let spec = |policy: &str| {
        json!({
            "etcdEndpoints": ["http://c-client:2379"], "storageType": "S3", "s3": Bucket::s3("etcd"),
            "backupPolicy": {"backupIntervalInSecond": 5, "maxBackups": 4}, "deletionPolicy": policy,
        })
    };
    backup.apply(&spec("Delete")).await?;
    // What is pruned is gone from the history as well.
    let mut seen = BTreeSet::new();
    let status = backup
        .says("has made six and kept four", ROUNDS, |status| {
            seen.extend(status.last_success.iter().map(|record| record.object.clone()));
            seen.len() >= 6 && status.stored == Some(4)
        })
        .await?;
    ensure!(
        condition(&status, "BackupFresh", "True", "Fresh").is_some(),
        "{status:?}"
    );
    // None starts from here on, so that what is counted stays the same.
    let mut suspended = spec("Delete");
    suspended["suspend"] = json!(true);
    backup.apply(&suspended).await?;
    let status = backup
        .says("is suspended and all is pruned", ROUNDS, |status| {
            status.active.is_none()
                && status.phase.as_deref() == Some("Suspended")
                && status.stored == Some(4)
        })
        .await?;
    // The last one may have ended together with a deletion that did not know of it yet: another follows.
    let (backup_now, bucket_now) = (&backup, &bucket);
    until("the newest four are stored and no other", ROUNDS, || async move {
        let status = backup_now.says("tells what it keeps", ROUNDS, |_| true).await?;
        let newest = status.history.iter().flatten().take(4);
        let mut expected: Vec<_> = newest.map(|record| record.object.clone()).collect();
        expected.sort();
        let mut stored = bucket_now.list("etcd_").await?;
        stored.sort();
        Ok((stored == expected).then_some(()))
    })
    .await?;
    let last = status.last_success.clone().context("none was made")?;
    bucket.holds(&last, &[]).await?;

    // On demand, although it is suspended.
    let before = last.run.clone();
    backup.ask(&tenant, "once").await?;
    backup
        .says("made one on demand", ROUNDS, |status| {
            let run = status.last_success.as_ref().and_then(|record| record.run.clone());
            status.last_backup_now.as_deref() == Some("once") && run != before && status.active.is_none()
        })
        .await?;

    backup.delete(&tenant).await?;
    ensure!(bucket.list("etcd_").await?.is_empty(), "some are left");
    ensure!(
        bucket.list("etcd2/").await? == ["etcd2/orders"],
        "a neighbour's are gone"
    );
    Ok(())
}

/// One backup is to be kept, and the older one is being restored: each prune leaves it until the restore is over.
pub async fn while_restored(stage: Arc<Stage>) -> Result<()> {
    const LABEL: &str = "is-for-the-copy";
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    let backup = Backup::named(&stage, "orders");
    let mut spec = into_s3();
    spec["backupPolicy"] = json!({"backupIntervalInSecond": 3600, "maxBackups": 1});
    backup.apply(&spec).await?;
    let (_, first) = backup.made(0).await?;

    // No node has the label, so that neither the verification nor a member can start.
    let copy = tenant.named("copy");
    let mut waiting = copy.spec(1);
    waiting["storage"]["size"] = json!("512Mi");
    waiting["bootstrap"] = json!({"awaitRestore": true});
    waiting["pod"] = json!({"nodeSelector": {LABEL: stage.namespace()}});
    copy.apply(&waiting).await?;
    let restore = Restore::named(&stage, "copy");
    restore.apply(&from_the_backup("copy")).await?;
    let chosen = |status: &EtcdRestoreStatus| status.object.as_ref() == Some(&first.object);
    restore.says("has chosen the only backup", chosen).await?;

    let mut last = first.clone();
    for word in ["second", "third"] {
        tenant.put(word).await?;
        last = pruned_after(&backup, &tenant, word, &last).await?;
        let stored = bucket.list("etcd/").await?;
        stage.note(&format!("stored after the {word} one: {stored:?}"));
        ensure!(
            stored.len() == 2 && stored.contains(&first.object) && stored.contains(&last.object),
            "the restore needs {}: {stored:?}",
            first.object
        );
    }
    let status = restore.status().await?.context("no status")?;
    ensure!(chosen(&status) && !is_over(&status), "{status:?}");

    let label = format!("{LABEL}={}", stage.namespace());
    tenant.kubectl(&["label", "nodes", "--all", &label]).await?;
    let status = restore.succeeds().await?;
    ensure!(chosen(&status) && status.revision == first.revision, "{status:?}");
    copy.converged(1).await?;
    shows_the_backup(&copy).await?;
    tenant.put("fourth").await?;
    last = pruned_after(&backup, &tenant, "fourth", &last).await?;
    let stored = bucket.list("etcd/").await?;
    ensure!(stored == [last.object], "nothing needs an older one: {stored:?}");
    let unlabel = format!("{LABEL}-");
    tenant.kubectl(&["label", "nodes", "--all", &unlabel]).await?;
    Ok(())
}

/// Asks for a backup, and waits until it is made and whatever is too old is pruned; the new one.
async fn pruned_after(
    backup: &Backup,
    tenant: &Tenant,
    word: &str,
    before: &BackupRecord,
) -> Result<BackupRecord> {
    backup.ask(tenant, word).await?;
    let made = backup.newer(before).await?;
    // The run that prunes is scheduled by the write that records the backup.
    let status = backup
        .says("has pruned", ROUNDS, |status| status.active.is_none())
        .await?;
    ensure!(status.last_success.as_ref() == Some(&made), "{status:?}");
    Ok(made)
}

/// By the clock of a place, to the minute.
pub async fn on_a_schedule(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    let backup = Backup::named(&stage, "orders");
    backup
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "S3", "s3": Bucket::s3("etcd/orders"),
            "schedule": "* * * * *", "timeZone": "Asia/Kathmandu", "backupPolicy": {"maxBackups": 2},
        }))
        .await?;
    let (status, first) = backup.made(0).await?;
    let next = status.next_schedule_time.context("no next time")?.0;
    ensure!(next.as_second() % 60 == 0, "{next}");
    let second = backup.newer(&first).await?;
    let due = |record: &BackupRecord| -> Result<i64> {
        let run = record.run.clone().unwrap_or_default();
        let time: jiff::Timestamp = run.split('/').next().unwrap_or_default().parse()?;
        Ok(time.as_second())
    };
    let (before, after) = (due(&first)?, due(&second)?);
    ensure!(
        after - before == 60 && after % 60 == 0,
        "{before} and then {after}"
    );
    tenant
        .says("it shows that its backups are fresh", |status| {
            crate::cluster::tenant::is(status, "BackupFresh", "True", "Fresh")
        })
        .await?;
    Ok(())
}

/// As the older operator's users have it, word by word.
pub async fn as_it_was(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_2_25)
        .await?
        .named("etcd-cluster");
    tenant.apply(&json!({"size": 3, "version": "3.2.25"})).await?;
    tenant.converged(3).await?;
    tenant.put("before").await?;
    let store = Emulator::start(stage.cluster(), Speech::Oss).await?;
    super::vault::secret(
        &stage,
        "oss-secret",
        &json!({"accessKeyID": "LTAITEST", "accessKeySecret": "hunter2hunter2"}),
    )
    .await?;
    super::vault::secret(&stage, "authority", &json!({"ca.crt": store.authority})).await?;
    let backup = Backup::named(&stage, "etcd-backup");
    backup
        .apply(&json!({
            "etcdEndpoints": ["http://etcd-cluster-client:2379"], "storageType": "OSS",
            "backupPolicy": {"backupIntervalInSecond": 125, "maxBackups": 4},
            "oss": {
                "path": "my-bucket/etcd.backup", "ossSecret": "oss-secret", "endpoint": store.endpoint,
                // What a store of a test lacks that a cloud has.
                "region": "test-region", "caSecret": "authority",
            },
        }))
        .await?;
    // What is pruned is gone from the history as well.
    let mut seen = BTreeSet::new();
    let status = backup
        .says("has made six and kept four", Duration::from_mins(16), |status| {
            seen.extend(status.last_success.iter().map(|record| record.object.clone()));
            seen.len() >= 6 && made(status) == 4 && status.stored == Some(4)
        })
        .await?;
    let times: Vec<i64> = status
        .history
        .iter()
        .flatten()
        .filter_map(|record| Some(record.started_at.as_ref()?.0.as_second()))
        .collect();
    let apart: Vec<i64> = times.windows(2).map(|pair| pair[0] - pair[1]).collect();
    ensure!(
        apart.iter().all(|seconds| (120..=135).contains(seconds)),
        "made {apart:?} seconds apart"
    );
    Ok(())
}

/// Two hundred that are due in one minute: never more run than may, and none is lost.
pub async fn two_hundred(stage: Arc<Stage>) -> Result<()> {
    const ALL: usize = 200;
    const AT_ONCE: usize = 10;
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = Tenant::serving(Arc::clone(&stage), EtcdVersion::V3_6_16, 1).await?;
    tenant.put("before").await?;
    // Far enough away that all are there before.
    let due = etcd_operator_job::clock::now() + Duration::from_secs(150);
    let at = due.to_zoned(jiff::tz::TimeZone::UTC);
    let schedule = format!("{} {} * * *", at.minute(), at.hour());
    let items: Vec<_> = (0..ALL)
        .map(|number| {
            Backup::named(&stage, &format!("b-{number:03}")).manifest(&json!({
                "etcdCluster": {"name": "c"}, "storageType": "S3",
                "s3": Bucket::s3(&format!("etcd/{number:03}")), "schedule": schedule,
            }))
        })
        .collect();
    stage
        .cluster()
        .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
        .await?;
    let client = stage.cluster().client().await?;
    let backups = Api::<EtcdBackup>::namespaced(client, stage.namespace());
    let most = std::sync::atomic::AtomicUsize::new(0);
    until("all have made theirs", CROWDED, || async {
        let all = backups.list(&ListParams::default()).await?.items;
        let running = all
            .iter()
            .flat_map(|one| {
                one.status
                    .iter()
                    .flat_map(|status| status.active.iter().flatten())
            })
            .filter(|run| run.started_at.is_some())
            .count();
        most.fetch_max(running, std::sync::atomic::Ordering::Relaxed);
        let done = all
            .iter()
            .filter(|one| one.status.as_ref().is_some_and(|status| made(status) == 1))
            .count();
        Ok((all.len() == ALL && done == ALL).then_some(()))
    })
    .await?;
    let most = most.into_inner();
    stage.note(&format!("at most {most} at once"));
    ensure!((1..=AT_ONCE).contains(&most), "{most} ran at once");
    let stored = bucket.list("etcd/").await?.len();
    ensure!(stored == ALL, "{stored} are stored");
    Ok(())
}
