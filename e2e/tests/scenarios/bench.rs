//! How long things take, next to what the same machine needs without an operator. Budgets are ratios or bounds that hold
//! on a quiet machine of two cores; `cargo xtask bench` plays these and nothing else does.
#![allow(clippy::print_stdout, reason = "what is measured is for people to read")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage, is_ready};
use etcd_operator_e2e::unprivileged::unprivileged;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::heal::wipe;
use crate::cluster::tenant::{SOON, Tenant, is_converged};

pub const SCENARIOS: &[Scenario] = &[
    Scenario::gate("bench", "three_members_from_nothing", Bed::Alone, |stage| {
        Box::pin(started(stage))
    })
    .bench(),
    Scenario::gate("bench", "from_three_to_five", Bed::Alone, |stage| {
        Box::pin(scaled(stage))
    })
    .bench()
    .long(),
    Scenario::gate("bench", "a_wiped_follower", Bed::Alone, |stage| {
        Box::pin(wiped(stage))
    })
    .bench(),
];

const VERSION: EtcdVersion = EtcdVersion::V3_6_16;

/// The one in the middle.
pub fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

/// Each, in seconds.
pub fn told(all: &[Duration]) -> String {
    let seconds = all.iter().map(|one| format!("{:.2}", one.as_secs_f64()));
    seconds.collect::<Vec<_>>().join(" ")
}

/// Waits until so many pods with this label are ready.
pub async fn ready(stage: &Stage, selector: &str, count: usize) -> Result<()> {
    let pods = stage.pods().await?;
    let chosen = ListParams::default().labels(selector);
    until("all pods are ready", SOON, || async {
        let found = pods.list(&chosen).await?;
        Ok((found.iter().filter(|pod| is_ready(pod)).count() == count).then_some(()))
    })
    .await
}

/// How many members are made together by hand.
const FIRST: usize = 3;
/// etcd takes nobody in before its members have known one another for five seconds.
const ACQUAINTED: Duration = Duration::from_secs(6);

/// Members with flags that were written by hand, and what the operator's pods are asked by the kubelet. Those that run
/// keep the flags with which they were made.
pub fn bare(namespace: &str, size: usize) -> [Value; 2] {
    let labels = json!({"app": "bare"});
    let metadata = json!({"name": "bare", "namespace": namespace});
    let members = (0..size).map(|number| format!("bare-{number}=http://bare-{number}.bare:2380"));
    let members: Vec<String> = members.collect();
    let state = if size > FIRST { "existing" } else { "new" };
    let flags = [
        "etcd".to_owned(),
        "--name=$(POD)".to_owned(),
        "--data-dir=/data/etcd".to_owned(),
        "--listen-peer-urls=http://0.0.0.0:2380".to_owned(),
        "--listen-client-urls=http://0.0.0.0:2379".to_owned(),
        "--listen-metrics-urls=http://0.0.0.0:2381".to_owned(),
        "--advertise-client-urls=http://$(POD).bare:2379".to_owned(),
        "--initial-advertise-peer-urls=http://$(POD).bare:2380".to_owned(),
        format!("--initial-cluster={}", members.join(",")),
        format!("--initial-cluster-state={state}"),
    ];
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true, "selector": labels,
            "ports": [{"name": "peer", "port": 2380}],
        },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
        "spec": {
            "serviceName": "bare", "replicas": size, "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": unprivileged(json!({"containers": [{
                    "name": "etcd", "image": format!("quay.io/coreos/etcd:v{}", VERSION.number()),
                    "command": flags,
                    "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2381}, "periodSeconds": 1},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }]})),
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}},
            }],
        },
    });
    [service, set]
}

/// As many are asked for by hand, and ready.
async fn by_hand_are(stage: &Stage, size: usize) -> Result<()> {
    for object in bare(stage.namespace(), size) {
        stage.cluster().apply(&object).await?;
    }
    ready(stage, "app=bare", size).await
}

/// What was made by hand goes, with its data.
async fn bare_go(tenant: &Tenant) -> Result<()> {
    tenant
        .kubectl(&["delete", "statefulset,service", "bare", "--cascade=foreground"])
        .await?;
    tenant.kubectl(&["delete", "pvc", "--all"]).await?;
    Ok(())
}

