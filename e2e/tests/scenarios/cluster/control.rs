//! The operator itself dies, stands still, or is away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::faults::Container;
use etcd_operator_e2e::install::NAMESPACE;
use etcd_operator_e2e::scenario::Stage;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ListParams};
use serde_json::json;

use super::tenant::{SOON, Tenant, is};

/// The operator's containers as they run now.
async fn managers(tenant: &Tenant) -> Result<Vec<Container>> {
    let cluster = tenant.stage().cluster();
    let pods = Api::<Pod>::namespaced(cluster.client().await?, NAMESPACE);
    let chosen = ListParams::default().labels("app.kubernetes.io/name=etcd-operator");
    let mut found = Vec::new();
    for pod in pods.list(&chosen).await? {
        let name = pod.metadata.name.context("a pod without a name")?;
        if let Ok(container) = cluster.container(NAMESPACE, &name, "manager").await {
            found.push(container);
        }
    }
    Ok(found)
}

/// Kills the operator as it runs now, and waits until it runs again. Returns how many processes died.
pub async fn kill_operator(tenant: &Tenant) -> Result<usize> {
    let mut killed = 0;
    for manager in managers(tenant).await? {
        killed += usize::from(manager.kill().is_ok());
    }
    tenant.note(&format!("kills {killed} processes of the operator"));
    // The kubelet waits longer before each restart; another pod starts at once.
    tenant
        .kubectl_of_operator(&[
            "delete",
            "pods",
            "--selector=app.kubernetes.io/name=etcd-operator",
            "--force",
            "--grace-period=0",
        ])
        .await?;
    until("the operator runs again", SOON, || async {
        Ok((!managers(tenant).await?.is_empty()).then_some(()))
    })
    .await?;
    Ok(killed)
}

/// Waits until the operator that runs now leads.
pub async fn leads(tenant: &Tenant) -> Result<()> {
    until("the operator leads", SOON, || async {
        let leader = leader(tenant).await?;
        let client = tenant.stage().cluster().client().await?;
        let pods = Api::<Pod>::namespaced(client, NAMESPACE);
        let found = pods.list(&ListParams::default()).await?.items;
        let mut names = found.iter().filter_map(|pod| pod.metadata.name.as_deref());
        Ok(names.any(|name| leader.contains(name)).then_some(()))
    })
    .await
}

/// Who holds the lease.
async fn leader(tenant: &Tenant) -> Result<String> {
    tenant
        .kubectl_of_operator(&[
            "get",
            "lease",
            "--output=jsonpath={.items[0].spec.holderIdentity}",
        ])
        .await
}

/// Moments that differ from one kill to the next, in milliseconds: what matters is that they fall everywhere.
pub fn moments() -> impl Iterator<Item = u64> {
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        200 + seed % 4_000
    })
}

pub async fn killed_at_any_moment(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let mut sizes = [5, 3, 4, 1, 3].into_iter().cycle();
    let mut killed = 0;
    for moment in moments() {
        if killed >= 20 {
            break;
        }
        if killed % 4 == 0 {
            let size = sizes.next().unwrap_or(3);
            tenant.scale(size).await?;
        }
        if killed % 6 == 3 {
            // What is replaced while the operator dies.
            let victim = tenant.disk("c-0").await?;
            let container = tenant.container("c-0").await;
            let well = tenant.members().await.is_ok_and(|members| members.len() >= 3);
            let ready = tenant
                .status()
                .await?
                .members
                .unready
                .unwrap_or_default()
                .is_empty();
            if let (Ok(container), true, true) = (container, well, ready) {
                tenant.note("wipes c-0");
                container.pause()?;
                victim.wipe()?;
                container.kill()?;
            }
        }
        // The moment is the point of this scenario: nothing is waited for.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        tenant.note(&format!("{moment} ms later"));
        killed += kill_operator(&tenant).await?;
    }
    tenant.scale(3).await?;
    tenant.converged(3).await?;
    tenant.survived(load).await
}

