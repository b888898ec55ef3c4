//! The operator itself dies or is away, and clusters that do not answer keep it from no other.

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

use super::heal::wipe;
use super::tenant::{SOON, Tenant, is};

/// The operator's containers as they run now.
pub(super) async fn managers(tenant: &Tenant) -> Result<Vec<Container>> {
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
    kill_managers(tenant, managers(tenant).await?).await
}

/// The same with the containers that were found before: they are killed without another look.
pub(super) async fn kill_managers(tenant: &Tenant, managers_now: Vec<Container>) -> Result<usize> {
    let mut killed = 0;
    for manager in managers_now {
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
pub(super) async fn leader(tenant: &Tenant) -> Result<String> {
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

/// How often it is killed.
const KILLS: usize = 20;

pub async fn killed_at_any_moment(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, EtcdVersion::V3_6_16, 3).await?;
    let load = tenant.load().await?;
    // While a disk is wiped the others have to be a majority: the size of one comes last.
    let mut sizes = [5, 3, 4, 5, 1].into_iter();
    let (mut size, mut killed) = (3, 0);
    let mut wiped: Vec<String> = Vec::new();
    for (round, moment) in moments().enumerate() {
        if round >= KILLS && killed >= KILLS {
            break;
        }
        if round % 4 == 0
            && let Some(next) = sizes.next()
        {
            size = next;
            tenant.scale(size).await?;
        }
        if round % 6 == 3 && wiped.len() < 3 {
            // What is replaced while the operator dies.
            let id = wipe_once_well(&tenant, size, wiped.last()).await?;
            wiped.push(id);
        }
        // The moment is the point of this scenario: nothing is waited for.
        tokio::time::sleep(Duration::from_millis(moment)).await;
        tenant.note(&format!("{moment} ms later"));
        killed += kill_operator(&tenant).await?;
        // Whoever does not lead yet does nothing, and dies for nothing.
        leads(&tenant).await?;
    }
    tenant.scale(3).await?;
    let last = wiped.last().context("no disk was wiped")?;
    tenant.becomes_another("c-0", last).await?;
    tenant.converged(3).await?;
    ensure!(wiped.len() == 3, "c-0 was wiped as {wiped:?} only");
    tenant.note(&format!(
        "{killed} kills; c-0 was replaced {} times: {wiped:?}",
        wiped.len()
    ));
    tenant.survived(load).await
}

/// Wipes the disk of the first member once the cluster is well, and whoever was wiped before is replaced; its ID.
async fn wipe_once_well(tenant: &Tenant, size: u8, before: Option<&String>) -> Result<String> {
    if let Some(before) = before {
        tenant.becomes_another("c-0", before).await?;
    }
    tenant.says_converged(size).await?;
    let id = until("c-0 is a member", SOON, || async {
        Ok(tenant.id_of("c-0").await.ok().filter(|id| !id.is_empty()))
    })
    .await?;
    wipe(tenant, "c-0").await?;
    Ok(id)
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
                is(status, "Available", "Unknown", "MembersUnreachable")
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
