//! Wishes that cannot be fulfilled: the object says so by the field and tells what to do, nothing is half made, and
//! correcting it is enough.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::pki::Authority;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::secure;
use super::tenant::{SOON, Tenant, is, told, waits};

/// A cluster that asks for what cannot be had, and what must be said of it. No name holds a word that is looked for.
struct Wish {
    tenant: Tenant,
    spec: Value,
    words: &'static [&'static str],
}

impl Wish {
    /// What is good but for the value at this path.
    fn new(first: &Tenant, name: &str, path: &str, value: Value, words: &'static [&'static str]) -> Self {
        let mut spec = first.spec(1);
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        if let Some(parent) = spec.pointer_mut(parent) {
            parent[key] = value;
        }
        Self {
            tenant: first.named(name),
            spec,
            words,
        }
    }

    fn is_told_by(&self, mut texts: impl Iterator<Item = impl AsRef<str>>) -> bool {
        texts.any(|text| self.words.iter().all(|word| text.as_ref().contains(word)))
    }

    /// Whatever there is of the cluster but its own object.
    async fn made(&self) -> Result<String> {
        let selector = format!("--selector=etcd_cluster={}", self.tenant.name());
        let kinds = "statefulsets,pods,services,persistentvolumeclaims,poddisruptionbudgets";
        self.tenant
            .kubectl(&["get", kinds, &selector, "--output=name"])
            .await
    }

    /// It asks for what can be had, and gets it.
    async fn mended(&self) -> Result<()> {
        self.tenant.note(&format!("{} is corrected", self.tenant.name()));
        self.tenant.apply(&self.tenant.spec(1)).await?;
        self.tenant.converged(1).await
    }
}

/// Told apart by when it is found out: by the API server, by the operator, by those who make pods.
pub async fn told_and_mended(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    not_taken(&first).await?;
    refused(&first).await?;
    waiting(&first).await?;
    without_secrets(&first).await
}

/// What the API server does not even take.
async fn not_taken(first: &Tenant) -> Result<()> {
    let too_many = &["spec.size", "size must be 0 to 9", "for example: size: 3"];
    let nothing = &[
        "spec.storage.size",
        "storage.size must be a quantity above zero",
        "for example: size: 8Gi",
    ];
    for wish in [
        Wish::new(first, "ten", "/size", json!(10), too_many),
        Wish::new(first, "flat", "/storage/size", json!("0"), nothing),
    ] {
        let Err(error) = wish.tenant.apply(&wish.spec).await else {
            anyhow::bail!("{} was taken", wish.spec);
        };
        let said = format!("{error:#}");
        ensure!(wish.is_told_by([&said].into_iter()), "{said}");
        let object = format!("etcdcluster/{}", wish.tenant.name());
        let found = wish.tenant.field(&object, ".metadata.name").await?;
        ensure!(found.is_empty(), "it was made all the same");
        wish.mended().await?;
    }
    Ok(())
}

/// What the operator does not act upon.
async fn refused(first: &Tenant) -> Result<()> {
    let version = &["spec.version: etcd 3.5.2 ", ": take 3.5.35"];
    let unbuilt = &["spec.auth: is not implemented", "leave it out"];
    let amount = &[
        "spec.pod.resources.requests.cpu: 'lots' is not a quantity",
        "500m",
    ];
    let requests = json!({"resources": {"requests": {"cpu": "lots"}}});
    for wish in [
        Wish::new(first, "much", "/pod", requests, amount),
        Wish::new(first, "old", "/version", json!("3.5.2"), version),
        Wish::new(first, "early", "/auth", json!({"enabled": false}), unbuilt),
    ] {
        wish.tenant.apply(&wish.spec).await?;
        wish.tenant
            .says("it is refused by the field, and what to do is told", |status| {
                let mut all = status.conditions.iter().flatten();
                let refusal = all.find(|one| one.type_ == "Accepted" && one.status == "False");
                wish.is_told_by(refusal.iter().filter_map(|one| one.message.as_deref()))
            })
            .await?;
        let made = wish.made().await?;
        ensure!(made.is_empty(), "something was made all the same: {made}");
        wish.mended().await?;
        wish.tenant.condition("Accepted", "True", "Valid").await?;
    }
    refused_later(first).await
}

/// A cluster that runs is left alone, and what is told of it goes on being true.
async fn refused_later(first: &Tenant) -> Result<()> {
    let tenant = first.named("running");
    tenant.apply(&tenant.spec(1)).await?;
    tenant.converged(1).await?;
    let mut spec = tenant.spec(1);
    spec["version"] = json!("3.99.0");
    tenant.apply(&spec).await?;
    tenant.condition("Accepted", "False", "Invalid").await?;
    tenant.condition("Available", "True", "QuorumServes").await?;
    let pod = tenant.pod(0);
    let before = tenant.pod_uids().await?;
    tenant.delete_pod(&pod).await?;
    tenant.condition("Available", "False", "NoQuorum").await?;
    tenant.another_pod(&pod, &before).await?;
    tenant.condition("Available", "True", "QuorumServes").await?;
    tenant.apply(&tenant.spec(1)).await?;
    tenant.condition("Accepted", "True", "Valid").await?;
    Ok(())
}