/// How long it takes by hand to take in two members, one after the other.
async fn joined_by_hand(stage: &Stage, tenant: &Tenant) -> Result<Duration> {
    by_hand_are(stage, FIRST).await?;
    let stand = Instant::now();
    until("the members know one another", SOON, || async {
        Ok((stand.elapsed() >= ACQUAINTED).then_some(()))
    })
    .await?;
    let endpoint = format!("http://{}:2379", stage.address("bare-0").await?);
    let from = Instant::now();
    for present in [FIRST, FIRST + 1] {
        let name = format!("bare-{present}");
        let url = format!("--peer-urls=http://{name}.bare:2380");
        until("etcd takes one in", SOON, || async {
            let output = tenant
                .etcdctl_at(&endpoint, &["member", "add", &name, &url])
                .await?;
            // An answer may have come too late for whoever asked.
            let is_in = String::from_utf8_lossy(&output.stderr).contains("already exist");
            Ok((output.status.success() || is_in).then_some(()))
        })
        .await?;
        by_hand_are(stage, present + 1).await?;
    }
    let took = from.elapsed();
    bare_go(tenant).await?;
    Ok(took)
}

async fn started(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage.clone(), VERSION).await?;
    let (mut by_hand, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..stage.runs() {
        let from = Instant::now();
        by_hand_are(&stage, FIRST).await?;
        by_hand.push(from.elapsed());
        bare_go(&tenant).await?;

        let from = Instant::now();
        tenant.apply(&tenant.spec(3)).await?;
        ready(&stage, "etcd_cluster=c", 3).await?;
        ours.push(from.elapsed());
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all"]).await?;
    }
    println!(
        "by hand: {} s; by the operator: {} s",
        told(&by_hand),
        told(&ours)
    );
    let (by_hand, ours) = (median(by_hand), median(ours));
    let ratio = ours.as_secs_f64() / by_hand.as_secs_f64();
    println!(
        "three members ready from nothing: {:.2} s by hand, {:.2} s by the operator: {ratio:.2} times (budget 1.6)",
        by_hand.as_secs_f64(),
        ours.as_secs_f64()
    );
    ensure!(ratio <= 1.6, "a start takes {ratio:.2} times as long as by hand");
    Ok(())
}

async fn scaled(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage.clone(), VERSION).await?;
    let (mut by_hand, mut all) = (Vec::new(), Vec::new());
    for _ in 0..stage.runs() {
        by_hand.push(joined_by_hand(&stage, &tenant).await?);
    }
    tenant.apply(&tenant.spec(3)).await?;
    tenant.converged(3).await?;
    for _ in 0..stage.runs() {
        let from = Instant::now();
        tenant.scale(5).await?;
        tenant.converged(5).await?;
        all.push(from.elapsed());
        tenant.scale(3).await?;
        tenant.converged(3).await?;
        until("the volumes of those that left are gone", SOON, || async {
            Ok((tenant.claims().await?.len() == 3).then_some(()))
        })
        .await?;
    }
    let each = told(&by_hand);
    println!(
        "from three to five by hand: {:.2} s (runs: {each})",
        median(by_hand).as_secs_f64()
    );
    judge("from three to five", all, Duration::from_secs(12))
}

async fn wiped(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage.clone(), VERSION, 3).await?;
    let mut all = Vec::new();
    for _ in 0..stage.runs() {
        let (_, follower) = tenant.leader_and_follower().await?;
        let id = |status: &etcd_operator_api::EtcdClusterStatus| {
            let mut members = status.member_status.iter().flatten();
            let member = members.find(|member| member.name == follower);
            member.and_then(|member| member.id.clone())
        };
        let before = id(&tenant.status().await?).context("a member without an ID")?;
        let from = Instant::now();
        wipe(&tenant, &follower).await?;
        tenant
            .says("the follower is another member, and all serve", |status| {
                id(status).is_some_and(|now| now != before) && is_converged(status, "3/3", 3)
            })
            .await?;
        all.push(from.elapsed());
        // A container that ends again and again in one pod is started ever later, whoever runs it.
        let pods = tenant.pod_uids().await?;
        tenant.delete_pod(&follower).await?;
        tenant.another_pod(&follower, &pods).await?;
        tenant.converged(3).await?;
    }
    judge("a wiped follower whole again", all, Duration::from_secs(15))
}

fn judge(what: &str, all: Vec<Duration>, budget: Duration) -> Result<()> {
    let each = told(&all);
    let median = median(all);
    println!(
        "{what}: {:.2} s (budget {} s; runs: {each})",
        median.as_secs_f64(),
        budget.as_secs()
    );
    ensure!(median <= budget, "{what} takes {:.2} s", median.as_secs_f64());
    Ok(())
}
