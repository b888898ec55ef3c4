//! Persistent volumes: a provisioner that makes an XFS of the asked size for every claim, grows it when the claim
//! grows, and removes it when nobody needs it any more.
//!
//! Two storage classes: volumes of [`NETWORK`] (the default) can be used from any node, as a cloud's disks can;
//! those of [`LOCAL`] belong to the node they were made for.

mod disk;
mod quantity;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use disk::Disk;
use quantity::{bytes, written};

use crate::bed_dir::BedDir;
use crate::chronicle::Chronicle;
use crate::namespaces::Entry;

/// Volumes that any node can use.
pub const NETWORK: &str = "network";
/// Volumes that only one node has.
pub const LOCAL: &str = "local";

const PROVISIONER: &str = "bed.local/disks";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// A failed pass is tried again after this even if nothing changes.
const RETRY: Duration = Duration::from_secs(1);

/// Where a bed keeps its disks.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    hub: Entry,
    images: PathBuf,
    mounts: PathBuf,
    chronicle: Chronicle,
}

/// The running provisioner; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Provisioner(JoinHandle<()>);

impl Drop for Provisioner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Volumes {
    /// Makes the place. It has to be there before nodes are, which follow what is mounted in it.
    pub(crate) async fn prepare(bed: &BedDir, hub: Entry) -> Result<Self> {
        let volumes = Self {
            hub,
            images: bed.path().join("disks"),
            mounts: bed.path().join("volumes"),
            chronicle: bed.chronicle(),
        };
        for directory in [&volumes.images, &volumes.mounts] {
            fs::create_dir(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mounts = volumes.mounts.to_str().context("the bed's path is not UTF-8")?;
        hub.run("mount", &["--bind", mounts, mounts]).await?;
        hub.run("mount", &["--make-shared", mounts]).await?;
        Ok(volumes)
    }

    /// The disk behind a volume.
    pub(crate) fn disk(&self, volume: &str) -> Disk {
        Disk::at(self.hub, &self.images, &self.mounts, volume, &self.chronicle)
    }

    /// Starts to serve claims.
    pub(crate) fn provision(self, client: Client) -> Provisioner {
        Provisioner(tokio::spawn(serve(Arc::new(self), client)))
    }

    async fn pass(&self, client: &Client) -> Result<()> {
        let claims = Api::<PersistentVolumeClaim>::all(client.clone());
        let volumes = Api::<PersistentVolume>::all(client.clone());
        for claim in claims.list(&ListParams::default()).await? {
            if let Some((class, node)) = wanted(&claim) {
                self.create(&volumes, &claim, class, node).await?;
            }
            self.grow(client, &volumes, &claim).await?;
        }
        for volume in volumes.list(&ListParams::default()).await? {
            if is_done_with(&volume) {
                self.disk(&volume.name_any()).remove().await?;
                volumes
                    .delete(&volume.name_any(), &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        volumes: &Api<PersistentVolume>,
        claim: &PersistentVolumeClaim,
        class: &str,
        node: &str,
    ) -> Result<()> {
        let name = volume_name(claim)?;
        if volumes.get_opt(&name).await?.is_some() {
            return Ok(());
        }
        let disk = self.disk(&name);
        // Left by a pass that failed half-way.
        disk.remove().await?;
        disk.make(asked(claim).unwrap_or_default()).await?;
        let volume = volume(claim, &name, class, node, &disk)?;
        volumes.create(&PostParams::default(), &volume).await?;
        Ok(())
    }

    async fn grow(
        &self,
        client: &Client,
        volumes: &Api<PersistentVolume>,
        claim: &PersistentVolumeClaim,
    ) -> Result<()> {
        let Some(name) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
            return Ok(());
        };
        let has = claim.status.as_ref().and_then(|status| {
            status
                .capacity
                .as_ref()?
                .get("storage")
                .map(|size| bytes(&size.0))
        });
        let (Some(asked), Some(Some(has))) = (asked(claim), has) else {
            return Ok(());
        };
        let is_ours = volumes
            .get_opt(&name)
            .await?
            .is_some_and(|volume| is_ours(&volume));
        if asked <= has || !is_ours {
            return Ok(());
        }
        self.disk(&name).grow(asked).await?;
        let capacity = json!({ "storage": written(asked) });
        let size = json!({ "spec": { "capacity": capacity } });
        volumes
            .patch(&name, &PatchParams::default(), &Patch::Merge(&size))
            .await?;
        let claims =
            Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
        let size = json!({ "status": { "capacity": capacity } });
        claims
            .patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&size))
            .await?;
        Ok(())
    }
}

async fn serve(volumes: Arc<Volumes>, client: Client) {
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let existing = Api::<PersistentVolume>::all(client.clone());
    let mut changes = futures::stream::select(
        watcher(claims, watcher::Config::default()).map(|event| event.map(|_| ())),
        watcher(existing, watcher::Config::default()).map(|event| event.map(|_| ())),
    )
    .boxed();
    let mut told = false;
    loop {
        let passed = volumes.pass(&client).await;
        // An API server that is away is part of many scenarios: nothing is lost, a later pass does it.
        if let Err(error) = &passed
            && !std::mem::replace(&mut told, true)
        {
            eprintln!("disks: {error:#}");
        }
        told &= passed.is_err();
        if passed.is_err() {
            tokio::time::sleep(RETRY).await;
        }
        if let Ok(Some(Err(_))) = tokio::time::timeout(RETRY, changes.next()).await {
            // A broken watch is broken again at once for as long as the cause lasts.
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// The storage classes, as one list.
pub(crate) fn classes() -> Value {
    let class = |name: &str, default: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": name,
                "annotations": { "storageclass.kubernetes.io/is-default-class": default },
            },
            "provisioner": PROVISIONER,
            "allowVolumeExpansion": true,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
        })
    };
    json!({ "apiVersion": "v1", "kind": "List", "items": [class(NETWORK, "true"), class(LOCAL, "false")] })
}

/// Class and node of a claim that waits for a volume of ours.
fn wanted(claim: &PersistentVolumeClaim) -> Option<(&'static str, &str)> {
    let spec = claim.spec.as_ref()?;
    let class = [NETWORK, LOCAL]
        .into_iter()
        .find(|class| spec.storage_class_name.as_deref() == Some(*class))?;
    let waits = spec.volume_name.is_none() && claim.metadata.deletion_timestamp.is_none();
    let node = claim.annotations().get(SELECTED_NODE)?;
    waits.then_some((class, node))
}

fn asked(claim: &PersistentVolumeClaim) -> Option<u64> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    bytes(&requests.get("storage")?.0)
}