/// What is found out only when pods are made, or when etcd starts in the first one.
async fn waiting(first: &Tenant) -> Result<()> {
    let image = &[
        "is not started yet: ",
        "quay.io/coreos/nothing:v3.6.16",
        "; correct spec.image, ",
    ];
    let class = &[
        "finds no node: ",
        "spec.storage.storageClassName is imaginary",
        "`kubectl get storageclass` shows which there are",
    ];
    let room = &[
        "finds no node: ",
        "Insufficient cpu",
        "; spec.pod.resources asks for cpu 900: ask for less",
    ];
    let requests = json!({"resources": {"requests": {"cpu": "900"}}});
    // Kubernetes keeps the name in two fields, and both must follow when it is taken back.
    let account = &[
        "has no pod yet",
        "`kubectl describe statefulset unknown` says why",
    ];
    let nobody = json!({"serviceAccountName": "nobody"});
    let flag = &[
        "flag provided but not defined: -no-such-flag",
        "correct spec.etcd.extraArgs",
    ];
    let flags = json!({"extraArgs": ["--no-such-flag=1"]});
    let wishes = [
        Wish::new(
            first,
            "unpulled",
            "/image",
            json!("quay.io/coreos/nothing:v3.6.16"),
            image,
        ),
        Wish::new(
            first,
            "unbound",
            "/storage/storageClassName",
            json!("imaginary"),
            class,
        ),
        Wish::new(first, "unplaced", "/pod", requests, room),
        Wish::new(first, "unknown", "/pod", nobody, account),
        Wish::new(first, "uncalled", "/etcd", flags, flag),
    ];
    for wish in &wishes {
        wish.tenant.apply(&wish.spec).await?;
    }
    for wish in &wishes {
        let status = wish
            .tenant
            .says(&format!("it says {:?}", wish.words), |status| {
                wish.is_told_by(told(status))
            })
            .await?;
        ensure!(
            status.cluster_id.is_none() && is(&status, "Available", "False", "NotFormed"),
            "{status:?}"
        );
    }
    for wish in &wishes {
        if wish.spec.pointer("/storage/storageClassName").is_some() {
            // Where data lie cannot be changed: this one is made again, and nothing of it stands in the way.
            wish.tenant.delete().await?;
            let selector = format!("--selector=etcd_cluster={}", wish.tenant.name());
            wish.tenant.kubectl(&["delete", "pvc", &selector]).await?;
        }
        wish.mended().await?;
    }
    Ok(())
}

/// Secrets that are made only later: the cluster waits for them and is not touched for it.
async fn without_secrets(first: &Tenant) -> Result<()> {
    let tenant = first.named("unsigned");
    tenant.apply(&secure::spec(&tenant, 1)).await?;
    let event = tenant.stage().event(&tenant.pod(0), "FailedMount", SOON).await?;
    let said = event.message.unwrap_or_default();
    ensure!(said.contains("-tls"), "{said}");
    let status = tenant
        .says(
            "it says which pod is not started, and which Secrets it needs",
            |status| {
                waits(status).any(|why| {
                    why.contains("unsigned-0 is not started yet: ")
                        && why.contains("spec.TLS.static.member, and each must exist: ")
                })
            },
        )
        .await?;
    ensure!(
        status.cluster_id.is_none() && is(&status, "Available", "False", "NotFormed"),
        "{status:?}"
    );
    tenant.note("the Secrets are made");
    secure::secrets(&tenant, &Authority::new()?).await?;
    tenant.says_converged(1).await?;
    Ok(())
}

/// An image that cannot be had is corrected in place, before there is any data.
pub async fn image_corrected(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let mut spec = tenant.spec(3);
    spec["repository"] = json!("quay.io/coreos/nothing");
    tenant.apply(&spec).await?;
    let status = tenant
        .says("it says that there is no such image", |status| {
            waits(status).any(|why| {
                why.contains("is not started yet: ")
                    && why.contains("quay.io/coreos/nothing:v3.6.16")
                    && why.contains("; correct spec.repository and spec.version, ")
            })
        })
        .await?;
    ensure!(status.cluster_id.is_none(), "{status:?}");
    tenant.apply(&tenant.spec(3)).await?;
    let load = tenant.load_from_the_first().await?;
    tenant.converged(3).await?;
    tenant.put("corrected").await?;
    tenant.survived(load).await
}
