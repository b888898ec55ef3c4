//! A cluster's ordinary life.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::tenant::{SOON, Tenant};

pub async fn created(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let spec = json!({"size": 3, "version": EtcdVersion::V3_6_16.number(), "storage": {"size": "256Mi"}});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    let members = tenant.members().await?;
    ensure!(members.len() == 3, "{members:?}");
    tenant.etcdctl(&["put", "greeting", "hello"]).await?;
    let said = tenant.etcdctl(&["get", "greeting", "--print-value-only"]).await?;
    ensure!(said.trim() == "hello", "{said}");

    let before = tenant.pod_uids().await?;
    let version = tenant.object().await?["metadata"]["resourceVersion"].clone();
    tenant.apply(&spec).await?;
    tenant.kubectl(&["annotate", "etcd", "c", "seen=twice"]).await?;
    tenant.converged(3).await?;
    ensure!(tenant.pod_uids().await? == before, "pods were re-created");
    tenant.note(&format!("resourceVersion {version} before the second apply"));

    tenant
        .kubectl(&["delete", "etcd", "c", "--wait=true", "--timeout=60s"])
        .await?;
    until("pods are gone and volumes are kept", SOON, || async {
        let pods = tenant.pod_uids().await?;
        let claims = tenant
            .kubectl(&["get", "pvc", "--output=jsonpath={.items[*].metadata.name}"])
            .await?;
        let kept = claims.split_whitespace().count() == 3;
        ensure!(kept, "volumes were deleted: {claims}");
        Ok(pods.is_empty().then_some(()))
    })
    .await
}

pub async fn scaled(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let spec = json!({"size": 3, "version": EtcdVersion::V3_6_16.number(), "storage": {"size": "256Mi"}});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    let writer = tenant.writer().await?;
    tenant.note("3 to 5");
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=5"]).await?;
    tenant.converged(5).await?;
    tenant.note("5 to 1");
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=1"]).await?;
    tenant.converged(1).await?;
    until("volumes of members that left are gone", SOON, || async {
        let claims = tenant
            .kubectl(&["get", "pvc", "--output=jsonpath={.items[*].metadata.name}"])
            .await?;
        Ok((claims.trim() == "data-c-0").then_some(()))
    })
    .await?;
    tenant.note("1 to 3");
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=3"]).await?;
    tenant.converged(3).await?;
    let written = writer.stop().await?;
    tenant.holds(&written).await
}

pub async fn slept(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_5_35).await?;
    let spec = json!({"size": 3, "version": EtcdVersion::V3_5_35.number(), "storage": {"size": "256Mi"}});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    tenant.etcdctl(&["put", "w/dream", "w/dream"]).await?;
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=0"]).await?;
    until("no pod is left", SOON, || async {
        let phase = tenant.object().await?["status"]["phase"].clone();
        Ok((phase == "Hibernated" && tenant.pod_uids().await?.is_empty()).then_some(()))
    })
    .await?;
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=3"]).await?;
    tenant.converged(3).await?;
    tenant.holds(&["w/dream".to_owned()]).await
}

pub async fn ancestor(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_2_25).await?;
    tenant.apply(&json!({"size": 3, "version": "3.2.25"})).await?;
    tenant.converged(3).await?;
    tenant.etcdctl(&["put", "w/old", "w/old"]).await?;
    tenant.kubectl(&["scale", "etcd", "c", "--replicas=4"]).await?;
    tenant.converged(4).await?;
    tenant.holds(&["w/old".to_owned()]).await
}
