//! What the page of metrics tells of a cluster and of its backup, compared with both, figure by figure.

mod page;
mod truth;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use etcd_operator_cluster::metrics::FAMILIES;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_runtime::clock::SystemClock;
use jiff::Timestamp;
use serde_json::json;

use crate::backup::vault::Backup;
use crate::cluster::tenant::{SOON, Tenant};
use page::{Figures, Monitor, differences};
use truth::{Found, Listed, members, step};

/// What is told of backups.
const OF_BACKUPS: [&str; 5] = [
    "backup_last_success_timestamp_seconds",
    "backup_deadline_timestamp_seconds",
    "backup_size_bytes",
    "backup_duration_seconds",
    "backup_consecutive_failures",
];
/// Of each member's database, in a unit that could be mistaken.
const QUOTA: (&str, i64) = ("64Mi", 64 << 20);
/// Seconds after which a step that is under way still has the start that it had.
const LATER: i64 = 3;

pub const SCENARIOS: &[Scenario] = &[
    // Two minutes, most of them waiting for members that stand still.
    Scenario::gate(
        "install",
        "every_figure_of_a_cluster_and_its_backup_is_so_and_goes_with_them",
        Bed::Shared,
        |stage| Box::pin(told(stage)),
    )
    .full(),
];

/// Who compares.
struct Reader {
    tenant: Tenant,
    monitor: Monitor,
    members: Vec<Listed>,
    /// The EtcdBackup that there is.
    backup: Option<&'static str>,
    /// When something was asked for last.
    since: Timestamp,
    /// The families of which something was told and right.
    right: BTreeSet<String>,
}

impl Reader {
    /// Waits until all that is told is so, and nothing is missing.
    async fn agrees(&mut self, when: &str) -> Result<Figures> {
        let clock = SystemClock::shared();
        let last = Mutex::new(Vec::new());
        let agreed = until(when, SOON, || async {
            let told = self.monitor.scrape(&self.tenant).await?;
            let now = clock.now();
            let mut found = Found::default();
            let times = [self.since, now];
            found.of_cluster(&self.tenant, &self.members, times).await?;
            if let Some(backup) = self.backup {
                found.of_backup(&self.tenant, backup, now).await?;
            }
            let differ = differences(&told, &found.truth());
            let agrees = differ.is_empty();
            *last.lock().unwrap_or_else(PoisonError::into_inner) = differ;
            Ok(agrees.then_some(told))
        })
        .await;
        let told = match agreed {
            Ok(told) => told,
            Err(error) => {
                let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
                return Err(error.context(last.join("\n")));
            }
        };
        let families = told.keys().filter_map(|series| series.split('{').next());
        self.right.extend(families.map(str::to_owned));
        self.tenant.note(&format!("{when}: {told:#?}"));
        Ok(told)
    }
}

