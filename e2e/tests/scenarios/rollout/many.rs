//! Many clusters change at once, and only so many of them have a member restarted at the same time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::scenario::{Stage, is_ready};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::json;
use tokio::task::JoinSet;

use super::{await_rolled_out, pods_with_flag, with_flag};
use crate::cluster::tenant::Tenant;

/// How many clusters change at once.
const CLUSTERS: usize = 16;
/// How the manager is told how many may roll at the same time.
const FLAG: &str = "--max-concurrent-rollouts=";

/// Clusters of one member each get a flag in the same moment: all have it in the end.
pub async fn sixteen(stage: Arc<Stage>) -> Result<()> {
    let first = Tenant::on(Arc::clone(&stage), EtcdVersion::V3_6_16).await?;
    let all: Vec<_> = (0..CLUSTERS)
        .map(|number| first.named(&format!("c{number}")))
        .collect();
    let mut spec = first.spec(1);
    spec["pod"] = json!({"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}});
    for tenant in &all {
        tenant.apply(&spec).await?;
    }
    for tenant in &all {
        tenant.converged(1).await?;
        tenant.put("before").await?;
    }
    let max = max_concurrent(&first).await?;
    let loaded = all.first().context("no cluster")?;
    let load = loaded.load().await?;
    load.flows().await?;
    let restarts = Restarts::watch(&stage).await?;
    stage.note("changes all clusters");
    let changed = with_flag(spec, 256);
    for tenant in &all {
        tenant.apply(&changed).await?;
    }
    for tenant in &all {
        await_rolled_out(tenant).await?;
        ensure!(pods_with_flag(tenant, 1, 256).await?.len() == 1);
        tenant.converged(1).await?;
        tenant.holds("before").await?;
    }
    let (restarted, most) = restarts.counts();
    stage.note(&format!(
        "{restarted} members were restarted, at most {most} of {max} at the same time"
    ));
    ensure!(
        restarted == CLUSTERS,
        "{restarted} of {CLUSTERS} members were restarted"
    );
    ensure!(
        (2..=max).contains(&most),
        "{most} members were restarted at the same time, and {max} may be"
    );
    let tally = loaded.judged(load).await?;
    loaded.note(&format!(
        "largest write gap of one member: {} ms",
        tally.longest_gap
    ));
    Ok(())
}

/// How many clusters the manager restarts members of at the same time.
async fn max_concurrent(tenant: &Tenant) -> Result<usize> {
    let path = "--output=jsonpath={.spec.template.spec.containers[*].args[*]}";
    let arguments = tenant
        .kubectl_of_operator(&["get", "deployment/etcd-operator", path])
        .await?;
    let mut arguments = arguments.split_whitespace();
    let max = arguments.find_map(|argument| argument.strip_prefix(FLAG));
    Ok(max.context("the manager has no limit")?.parse()?)
}

/// A watch of the pods of a namespace. Dropping it ends the watch.
struct Restarts {
    seen: Arc<Mutex<Seen>>,
    _watch: JoinSet<()>,
}

/// Which pods are restarted: from the moment in which one is deleted until its successor is ready.
#[derive(Debug, Default)]
struct Seen {
    now: BTreeSet<String>,
    ever: BTreeSet<String>,
    most: usize,
}

impl Restarts {
    /// Watches from now on; returns once the pods that are there have been listed, so that no restart after that is missed.
    async fn watch(stage: &Stage) -> Result<Self> {
        let mut events = watcher(stage.pods().await?, Config::default())
            .default_backoff()
            .boxed();
        while let Some(event) = events.try_next().await? {
            if matches!(event, Event::InitDone) {
                break;
            }
        }
        let seen = Arc::new(Mutex::new(Seen::default()));
        let kept = Arc::clone(&seen);
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            while let Some(event) = events.next().await {
                // A watch that broke begins anew by itself.
                if let Ok(event) = event {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).note(&event);
                }
            }
        });
        Ok(Self { seen, _watch: watch })
    }

    /// How many pods were restarted, and how many at most at the same time.
    fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.ever.len(), seen.most)
    }
}

impl Seen {
    fn note(&mut self, event: &Event<Pod>) {
        let (pod, is_gone) = match event {
            Event::Apply(pod) | Event::InitApply(pod) => (pod, pod.metadata.deletion_timestamp.is_some()),
            Event::Delete(pod) => (pod, true),
            Event::Init | Event::InitDone => return,
        };
        let name = pod.name_any();
        if is_gone {
            self.ever.insert(name.clone());
            self.now.insert(name);
        } else if is_ready(pod) {
            self.now.remove(&name);
        }
        self.most = self.most.max(self.now.len());
    }
}