/// A leader that stood still for a minute wakes up in the middle of what its successor does, and harms nothing.
pub async fn stood_still(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    tenant
        .kubectl_of_operator(&["scale", "deployment/etcd-operator", "--replicas=2"])
        .await?;
    until("two operators run", SOON, || async {
        Ok((managers(&tenant).await?.len() == 2).then_some(()))
    })
    .await?;
    tenant.scale(5).await?;
    let name = leader(&tenant).await?;
    let pod = name
        .split(['_', '/'])
        .find(|part| part.starts_with("etcd-operator-"))
        .with_context(|| format!("the lease is held by {name}, which names no pod"))?
        .to_owned();
    let cluster = tenant.stage().cluster();
    let stale = cluster.container(NAMESPACE, &pod, "manager").await?;
    tenant.note(&format!("{pod} leads and stands still"));
    stale.pause()?;
    until("another one leads", SOON, || async {
        let now = leader(&tenant).await?;
        Ok((!now.is_empty() && now != name).then_some(()))
    })
    .await?;
    tenant.converged(5).await?;
    tenant.scale(3).await?;
    stale.resume()?;
    tenant.converged(3).await?;
    tenant
        .kubectl_of_operator(&["scale", "deployment/etcd-operator", "--replicas=1"])
        .await?;
    tenant.survived(load).await
}

/// Clusters whose members let the operator wait cost others nothing.
pub async fn silent_beside(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(stage, EtcdVersion::V3_6_16).await?;
    let named = |kind: &str, count: usize| -> Vec<Tenant> {
        (0..count)
            .map(|number| first.named(&format!("{kind}{number}")))
            .collect()
    };
    let (well, silent) = (named("well", 20), named("silent", 3));
    let spec = json!({"size": 1, "version": EtcdVersion::V3_6_16.number()});
    for tenant in well.iter().chain(&silent) {
        tenant.apply(&spec).await?;
    }
    for tenant in well.iter().chain(&silent) {
        tenant.converged(1).await?;
    }
    let among_friends = put_back(&first, &well).await?;

    let cluster = first.stage().cluster();
    let mut cuts = Vec::new();
    for tenant in &silent {
        cuts.push(
            cluster
                .cut_pod(tenant.stage().namespace(), &tenant.pod(0))
                .await?,
        );
    }
    for tenant in &silent {
        tenant
            .says("it does not answer", |status| {
                is(status, "Available", "False", "NoQuorum")
            })
            .await?;
    }
    let beside_silent = put_back(&first, &well).await?;
    first.note(&format!(
        "twenty Services were put back in {among_friends:?}, and in {beside_silent:?} beside clusters that do not answer"
    ));
    // Whoever waits for one answer of a silent cluster waits for seconds, and there are three.
    ensure!(
        beside_silent < among_friends + Duration::from_secs(2),
        "the silent ones were waited for: {beside_silent:?} instead of {among_friends:?}"
    );
    for cut in cuts {
        cut.heal().await?;
    }
    for tenant in &silent {
        tenant.converged(1).await?;
    }
    Ok(())
}

/// Deletes the Services of all these at once; how long it takes until all are there again.
async fn put_back(first: &Tenant, all: &[Tenant]) -> Result<Duration> {
    let services: Vec<String> = all
        .iter()
        .map(|tenant| format!("{}-client", tenant.name()))
        .collect();
    let mut delete = vec!["delete", "service", "--wait=false"];
    delete.extend(services.iter().map(String::as_str));
    let namespace = first.stage().namespace();
    let found = Api::<Service>::namespaced(first.stage().cluster().client().await?, namespace);
    let uids = async || -> Result<BTreeMap<String, String>> {
        let listed = found.list_metadata(&ListParams::default()).await?;
        let each = listed.into_iter().map(|service| service.metadata);
        Ok(each
            .filter_map(|metadata| Some((metadata.name?, metadata.uid?)))
            .collect())
    };
    let before = uids().await?;
    first.kubectl(&delete).await?;
    let from = Instant::now();
    until("all Services are there again", SOON, || async {
        let now = uids().await?;
        let is_new = |name: &String| now.get(name).is_some_and(|uid| before.get(name) != Some(uid));
        Ok(services.iter().all(is_new).then_some(()))
    })
    .await?;
    Ok(from.elapsed())
}

