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
    .bench(),
    Scenario::gate("bench", "a_wiped_follower", Bed::Alone, |stage| {
        Box::pin(wiped(stage))
    })
    .bench(),
];

/// Odd, so that the one in the middle is one that was measured.
const RUNS: usize = 5;
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
async fn ready(stage: &Stage, selector: &str, count: usize) -> Result<()> {
    let pods = stage.pods().await?;
    let chosen = ListParams::default().labels(selector);
    until("all pods are ready", SOON, || async {
        let found = pods.list(&chosen).await?;
        Ok((found.iter().filter(|pod| is_ready(pod)).count() == count).then_some(()))
    })
    .await
}

/// Three members with flags that were written by hand, and what the operator's pods are asked by the kubelet.
fn bare(namespace: &str) -> [Value; 2] {
    let labels = json!({"app": "bare"});
    let metadata = json!({"name": "bare", "namespace": namespace});
    let members = [0, 1, 2].map(|number| format!("bare-{number}=http://bare-{number}.bare:2380"));
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
            "serviceName": "bare", "replicas": 3, "podManagementPolicy": "Parallel",
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

async fn started(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage.clone(), VERSION).await?;
    let (mut by_hand, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let from = Instant::now();
        for object in bare(stage.namespace()) {
            stage.cluster().apply(&object).await?;
        }
        ready(&stage, "app=bare", 3).await?;
        by_hand.push(from.elapsed());
        tenant
            .kubectl(&["delete", "statefulset,service", "bare", "--cascade=foreground"])
            .await?;
        tenant.kubectl(&["delete", "pvc", "--all"]).await?;

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
    let tenant = Tenant::serving(stage, VERSION, 3).await?;
    let mut all = Vec::new();
    for _ in 0..RUNS {
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
    judge("from three to five", all, Duration::from_secs(12))
}

async fn wiped(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::serving(stage, VERSION, 3).await?;
    let mut all = Vec::new();
    for _ in 0..RUNS {
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
