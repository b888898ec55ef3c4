//! Restores while what carries them out dies.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::in_place::{backed_up, into_s3, serving, shows_the_backup, write};
use super::seen::{Restore, is_over};
use crate::backup::vault::Bucket;
use crate::cluster::control::{kill_operator, leads, moments};

/// How often the operator dies in all.
const KILLS: usize = 20;
/// And within one restore: so that each has time to end.
const KILLS_OF_ONE: usize = 5;
/// Each death costs the time until a lease is over.
const PATIENCE: Duration = Duration::from_mins(10);

/// Killed while it acts, at moments that fall everywhere: each restore is carried out, and once.
pub async fn operator_killed(stage: Arc<Stage>) -> Result<()> {
    let _bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    backed_up(&stage, &into_s3()).await?;
    let mut moments = moments();
    let (mut killed, mut restores) = (0, 0);
    while killed < KILLS {
        write(&tenant, "after").await?;
        let before = tenant.status().await?.incarnation.context("no incarnation")?;
        let restore = Restore::named(&stage, &format!("back-{restores}")).patient(PATIENCE);
        restore
            .apply(&json!({
                "etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}, "keepPrevious": "1s",
            }))
            .await?;
        for _ in 0..KILLS_OF_ONE {
            let moment = moments.next().unwrap_or_default();
            // The moment is the point of this scenario: nothing is waited for.
            tokio::time::sleep(Duration::from_millis(moment)).await;
            let status = restore.status().await?.unwrap_or_default();
            if is_over(&status) {
                break;
            }
            let phase = status.phase.unwrap_or_default();
            stage.note(&format!("{moment} ms after it led it is {phase}"));
            killed += kill_operator(&tenant).await?;
            leads(&tenant).await?;
        }
        restore.succeeds().await?;
        tenant.converged(3).await?;
        shows_the_backup(&tenant).await?;
        let after = tenant.status().await?.incarnation.context("no incarnation")?;
        ensure!(after == before + 1, "carried out {} times", after - before);
        restores += 1;
    }
    stage.note(&format!("{killed} deaths in {restores} restores"));
    tenant.agrees().await
}
