//! Shared informers against a real API server whose history is forgotten and whose connections break.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use etcd_operator_e2e::control_plane::Access;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::{ControlPlane, Cut, Options};
use etcd_operator_runtime::client;
use etcd_operator_runtime::clock::SystemClock;
use etcd_operator_runtime::informer::{Informer, Informers, Scope, keep_all};
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::metrics::Metrics;
use etcd_operator_runtime::store::Change;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A watch is renewed every 30 s, and 5 s later the client gives up on one that does not end.
const HEALED: Duration = Duration::from_mins(1);

/// An informer behind a proxy, and a client that goes around it.
struct Watched {
    maps: Informer<ConfigMap>,
    direct: Api<ConfigMap>,
    deleted: Arc<Mutex<Vec<String>>>,
    namespace: String,
    cut: Cut,
    _stop: DropGuard,
}

impl Watched {
    async fn start(bed: &ControlPlane) -> Result<Self> {
        let namespace = bed.namespace("informers").await?;
        let cut = bed.cut().await?;
        // The operator's own client, with its time-outs.
        let config = bed.config_with(&Access::admin().through(&cut)).await?;
        let client = client::build(config, "informers-under-test")?;
        let metrics = Metrics::new("test", "test");
        let mut informers = Informers::new(client, SystemClock::shared(), metrics);
        let maps = informers.add::<ConfigMap>(Scope::Namespaces([namespace.clone()].into()), keep_all);
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&deleted);
        maps.sink(move |change| {
            if matches!(change, Change::Deleted(_)) {
                told.lock().expect("no panic holds it").push(change.key().name);
            }
        });
        let stop = CancellationToken::new();
        tokio::spawn(informers.run(stop.clone()));
        let watched = Self {
            maps,
            direct: Api::namespaced(bed.client().await?, &namespace),
            deleted,
            namespace,
            cut,
            _stop: stop.drop_guard(),
        };
        watched.maps.synced().wait_until_ready().await;
        Ok(watched)
    }

    async fn create(&self, name: &str) -> Result<()> {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        self.direct.create(&PostParams::default(), &map).await?;
        Ok(())
    }

    async fn change(&self, name: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"data": {"changed": "yes"}}));
        self.direct.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.direct.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn seen(&self, name: &str) -> Option<Arc<ConfigMap>> {
        self.maps.store().get(&ObjectKey::new(&self.namespace, name))
    }

    async fn until_seen(&self, name: &str, within: Duration) -> Result<()> {
        until(&format!("the store has {name}"), within, || async {
            Ok(self.seen(name).map(drop))
        })
        .await
    }

    fn is_changed(&self, name: &str) -> bool {
        self.seen(name).is_some_and(|map| map.data.is_some())
    }
}

#[tokio::test]
async fn a_gap_whose_history_is_forgotten_is_filled_and_what_vanished_in_it_is_told() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let watched = Watched::start(&bed).await?;
    for name in ["stays", "changes", "goes"] {
        watched.create(name).await?;
        watched.until_seen(name, HEALED).await?;
    }

    watched.cut.refuse();
    watched.change("changes").await?;
    watched.delete("goes").await?;
    watched.create("comes").await?;
    bed.forget_history().await?;
    assert!(watched.seen("goes").is_some(), "there was no gap");
    watched.cut.heal();

    watched.until_seen("comes", HEALED).await?;
    assert!(watched.is_changed("changes") && watched.seen("stays").is_some());
    assert!(watched.seen("goes").is_none());
    assert_eq!(*watched.deleted.lock().expect("no panic holds it"), ["goes"]);
    Ok(())
}

#[tokio::test]
async fn connections_that_are_cut_or_fall_silent_heal_by_themselves() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let watched = Watched::start(&bed).await?;

    watched.cut.cut();
    watched.create("after-the-cut").await?;
    watched.until_seen("after-the-cut", HEALED).await?;

    // What was open stays open and carries nothing; nobody is told.
    watched.cut.black_hole();
    watched.create("into-the-silence").await?;
    watched.cut.heal();
    watched.until_seen("into-the-silence", HEALED).await?;

    bed.stop_apiserver();
    bed.start_apiserver().await?;
    watched.delete("after-the-cut").await?;
    until("the delete is told", HEALED, || async {
        let deleted = watched.deleted.lock().expect("no panic holds it");
        Ok(deleted.contains(&"after-the-cut".to_owned()).then_some(()))
    })
    .await
}
