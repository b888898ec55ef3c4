//! A Kubernetes API server whose objects are in a cluster that is upgraded.
#![allow(
    clippy::print_stdout,
    reason = "how long its clients could not write is for people to read"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::control_plane::TenantApiServer;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::scenario::Stage;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{SIZE, Upgrade, runs};

const WAY: [EtcdVersion; 3] = [EtcdVersion::V3_5_35, EtcdVersion::V3_6_16, EtcdVersion::V3_7_3];
/// Where the objects are.
const NAMESPACE: &str = "orders";
/// The object that is updated again and again.
const COUNTER: &str = "counter";
/// The field of it, and of those that are created.
const FIELD: &str = "value";
/// How long a client waits for one answer before it asks anew, and between two writes.
const ANSWER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How soon after the restart of a member reads, writes and the watch have to work.
const WORKS: Duration = Duration::from_secs(30);
/// Clients of the API server must not be kept from writing for longer than this.
const MAX_WRITE_GAP: Duration = Duration::from_secs(5);

/// From 3.5 to 3.7 in two edits, with fewer writes than after which a member takes a snapshot of its log by itself.
pub async fn keeps_its_objects(stage: Arc<Stage>) -> Result<()> {
    let upgrade = Upgrade::prepare(Arc::clone(&stage), &WAY).await?;
    let tenant = &upgrade.tenant;
    let cluster = stage.cluster();
    let node = cluster.nodes().first().context("a bed without nodes")?;
    let control_plane = cluster.control_plane();
    let mut server = control_plane
        .start_tenant_apiserver(node.entry(), &tenant.endpoint().await?)
        .await?;
    let clients = Clients::start(&server).await?;
    clients.work().await?;
    for (step, version) in WAY.iter().enumerate().skip(1) {
        let mut spec = upgrade.spec.clone();
        spec["version"] = json!(version.number());
        tenant.apply(&spec).await?;
        for count in 1..=usize::from(SIZE) {
            let what = format!("{count} members run step {step} of the way");
            tenant
                .says(&what, |status| runs(status, *version) >= count)
                .await?;
            clients.work().await.with_context(|| format!("after {what}"))?;
        }
        upgrade.arrived(*version).await?;
    }
    clients.work().await?;
    let tally = clients.stop(&server).await?;
    // They are nowhere else.
    let prefix = format!("/registry/configmaps/{NAMESPACE}/");
    let stored = tenant
        .etcdctl(&["get", &prefix, "--prefix", "--count-only", "--write-out=fields"])
        .await?;
    ensure!(
        stored.contains(&format!("\"Count\" : {}\n", tally.objects)),
        "the cluster does not hold {} objects: {stored}",
        tally.objects
    );
    server.check().context("the API server did not stay")?;
    drop(server);
    let words = format!(
        "largest time without a successful write through the API server: {} ms; {} writes acknowledged, {} failed; the watch began {} times",
        tally.longest_gap.as_millis(),
        tally.acknowledged,
        tally.failed,
        tally.watches
    );
    println!("{words}");
    tenant.note(&words);
    ensure!(tally.longest_gap <= MAX_WRITE_GAP, "{words}");
    upgrade.survived().await
}

/// What clients of the API server have seen.
#[derive(Debug)]
struct Seen {
    /// The objects whose creation was acknowledged, with their resource versions.
    created: BTreeMap<String, String>,
    /// The highest value of the counter that was acknowledged.
    counter: u64,
    acknowledged: usize,
    failed: usize,
    last_write: Instant,
    longest_gap: Duration,
    /// The objects that the watch has shown.
    watched: BTreeSet<String>,
    /// The last error of the watch, of one that has not recovered.
    watch_error: Option<String>,
    watches: usize,
}

/// How it went.
#[derive(Debug)]
struct ApiTally {
    objects: usize,
    acknowledged: usize,
    failed: usize,
    longest_gap: Duration,
    watches: usize,
}

/// One client that writes and one that watches.
#[derive(Debug)]
struct Clients {
    maps: Api<ConfigMap>,
    seen: Arc<Mutex<Seen>>,
    writer: AbortHandle,
    tasks: JoinSet<()>,
}

