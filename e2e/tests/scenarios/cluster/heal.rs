//! What breaks, and what the cluster makes of it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::tenant::{SOON, Tenant};

async fn three(stage: Arc<Stage>, version: EtcdVersion) -> Result<Tenant> {
    let tenant = Tenant::on(stage, version).await?;
    let spec = json!({"size": 3, "version": version.number(), "storage": {"size": "256Mi"}});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    Ok(tenant)
}

/// The ID of a member, by its name.
async fn id_of(tenant: &Tenant, name: &str) -> Result<String> {
    let members = tenant.members().await?;
    let member = members.iter().find(|member| member["name"] == name);
    Ok(member.map(|member| member["ID"].to_string()).unwrap_or_default())
}

/// Waits until the member of this name is another one. A member that cannot tell at a moment is asked again.
async fn becomes_another(tenant: &Tenant, name: &str, before: &str) -> Result<()> {
    until(&format!("{name} is another member"), SOON, || async {
        let now = id_of(tenant, name).await.unwrap_or_default();
        Ok((!now.is_empty() && now != before).then_some(()))
    })
    .await
}

pub async fn wiped(stage: Arc<Stage>) -> Result<()> {
    let tenant = three(stage, EtcdVersion::V3_6_16).await?;
    let before = id_of(&tenant, "c-1").await?;
    let writer = tenant.writer().await?;
    let namespace = tenant.stage().namespace().to_owned();
    let disk = tenant.stage().cluster().disk(&namespace, "data-c-1").await?;
    let container = tenant
        .stage()
        .cluster()
        .container(&namespace, "c-1", "etcd")
        .await?;
    tenant.note("wipes the disk of c-1 and kills it");
    container.kill()?;
    disk.wipe()?;
    becomes_another(&tenant, "c-1", &before).await?;
    tenant.converged(3).await?;
    let written = writer.stop().await?;
    tenant.holds(&written).await
}

pub async fn restarted(stage: Arc<Stage>) -> Result<()> {
    let tenant = three(stage, EtcdVersion::V3_7_3).await?;
    tenant.etcdctl(&["put", "w/kept", "w/kept"]).await?;
    let namespace = tenant.stage().namespace().to_owned();
    let etcd = tenant.stage().cluster();
    for member in ["c-0", "c-1", "c-2"] {
        etcd.container(&namespace, member, "etcd").await?.kill()?;
    }
    until("all members have restarted by themselves", SOON, || async {
        let said = tenant.etcdctl(&["get", "w/kept", "--print-value-only"]).await;
        Ok(said.is_ok_and(|said| said.trim() == "w/kept").then_some(()))
    })
    .await?;
    tenant
        .kubectl(&["delete", "pods", "--selector=etcd_cluster=c", "--wait=false"])
        .await?;
    tenant.converged(3).await?;
    tenant.holds(&["w/kept".to_owned()]).await
}

pub async fn damaged(stage: Arc<Stage>) -> Result<()> {
    let tenant = three(stage, EtcdVersion::V3_6_16).await?;
    let before = id_of(&tenant, "c-2").await?;
    let writer = tenant.writer().await?;
    let namespace = tenant.stage().namespace().to_owned();
    let cluster = tenant.stage().cluster();

    tenant.note("fills the disk of c-0: nothing must be replaced for that");
    let full = cluster.disk(&namespace, "data-c-0").await?;
    let filled = id_of(&tenant, "c-0").await?;
    full.fill()?;
    cluster.container(&namespace, "c-0", "etcd").await?.kill()?;
    until("c-0 has restarted", SOON, || async {
        let path = "--output=jsonpath={.status.containerStatuses[0].restartCount}";
        let said = tenant.kubectl(&["get", "pod", "c-0", path]).await?;
        Ok(said
            .trim()
            .parse::<u32>()
            .is_ok_and(|count| count > 0)
            .then_some(()))
    })
    .await?;
    full.unfill()?;
    tenant.converged(3).await?;
    ensure!(
        id_of(&tenant, "c-0").await? == filled,
        "c-0 was replaced for a full disk"
    );

    tenant.note("damages the database of c-2");
    let disk = cluster.disk(&namespace, "data-c-2").await?;
    let container = cluster.container(&namespace, "c-2", "etcd").await?;
    container.kill()?;
    disk.flip("data/member/snap/db", 0, 8192)?;
    becomes_another(&tenant, "c-2", &before).await?;
    tenant.converged(3).await?;
    let written = writer.stop().await?;
    tenant.holds(&written).await
}
