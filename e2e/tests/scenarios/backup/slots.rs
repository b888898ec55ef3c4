//! More backups are due than may run at once, and those that come first cannot run: another cluster's is made all the same.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdBackup;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use kube::api::{Api, ListParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;

use super::vault::{Backup, Bucket, SOON};
use crate::cluster::tenant::Tenant;

/// How many Jobs run at once in an installation, by default.
const SLOTS: usize = 10;

/// How many backups of one cluster are due at once.
const DUE: usize = 30;

/// How long a Job whose pod does not start holds its slot.
const HOLD: Duration = Duration::from_mins(2);

/// What a busy machine adds to that: a reconcile, a Job, a pod.
const LATE: Duration = Duration::from_mins(1);

/// A cluster whose backups' pods fit on no node, and another one with a backup that is made on request only.
struct Crowd {
    tenant: Tenant,
    other: Backup,
    backups: Api<EtcdBackup>,
}

impl Crowd {
    /// All slots are held by pods that no node takes, and the rest of these backups stand in line.
    async fn gather(stage: &Arc<Stage>, due: usize) -> Result<Self> {
        let tenant = Tenant::serving(Arc::clone(stage), EtcdVersion::V3_6_16, 1).await?;
        tenant.put("before").await?;
        let other = tenant.named("other");
        other.apply(&other.spec(1)).await?;
        other.converged(1).await?;
        other.put("before").await?;
        let on_request = Backup::named(stage, "other");
        on_request
            .apply(&json!({
                "etcdCluster": {"name": "other"}, "storageType": "S3", "s3": Bucket::s3("etcd/other"),
                "schedule": "0 0 1 1 *", "suspend": true,
            }))
            .await?;
        on_request
            .says("is suspended", SOON, |status| {
                status.phase.as_deref() == Some("Suspended")
            })
            .await?;
        let items: Vec<_> = (0..due)
            .map(|number| {
                Backup::named(stage, &format!("b-{number:02}")).manifest(&json!({
                    "etcdCluster": {"name": "c"}, "storageType": "S3",
                    "s3": Bucket::s3(&format!("etcd/{number:02}")),
                    // Longer than the scenario: none of them gives its slot back by failing.
                    "backupPolicy": {"timeoutInSecond": 1800},
                    "job": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}},
                }))
            })
            .collect();
        stage.note(&format!("applies {due} EtcdBackups whose pods fit on no node"));
        stage
            .cluster()
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
            .await?;
        let client = stage.cluster().client().await?;
        let crowd = Self {
            backups: Api::namespaced(client, stage.namespace()),
            tenant,
            other: on_request,
        };
        until("all slots are held and the others wait for one", SOON, || async {
            let running = crowd.in_phase("Running").await?.len();
            let queued = crowd.in_phase("Queued").await?.len();
            Ok((running == SLOTS && queued == due - SLOTS).then_some(()))
        })
        .await?;
        Ok(crowd)
    }

    /// Those of the crowd in this phase.
    async fn in_phase(&self, phase: &str) -> Result<Vec<EtcdBackup>> {
        let all = self.backups.list(&ListParams::default()).await?.items;
        let is_one = |backup: &EtcdBackup| {
            let found = backup.status.as_ref().and_then(|status| status.phase.as_deref());
            backup.name_any().starts_with("b-") && found == Some(phase)
        };
        Ok(all.into_iter().filter(is_one).collect())
    }
}

/// The cluster is scaled to nothing while twenty of its backups stand in line: they leave it, and say why they wait.
pub async fn asleep(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let crowd = Crowd::gather(&stage, DUE).await?;
    crowd.tenant.scale(0).await?;
    let waiting = until("those in line wait for their cluster", SOON, || async {
        let waiting = crowd.in_phase("Waiting").await?;
        Ok((waiting.len() == DUE - SLOTS).then_some(waiting))
    })
    .await?;
    crowd.other.ask(&crowd.tenant, "now").await?;
    let (_, record) = crowd.other.made(0).await?;
    bucket.holds(&record, &[]).await?;

    let still = crowd.in_phase("Waiting").await?;
    ensure!(
        still.len() == waiting.len(),
        "{} of {} wait",
        still.len(),
        waiting.len()
    );
    for backup in still {
        let name = backup.name_any();
        let status = backup.status.context("no status")?;
        let conditions = status.conditions.iter().flatten();
        let reasons: Vec<_> = conditions.filter_map(|one| one.reason.as_deref()).collect();
        ensure!(
            reasons.contains(&"WaitsForCluster") && !reasons.contains(&"Queued"),
            "{name} gives other reasons: {status:?}"
        );
        let jobs = Backup::named(&stage, &name).jobs().await?;
        ensure!(jobs.is_empty(), "{name} has {} Jobs", jobs.len());
    }
    Ok(())
}

/// Pods that no node takes hold their slots for two minutes, though their Jobs have half an hour.
pub async fn unschedulable(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let crowd = Crowd::gather(&stage, SLOTS).await?;
    let holders = crowd.in_phase("Running").await?;
    let starts = holders.iter().filter_map(|backup| {
        let runs = backup.status.as_ref()?.active.as_ref()?;
        runs.iter()
            .filter_map(|run| Some(run.started_at.as_ref()?.0))
            .max()
    });
    let last = starts.max().context("none has started")?;
    crowd.other.ask(&crowd.tenant, "now").await?;
    crowd
        .other
        .says("waits for a slot", SOON, |status| {
            status.phase.as_deref() == Some("Queued")
        })
        .await?;
    let (_, record) = crowd.other.made(0).await?;
    bucket.holds(&record, &[]).await?;
    let started = record.started_at.as_ref().context("no time of its start")?.0;
    let waited = started.duration_since(last);
    stage.note(&format!(
        "the other one started {waited:#} after the last of the pods"
    ));
    ensure!(
        waited <= (HOLD + LATE).try_into()?,
        "the other one started {waited:#} after the last of the pods"
    );
    // Else slots came free because the Jobs had ended.
    for backup in holders {
        let name = backup.name_any();
        let uid = backup.meta().uid.clone();
        let now = crowd.backups.get(&name).await?;
        ensure!(now.meta().uid == uid, "{name} was made anew");
        let phase = now.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Running"), "{name} is {phase:?}");
    }
    Ok(())
}
