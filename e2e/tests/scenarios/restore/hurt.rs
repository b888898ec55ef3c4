//! Restores while what carries them out dies, or is cut off.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::StoreFault;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::in_place::{backed_up, into_s3, serving, shows_the_backup, write};
use super::seen::{Restore, is_over};
use crate::backup::vault::Bucket;
use crate::cluster::control::{kill_operator, leads, moments};
use crate::cluster::tenant::SOON;

/// How often the operator dies in all.
const KILLS: usize = 20;
/// And within one restore: so that each has time to end.
const KILLS_OF_ONE: usize = 5;
/// Each death costs the time until a lease is over.
const PATIENCE: Duration = Duration::from_mins(10);

/// How much each member fetches, and how fast it comes: there is time enough to cut a node off meanwhile.
const LARGE: (usize, usize) = (40, 100_000);
const BYTES_A_SECOND: u64 = 150_000;

/// The node of a member goes while that member fetches, and comes back later: it fetches the rest, and nothing else happens.
pub async fn node_cut_off(stage: Arc<Stage>) -> Result<()> {
    let bucket = Bucket::start(&stage, None).await?;
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 3).await?;
    write(&tenant, "before").await?;
    let (count, size) = LARGE;
    let large = "x".repeat(size);
    for number in 0..count {
        tenant
            .etcdctl(&["put", &format!("large-{number}"), &large])
            .await?;
    }
    let mut spec = into_s3();
    spec["compression"] = json!("None");
    let record = backed_up(&stage, &spec).await?;
    write(&tenant, "after").await?;
    let before = tenant.members().await?;
    // One on which neither the store nor the clients are.
    let cluster = stage.cluster();
    let (of_store, _) = cluster.place_of(stage.namespace(), "store").await?;
    let elsewhere = [cluster.nodes()[0].name(), of_store.name()];
    let mut victim = None;
    for ordinal in 0..3 {
        let (node, _) = cluster.place_of(stage.namespace(), &tenant.pod(ordinal)).await?;
        if !elsewhere.contains(&node.name()) {
            victim = Some((tenant.pod(ordinal), node));
        }
    }
    let (pod, node) = victim.context("no member is on a node of its own")?;

    let restore = Restore::named(&stage, "back").patient(PATIENCE);
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "orders"}}}))
        .await?;
    restore.reaches("Stopping").await?;
    bucket.store.fail(StoreFault::Slow(BYTES_A_SECOND)).await?;
    restore
        .says("tells how far its members are", |status| {
            let members = status.members.as_deref().unwrap_or_default();
            let fetches = |member: &str| {
                members
                    .iter()
                    .any(|one| one.name == member && one.bytes > Some(0))
            };
            fetches(&pod)
        })
        .await?;
    let cut = cluster.cut_node(node).await?;
    cluster.node_ready(node.name(), false, SOON).await?;
    let status = restore.status().await?.context("no status")?;
    ensure!(!status.committed, "it committed without {pod}: {status:?}");
    cut.heal().await?;
    cluster.node_ready(node.name(), true, SOON).await?;
    bucket.store.heal().await?;
    let status = restore.succeeds().await?;
    ensure!(status.revision == record.revision, "{status:?}");
    tenant.converged(3).await?;
    let after = tenant.members().await?;
    ensure!(after.len() == before.len(), "{after:?}");
    let held = until("everything large is there", SOON, || async {
        let said = tenant
            .etcdctl(&["get", "large-", "--prefix", "--count-only", "--write-out=fields"])
            .await?;
        Ok(said.contains(&format!("\"Count\" : {count}")).then_some(()))
    });
    held.await?;
    tenant.etcdctl(&["del", "large-", "--prefix"]).await?;
    shows_the_backup(&tenant).await?;
    tenant.agrees().await
}

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
