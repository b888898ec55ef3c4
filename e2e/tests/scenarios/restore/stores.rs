//! The way back from every kind of store, each over TLS by a private authority.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::emulator::{BUCKET, Emulator, Speech};
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::in_place::{backed_up, serving, shows_the_backup, write};
use super::seen::Restore;
use crate::backup::stores::block;
use crate::backup::vault::secret;

pub async fn from_s3(stage: Arc<Stage>) -> Result<()> {
    from(stage, Speech::S3).await
}

pub async fn from_oss(stage: Arc<Stage>) -> Result<()> {
    from(stage, Speech::Oss).await
}

pub async fn from_gcs(stage: Arc<Stage>) -> Result<()> {
    from(stage, Speech::Gcs).await
}

pub async fn from_abs(stage: Arc<Stage>) -> Result<()> {
    from(stage, Speech::Abs).await
}

/// A store that is not who it says it is is refused, and the cluster serves on; the right one brings the backup back.
async fn from(stage: Arc<Stage>, speech: Speech) -> Result<()> {
    let tenant = serving(&stage, EtcdVersion::V3_6_16, 1).await?;
    write(&tenant, "before").await?;
    let store = Emulator::start(stage.cluster(), speech).await?;
    let (name, mut block, credentials) = block(speech, &store.endpoint);
    secret(&stage, "store", &credentials).await?;
    secret(&stage, "authority", &json!({"ca.crt": store.authority})).await?;
    let kind = name.to_uppercase();
    let record = backed_up(
        &stage,
        &json!({"etcdCluster": {"name": "c"}, "storageType": kind, name: block}),
    )
    .await?;
    write(&tenant, "after").await?;
    let pods = tenant.pod_uids().await?;

    let other = Emulator::start(stage.cluster(), speech).await?;
    secret(&stage, "another-authority", &json!({"ca.crt": other.authority})).await?;
    block["path"] = json!(format!("{BUCKET}/{}", record.object));
    block["caSecret"] = json!("another-authority");
    let restore = Restore::named(&stage, "c");
    let asked = |block: &serde_json::Value| json!({"etcdCluster": {"name": "c"}, "backupStorageType": kind, name: block});
    restore.apply(&asked(&block)).await?;
    restore
        .says("tells whom it does not trust", |status| {
            let reason = status.reason.as_deref().unwrap_or_default();
            reason.contains("TlsUntrusted") && reason.contains(&format!("{name}.caSecret"))
        })
        .await?;
    ensure!(tenant.pod_uids().await? == pods, "a pod was touched");

    block["caSecret"] = json!("authority");
    restore.apply(&asked(&block)).await?;
    let status = restore.succeeds().await?;
    ensure!(status.revision == record.revision, "{status:?}");
    tenant.converged(1).await?;
    shows_the_backup(&tenant).await
}
