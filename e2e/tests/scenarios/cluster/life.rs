//! A cluster's ordinary life.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use serde_json::json;

use super::tenant::{SOON, Tenant};

pub async fn created(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let members = tenant.members().await?;
    ensure!(members.len() == 3, "{members:?}");
    tenant.put("greeting").await?;
    tenant.holds("greeting").await?;

    let before = tenant.pod_uids().await?;
    let version = tenant.object().await?.metadata.resource_version;
    tenant.apply(&tenant.spec(3)).await?;
    tenant.kubectl(&["annotate", "etcd", "c", "seen=twice"]).await?;
    tenant.converged(3).await?;
    ensure!(tenant.pod_uids().await? == before, "pods were re-created");
    tenant.note(&format!("resourceVersion {version:?} before the second apply"));

    tenant.delete().await?;
    let kept = tenant.claims().await?;
    ensure!(kept.len() == 3, "volumes were deleted, {kept:?} are left");
    Ok(())
}

pub async fn of_one_and_of_five(stage: Arc<Stage>) -> Result<()> {
    let one = Tenant::on(stage, EtcdVersion::V3_7_3).await?;
    let five = one.named("five");
    one.apply(&one.spec(1)).await?;
    five.apply(&five.spec(5)).await?;
    one.converged(1).await?;
    five.converged(5).await?;
    one.put("one").await?;
    five.put("five").await?;
    ensure!(five.members().await?.len() == 5, "five are fewer");
    ensure!(
        one.etcdctl(&["get", "five"]).await?.is_empty(),
        "two clusters are one"
    );
    five.agrees().await
}

pub async fn scaled(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 1).await?;
    let load = tenant.load().await?;
    for size in [3, 5, 3, 1] {
        tenant.scale(size).await?;
        tenant.converged(size).await?;
    }
    until("volumes of members that left are gone", SOON, || async {
        Ok((tenant.claims().await? == ["data-c-0"]).then_some(()))
    })
    .await?;
    tenant.survived(load).await
}

/// As many as there can be, from nothing, and then fewer.
pub async fn of_nine(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(9);
    spec["pod"] = json!({"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}});
    tenant.apply(&spec).await?;
    let load = tenant.load_from_the_first().await?;
    tenant.converged(9).await?;
    load.flows().await?;
    ensure!(tenant.members().await?.len() == 9, "nine are fewer");
    tenant.agrees().await?;
    tenant.scale(7).await?;
    tenant.converged(7).await?;
    until("volumes of members that left are gone", SOON, || async {
        Ok((tenant.claims().await?.len() == 7).then_some(()))
    })
    .await?;
    ensure!(tenant.members().await?.len() == 7, "seven are others");
    tenant.survived(load).await
}

pub async fn slept(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_5_35, 3).await?;
    tenant.put("dream").await?;
    // Clients do not know of the sleep, and go on when it is over.
    let load = tenant.load().await?;
    load.flows().await?;
    tenant.scale(0).await?;
    tenant
        .says("it sleeps", |status| status.phase == "Hibernated")
        .await?;
    until("no pod is left", SOON, || async {
        Ok(tenant.pod_uids().await?.is_empty().then_some(()))
    })
    .await?;
    tenant.scale(3).await?;
    tenant.converged(3).await?;
    tenant.holds("dream").await?;
    tenant.survived(load).await
}

/// The manifest of the older operator, and what its users do next.
pub async fn ancestor(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_2_25)
        .await?
        .named("etcd-cluster");
    tenant.apply(&json!({"size": 3, "version": "3.2.25"})).await?;
    tenant.converged(3).await?;
    let said = tenant.kubectl(&["get", "etcd"]).await?;
    ensure!(
        said.contains("etcd-cluster") && said.contains("3/3") && said.contains("3.2.25"),
        "{said}"
    );
    let pod = tenant.pod(0);
    let inside = |words: &'static [&'static str]| {
        let client = "http://etcd-cluster-client:2379";
        let exec = [
            "exec",
            &pod,
            "--",
            "env",
            "ETCDCTL_API=3",
            "etcdctl",
            "--endpoints",
            client,
        ];
        let all: Vec<String> = exec.iter().chain(words).map(ToString::to_string).collect();
        let tenant = &tenant;
        async move {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            tenant.kubectl(&all).await
        }
    };
    let said = inside(&["put", "foo", "bar"]).await?;
    ensure!(said.trim() == "OK", "{said}");
    let said = inside(&["get", "foo"]).await?;
    ensure!(said.split_whitespace().eq(["foo", "bar"]), "{said}");
    let load = tenant.load().await?;
    tenant.scale(4).await?;
    tenant.converged(4).await?;
    tenant.survived(load).await
}