async fn told(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(3);
    spec["etcd"] = json!({"quotaBackendBytes": QUOTA.0});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    leave_holes(&tenant).await?;
    stage.claim("backups", None, "300Mi").await?;
    let backup = Backup::named(&stage, "yearly");
    backup
        .apply(&json!({
            "etcdCluster": {"name": "c"}, "storageType": "Local", "schedule": "0 0 1 1 *",
            "local": {"persistentVolumeClaim": "backups", "path": "etcd/orders"},
        }))
        .await?;
    backup.ask(&tenant, "first").await?;
    backup.made(0).await?;

    let mut reader = Reader {
        members: members(&tenant).await?,
        tenant: tenant.clone(),
        monitor: Monitor::on(&stage).await?,
        backup: Some("yearly"),
        since: SystemClock::shared().now(),
        right: BTreeSet::new(),
    };
    let told = reader.agrees("at rest").await?;
    ensure!(
        told.get(r#"cluster_database_quota_bytes{cluster="c"}"#) == Some(&QUOTA.1),
        "{told:?}"
    );
    let holes = |told: &Figures| {
        let of = |family: &str| {
            told.get(&format!(r#"member_{family}{{cluster="c",member="c-0"}}"#))
                .copied()
        };
        Some(of("database_bytes")? - of("database_in_use_bytes")?)
    };
    ensure!(
        holes(&told).is_some_and(|bytes| bytes > 0),
        "nothing tells them apart: {told:?}"
    );

    standing_still(&mut reader).await?;
    held_up(&mut reader).await?;

    let known: BTreeSet<String> = FAMILIES
        .iter()
        .map(|(name, ..)| *name)
        .chain(OF_BACKUPS)
        .map(str::to_owned)
        .collect();
    ensure!(reader.right == known, "compared were {:?}", reader.right);

    tenant.scale(3).await?;
    tenant.converged(3).await?;
    reader.members = members(&tenant).await?;
    reader.agrees("without the fourth").await?;

    backup.delete(&tenant).await?;
    reader.backup = None;
    reader.agrees("without its backup").await?;
    tenant.delete().await?;
    until("nothing is told of what is gone", SOON, || async {
        Ok(reader.monitor.scrape(&tenant).await?.is_empty().then_some(()))
    })
    .await
}

/// Data that are gone again and leave their room in the files, so that what is in use is less.
async fn leave_holes(tenant: &Tenant) -> Result<()> {
    let value = "x".repeat(100 << 10);
    for _ in 0..10 {
        tenant.etcdctl(&["put", "large", &value]).await?;
    }
    let said = tenant
        .etcdctl(&["endpoint", "status", "--write-out=json"])
        .await?;
    let status: serde_json::Value = serde_json::from_str(&said)?;
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    tenant.etcdctl(&["compaction", &revision, "--physical"]).await?;
    Ok(())
}

/// A follower, and then another one: no majority is left, and nobody leads.
async fn standing_still(reader: &mut Reader) -> Result<()> {
    let tenant = reader.tenant.clone();
    let (leader, _) = tenant.leader_and_follower().await?;
    let mut paused = Vec::new();
    let followers = (0..3)
        .map(|ordinal| tenant.pod(ordinal))
        .filter(|pod| *pod != leader);
    for (pod, leads) in followers.zip([1, 0]) {
        let container = tenant.container(&pod).await?;
        container.pause().await?;
        paused.push(container);
        let told = reader.agrees(&format!("while {pod} stands still")).await?;
        ensure!(
            told.get(r#"cluster_has_leader{cluster="c"}"#) == Some(&leads),
            "{told:?}"
        );
    }
    for container in &paused {
        container.resume()?;
    }
    tenant.converged(3).await?;
    reader.agrees("when all go on").await?;
    Ok(())
}

/// A fourth member that stands still before it has a vote: the step of bringing it in is not finished, and grows old.
async fn held_up(reader: &mut Reader) -> Result<()> {
    let tenant = reader.tenant.clone();
    let clock = SystemClock::shared();
    reader.since = clock.now();
    tenant.scale(4).await?;
    let status = tenant
        .says("the fourth is brought in", |status| step(status).is_some())
        .await?;
    let kind = step(&status).context("no step")?.kind.clone();
    // It has waited for this, and needs seconds to be told.
    let container = tenant.container("c-3").await?;
    container.pause().await?;
    until("the fourth is a member", SOON, || async {
        Ok((members(&tenant).await?.len() == 4).then_some(()))
    })
    .await?;
    reader.members = members(&tenant).await?;
    let told = reader.agrees("while the fourth stands still").await?;
    let learner = r#"cluster_members{cluster="c",role="learner",health="unhealthy"}"#;
    ensure!(told.get(learner) == Some(&1), "{learner} is not in {told:#?}");
    let series = format!(r#"cluster_step_start_timestamp_seconds{{cluster="c",step="{kind}"}}"#);
    let start = *told
        .get(&series)
        .with_context(|| format!("{series} is not in {told:#?}"))?;
    until("the step has lasted for seconds", SOON, || async {
        Ok((clock.now().as_second() >= start + LATER).then_some(()))
    })
    .await?;
    let told = reader.monitor.scrape(&tenant).await?;
    ensure!(
        told.get(&series) == Some(&start),
        "its start has moved: {told:#?}"
    );
    container.resume()?;
    tenant.converged(4).await?;
    reader.members = members(&tenant).await?;
    let told = reader.agrees("with a fourth").await?;
    ensure!(
        !told.keys().any(|series| series.starts_with("cluster_step_start")),
        "{told:#?}"
    );
    Ok(())
}