/// While no operator runs, what has data comes back by itself; what is asked for meanwhile is done afterwards.
pub async fn away(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    tenant
        .kubectl_of_operator(&["scale", "deployment/etcd-operator", "--replicas=0"])
        .await?;
    until("no operator runs", SOON, || async {
        Ok(managers(&tenant).await?.is_empty().then_some(()))
    })
    .await?;
    let before = tenant.members().await?;
    for ordinal in 0..3 {
        let pod = tenant.pod(ordinal);
        let uids = tenant.pod_uids().await?;
        tenant.delete_pod(&pod).await?;
        tenant.another_pod(&pod, &uids).await?;
    }
    ensure!(
        tenant.members().await? == before,
        "members changed without an operator"
    );
    tenant.scale(5).await?;
    tenant
        .kubectl_of_operator(&["scale", "deployment/etcd-operator", "--replicas=1"])
        .await?;
    tenant.converged(5).await?;
    tenant.survived(load).await
}

/// Whatever is deleted of a cluster's objects is put back.
pub async fn children_put_back(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    let members = tenant.members().await?;
    for child in ["service/c-client", "service/c", "poddisruptionbudget/c"] {
        let uid = ".metadata.uid";
        let before = tenant.field(child, uid).await?;
        tenant.note(&format!("deletes {child}"));
        tenant.kubectl(&["delete", child]).await?;
        until(&format!("{child} is there again"), SOON, || async {
            let now = tenant.field(child, uid).await?;
            Ok((!now.is_empty() && now != before).then_some(()))
        })
        .await?;
    }
    tenant.note("deletes the StatefulSet, and its pods stay");
    tenant
        .kubectl(&["delete", "statefulset/c", "--cascade=orphan"])
        .await?;
    until("it is there again", SOON, || async {
        let now = tenant
            .kubectl(&["get", "statefulset/c", "--output=name", "--ignore-not-found"])
            .await?;
        Ok((!now.is_empty()).then_some(()))
    })
    .await?;
    tenant.converged(3).await?;
    tenant.note("deletes the StatefulSet with its pods");
    let uids = tenant.pod_uids().await?;
    tenant.kubectl(&["delete", "statefulset/c"]).await?;
    tenant.all_others(&uids).await?;
    tenant.converged(3).await?;
    ensure!(
        tenant.members().await? == members,
        "members were replaced whose disks are whole"
    );
    tenant.note("deletes the claim of a pod that runs: it waits for its pod");
    tenant
        .kubectl(&["delete", "pvc/data-c-1", "--wait=false"])
        .await?;
    let before = tenant.id_of("c-1").await?;
    tenant.delete_pod("c-1").await?;
    tenant.becomes_another("c-1", &before).await?;
    tenant.converged(3).await?;
    // The address of the Service was another one for a moment: clients were at the old one.
    drop(load);
    tenant.agrees().await
}

/// Settings of objects that a person changes by hand are put back; what is theirs alone is left alone.
/// A person took a member out: its etcd finds that out and ends, and another member takes its place.
pub async fn removed_by_hand(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16, EtcdVersion::V3_7_3] {
        let tenant = Tenant::serving(stage.clone(), version, 3).await?;
        let load = tenant.load().await?;
        for pod in ["c-2", "c-0"] {
            let before = tenant.id_of(pod).await?;
            let id: u64 = before.parse()?;
            tenant.note(&format!("removes {pod} by hand"));
            let id = format!("{id:x}");
            // etcd refuses until its members have known one another for some seconds.
            until("etcd takes it out", SOON, || async {
                Ok(tenant.etcdctl(&["member", "remove", &id]).await.ok())
            })
            .await?;
            tenant.becomes_another(pod, &before).await?;
            tenant.converged(3).await?;
        }
        tenant.survived(load).await?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

pub async fn drift_put_back(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let patch = json!({
        "metadata": {"annotations": {"theirs": "kept"}},
        "spec": {"selector": {"app": "somebody-else"}},
    });
    let patch = patch.to_string();
    tenant
        .kubectl(&["patch", "service", "c-client", "--type=merge", "--patch", &patch])
        .await?;
    until("the selector is back", SOON, || async {
        let said = tenant.field("service/c-client", ".spec.selector.app").await?;
        Ok((said == "etcd").then_some(()))
    })
    .await?;
    let theirs = tenant
        .field("service/c-client", ".metadata.annotations.theirs")
        .await?;
    ensure!(theirs == "kept", "{theirs}");
    tenant.put("drift").await?;
    tenant.holds("drift").await
}