/// The least that can be asked for: how many, and an image; everything else is a default.
pub async fn size_and_image(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_5_35).await?;
    let image = format!("quay.io/coreos/etcd:v{}", EtcdVersion::V3_5_35.number());
    tenant.apply(&json!({"size": 3, "image": image})).await?;
    tenant.converged(3).await?;
    let status = tenant.status().await?;
    ensure!(
        status.current_version == EtcdVersion::V3_5_35.number(),
        "{}",
        status.current_version
    );
    tenant
        .condition("StorageEphemeral", "True", "DataLivesWithPods")
        .await?;
    tenant.put("image").await?;
    tenant.holds("image").await
}

/// The scale subresource tells an autoscaler how many there are, and which pods are meant.
pub async fn autoscaled(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 1).await?;
    let path = format!(
        "/apis/etcd.database.coreos.com/v1beta2/namespaces/{}/etcdclusters/c/scale",
        tenant.stage().namespace()
    );
    let said = tenant.kubectl(&["get", "--raw", &path]).await?;
    let scale: serde_json::Value = serde_json::from_str(&said)?;
    ensure!(
        scale["spec"]["replicas"] == 1 && scale["status"]["replicas"] == 1,
        "{said}"
    );
    let selector = scale["status"]["selector"].as_str().unwrap_or_default();
    let chosen = tenant
        .kubectl(&["get", "pods", "--output=name", "--selector", selector])
        .await?;
    ensure!(
        chosen.trim() == "pod/c-0",
        "an autoscaler would look at {chosen:?} by {selector:?}"
    );
    tenant.scale(3).await?;
    tenant.converged(3).await
}

pub async fn many(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let all: Vec<_> = (0..20).map(|number| first.named(&format!("c{number}"))).collect();
    let spec = json!({"size": 3, "version": EtcdVersion::V3_6_16.number()});
    for tenant in &all {
        tenant.apply(&spec).await?;
    }
    for tenant in &all {
        tenant.converged(3).await?;
        tenant.put("mine").await?;
    }
    for tenant in &all {
        tenant.holds("mine").await?;
    }
    Ok(())
}

pub async fn namesakes(stage: Arc<Stage>) -> Result<()> {
    let one = Tenant::on(stage.clone(), EtcdVersion::V3_6_16).await?;
    let cluster = stage.shared_cluster();
    let Some(cluster) = cluster else {
        anyhow::bail!("no bed");
    };
    let other = one.at(Arc::new(Stage::on(cluster, "namesake").await?));
    for tenant in [&one, &other] {
        tenant.apply(&tenant.spec(3)).await?;
    }
    for tenant in [&one, &other] {
        tenant.converged(3).await?;
    }
    one.put("one").await?;
    other.put("other").await?;
    other.delete().await?;
    one.holds("one").await?;
    ensure!(
        one.etcdctl(&["get", "other"]).await?.is_empty(),
        "namesakes share data"
    );
    one.converged(3).await
}

/// A spec that changes while it is still being followed.
pub async fn changed_its_mind(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    for size in [5, 2, 4, 1] {
        tenant.scale(size).await?;
        tenant
            .says("it is under way", |status| {
                super::tenant::is(status, "Scaling", "True", "Scaling")
            })
            .await?;
    }
    tenant.scale(3).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

pub async fn paused(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let mut spec = tenant.spec(5);
    spec["paused"] = json!(true);
    tenant.apply(&spec).await?;
    tenant
        .says("it is paused", |status| status.control_paused)
        .await?;
    tenant.delete_pod("c-1").await?;
    until("the pod is there again without the operator", SOON, || async {
        Ok((tenant.pod_uids().await?.len() == 3).then_some(()))
    })
    .await?;
    tenant.stage().ready("c-1").await?;
    let status = tenant.status().await?;
    ensure!(status.control_paused, "{status:?}");
    ensure!(tenant.members().await?.len() == 3, "it was scaled while paused");
    tenant.apply(&tenant.spec(5)).await?;
    tenant.converged(5).await?;
    tenant.survived(load).await
}