fn is_ours(volume: &PersistentVolume) -> bool {
    volume
        .annotations()
        .get("pv.kubernetes.io/provisioned-by")
        .map(String::as_str)
        == Some(PROVISIONER)
}

fn is_done_with(volume: &PersistentVolume) -> bool {
    let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
    let deletes = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        == Some("Delete");
    is_ours(volume) && released && deletes && volume.metadata.deletion_timestamp.is_none()
}

fn volume_name(claim: &PersistentVolumeClaim) -> Result<String> {
    let uid = claim.metadata.uid.as_ref().context("a claim has no UID")?;
    Ok(format!("pvc-{uid}"))
}

fn volume(
    claim: &PersistentVolumeClaim,
    name: &str,
    class: &str,
    node: &str,
    disk: &Disk,
) -> Result<PersistentVolume> {
    let place = if class == LOCAL {
        json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] })
    } else {
        json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] })
    };
    let spec = claim.spec.clone().unwrap_or_default();
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": { "pv.kubernetes.io/provisioned-by": PROVISIONER },
        },
        "spec": {
            "capacity": { "storage": written(disk.bytes()?) },
            "accessModes": spec.access_modes,
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class,
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.metadata.uid,
            },
            "local": { "path": disk.mount() },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [place] }] } },
        },
    });
    serde_json::from_value(volume).context("a volume is no PersistentVolume")
}
