//! Wishes that cannot be fulfilled: the object says so, nothing is half made, and correcting it is enough.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::tenant::{Tenant, told, waits};

/// Told apart by what they ask for; each must be told by words from the object itself.
pub async fn told_and_mended(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let good = first.spec(1);
    let changed = |name: &'static str, path: &str, value: serde_json::Value| {
        let mut spec = good.clone();
        if let Some(place) = spec.pointer_mut(path) {
            *place = value;
        } else {
            let (parent, key) = path.rsplit_once('/').unwrap_or_default();
            if let Some(parent) = spec.pointer_mut(parent) {
                parent[key] = value;
            }
        }
        (first.named(name), spec)
    };
    let waiting = [
        (
            changed("no-image", "/image", json!("quay.io/coreos/nothing:v3.6.16")),
            "nothing:v3.6.16",
        ),
        (
            changed("no-class", "/storage/storageClassName", json!("imaginary")),
            "imaginary",
        ),
        (
            changed(
                "no-room",
                "/pod",
                json!({"resources": {"requests": {"cpu": "900"}}}),
            ),
            "cpu",
        ),
        (
            changed(
                "no-secret",
                "/TLS",
                json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
            ),
            "ecret",
        ),
    ];
    for ((tenant, spec), word) in &waiting {
        tenant.apply(spec).await?;
        let status = tenant
            .says(&format!("it names {word}"), |status| {
                told(status).any(|text| text.contains(word))
            })
            .await?;
        ensure!(status.cluster_id.is_none(), "{status:?}");
    }
    let (tenant, spec) = changed("refused", "/version", json!("3.5.2"));
    tenant.apply(&spec).await?;
    tenant
        .says(
            "the version is refused, and which one to take is told",
            |status| {
                let mut all = status.conditions.iter().flatten();
                all.any(|one| {
                    let told = one.message.as_deref().unwrap_or_default();
                    one.type_ == "Accepted" && one.status == "False" && told.contains("take 3.5.35")
                })
            },
        )
        .await?;
    ensure!(
        tenant.pod_uids().await?.is_empty(),
        "something was made all the same"
    );

    let mut corrected = good.clone();
    corrected["storage"] = json!({"size": "256Mi"});
    for ((tenant, spec), word) in &waiting {
        tenant.note(&format!("what is said about {word} is corrected"));
        if spec.pointer("/storage/storageClassName").is_some() {
            // Where data lie cannot be changed: this one is made again, and nothing of it stands in the way.
            tenant.delete().await?;
            tenant
                .kubectl(&[
                    "delete",
                    "pvc",
                    "--selector",
                    &format!("etcd_cluster={}", tenant.name()),
                ])
                .await?;
        }
        if spec.pointer("/TLS").is_some() {
            continue;
        }
        tenant.apply(&corrected).await?;
        tenant.converged(1).await?;
    }
    Ok(())
}

/// An image that cannot be had is corrected in place, before there is any data.
pub async fn image_corrected(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(3);
    spec["repository"] = json!("quay.io/coreos/nothing");
    tenant.apply(&spec).await?;
    tenant
        .says("it says that there is no such image", |status| {
            waits(status).any(|why| why.to_lowercase().contains("image"))
        })
        .await?;
    tenant.apply(&tenant.spec(3)).await?;
    tenant.converged(3).await?;
    tenant.put("corrected").await
}