impl Clients {
    async fn start(server: &TenantApiServer) -> Result<Self> {
        let client = server.client()?;
        let namespace = Namespace {
            metadata: named(NAMESPACE),
            ..Namespace::default()
        };
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await?;
        let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        maps.create(&PostParams::default(), &map(COUNTER, "0")).await?;
        let seen = Arc::new(Mutex::new(Seen {
            created: BTreeMap::new(),
            counter: 0,
            acknowledged: 0,
            failed: 0,
            last_write: Instant::now(),
            longest_gap: Duration::ZERO,
            watched: BTreeSet::new(),
            watch_error: None,
            watches: 0,
        }));
        let mut tasks = JoinSet::new();
        let writer = tasks.spawn(write(maps.clone(), Arc::clone(&seen)));
        // It has connections of its own, as informers have.
        tasks.spawn(watch(server.client()?, Arc::clone(&seen)));
        Ok(Self {
            maps,
            seen,
            writer,
            tasks,
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        locked(&self.seen)
    }

    /// Waits until a write is acknowledged that began later, and until a read and the watch show it.
    async fn work(&self) -> Result<()> {
        // The one that is under way may be of before.
        let before = self.seen().created.len() + 1;
        let name = until("an object is created", WORKS, || async {
            let seen = self.seen();
            let last = seen.created.keys().next_back().cloned();
            Ok(last.filter(|_| seen.created.len() > before))
        })
        .await?;
        until("an acknowledged object is read", WORKS, || async {
            match timeout(ANSWER, self.maps.get_opt(&name)).await {
                Ok(Ok(Some(_))) => Ok(Some(())),
                Ok(Ok(None)) => bail!("{name} was acknowledged and is not there"),
                Ok(Err(_)) | Err(_) => Ok(None),
            }
        })
        .await?;
        let watched = until("the watch shows an acknowledged object", WORKS, || async {
            Ok(self.seen().watched.contains(&name).then_some(()))
        })
        .await;
        watched.with_context(|| format!("the watch last failed with {:?}", self.seen().watch_error))
    }

    /// Ends them; an error unless the API server has everything that it acknowledged, and the watch has shown it.
    async fn stop(mut self, server: &TenantApiServer) -> Result<ApiTally> {
        self.writer.abort();
        let longest_gap = {
            let seen = self.seen();
            seen.longest_gap.max(seen.last_write.elapsed())
        };
        let watched = until("the watch shows all that was acknowledged", WORKS, || async {
            let seen = self.seen();
            let is_shown = seen.created.keys().all(|name| seen.watched.contains(name));
            Ok(is_shown.then_some(()))
        })
        .await;
        watched.with_context(|| format!("the watch last failed with {:?}", self.seen().watch_error))?;
        self.tasks.shutdown().await;
        let maps = Api::<ConfigMap>::namespaced(server.client()?, NAMESPACE);
        let found = maps.list(&ListParams::default()).await?;
        let found: BTreeMap<String, ConfigMap> = found.into_iter().map(|map| (map.name_any(), map)).collect();
        let seen = self.seen();
        for (name, version) in &seen.created {
            let map = found
                .get(name)
                .with_context(|| format!("{name} was acknowledged and is lost"))?;
            ensure!(
                map.metadata.resource_version.as_ref() == Some(version) && value(map) == Some(name),
                "{name} was acknowledged at {version} and is {map:?}"
            );
        }
        let counter = found.get(COUNTER).and_then(value).context("no counter")?;
        ensure!(
            counter.parse::<u64>()? >= seen.counter,
            "the counter was acknowledged at {} and is {counter}",
            seen.counter
        );
        Ok(ApiTally {
            objects: found.len(),
            acknowledged: seen.acknowledged,
            failed: seen.failed,
            longest_gap,
            watches: seen.watches,
        })
    }
}

/// Creates objects and counts the counter up, one after the other.
async fn write(maps: Api<ConfigMap>, seen: Arc<Mutex<Seen>>) {
    for number in 0_u64.. {
        let outcome = if number % 2 == 0 {
            timeout(ANSWER, create(&maps, number, &seen)).await
        } else {
            timeout(ANSWER, count_up(&maps, &seen)).await
        };
        {
            let mut seen = locked(&seen);
            if matches!(outcome, Ok(Ok(()))) {
                let now = Instant::now();
                seen.longest_gap = seen.longest_gap.max(now.duration_since(seen.last_write));
                seen.last_write = now;
                seen.acknowledged += 1;
            } else {
                seen.failed += 1;
            }
        }
        sleep(PAUSE).await;
    }
}

/// Whether an attempt without an answer has created its object is never known: no name is used twice.
async fn create(maps: &Api<ConfigMap>, number: u64, seen: &Mutex<Seen>) -> Result<()> {
    let name = format!("order-{number:08}");
    let made = maps.create(&PostParams::default(), &map(&name, &name)).await?;
    let version = made.metadata.resource_version.context("no resourceVersion")?;
    locked(seen).created.insert(name, version);
    Ok(())
}

/// An update of what was read, which the API server refuses if it has changed since.
async fn count_up(maps: &Api<ConfigMap>, seen: &Mutex<Seen>) -> Result<()> {
    let mut counter = maps.get(COUNTER).await?;
    let next = value(&counter).context("no value")?.parse::<u64>()? + 1;
    counter.data = Some([(FIELD.to_owned(), next.to_string())].into());
    maps.replace(COUNTER, &PostParams::default(), &counter).await?;
    locked(seen).counter = next;
    Ok(())
}

async fn watch(client: Client, seen: Arc<Mutex<Seen>>) {
    let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let mut events = watcher(maps, Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let mut seen = locked(&seen);
        seen.watch_error = event.as_ref().err().map(ToString::to_string);
        match event {
            Ok(Event::Init) => seen.watches += 1,
            Ok(Event::InitApply(map) | Event::Apply(map)) => {
                seen.watched.insert(map.name_any());
            }
            Ok(Event::InitDone | Event::Delete(_)) | Err(_) => {}
        }
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: named(name),
        data: Some([(FIELD.to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

fn value(map: &ConfigMap) -> Option<&String> {
    map.data.as_ref()?.get(FIELD)
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
