//! Volumes: a claim gets one made for it, keeps it while a pod uses it, and takes it with it when it goes. The disk
//! behind a volume is the model's.

use serde_json::{Value, json};

use super::api::{Kind, Objects, Write, at, claims_of, is_ending, name, namespace, text, uid};
use super::state::State;
use crate::etcd::Etcds;

const PROTECTION: &str = "kubernetes.io/pvc-protection";
const DRIVER: &str = "disks.example";

/// What is done about claims and volumes.
pub(crate) fn step(objects: &Objects, state: &mut State, etcds: &Etcds) -> Vec<Write> {
    let mut writes = Vec::new();
    for claim in &objects.claims {
        if is_ending(claim) {
            writes.extend(release(claim, objects));
        } else {
            writes.extend(provide(claim, objects, state, etcds));
        }
    }
    for volume in &objects.volumes {
        writes.extend(reclaim(volume, objects, state, etcds));
    }
    writes
}

/// Whether a pod uses a claim: one that has a node, even if its containers have ended, for the volume may be mounted
/// there still. No kubelet starts a pod whose claim is being deleted.
fn is_used(claim: &Value, objects: &Objects) -> bool {
    objects.pods.iter().any(|pod| {
        namespace(pod) == namespace(claim)
            && !text(pod, "/spec/nodeName").is_empty()
            && claims_of(pod).any(|(_, mounted)| mounted == name(claim))
    })
}

fn release(claim: &Value, objects: &Objects) -> Option<Write> {
    let finalizers = claim["metadata"]["finalizers"].as_array()?;
    let is_protected = finalizers.iter().any(|finalizer| finalizer == PROTECTION);
    let rest: Vec<&Value> = finalizers
        .iter()
        .filter(|finalizer| *finalizer != PROTECTION)
        .collect();
    (is_protected && !is_used(claim, objects)).then(|| Write::Patch {
        kind: Kind::Claim,
        namespace: namespace(claim).to_owned(),
        name: name(claim).to_owned(),
        is_status: false,
        patch: json!({"metadata": {
            "uid": uid(claim), "resourceVersion": claim["metadata"]["resourceVersion"], "finalizers": rest,
        }}),
    })
}

fn provide(claim: &Value, objects: &Objects, state: &mut State, etcds: &Etcds) -> Vec<Write> {
    let class = text(claim, "/spec/storageClassName");
    if text(claim, "/status/phase") == "Bound" || !state.classes.contains(class) {
        return Vec::new();
    }
    let named = text(claim, "/spec/volumeName");
    let volume = if named.is_empty() {
        format!("pvc-{}", uid(claim))
    } else {
        named.to_owned()
    };
    let known = objects.volumes.iter().find(|stored| name(stored) == volume);
    if known.is_some_and(|known| text(known, "/spec/claimRef/uid") != uid(claim)) {
        return Vec::new();
    }
    let size = at(claim, "/spec/resources/requests/storage")
        .cloned()
        .unwrap_or_else(|| json!("1Gi"));
    let mut writes = Vec::new();
    if known.is_none() {
        if !named.is_empty() {
            return Vec::new();
        }
        state.disks.entry(volume.clone()).or_insert_with(|| etcds.disk());
        writes.push(Write::Create {
            kind: Kind::Volume,
            object: json!({
                "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                    "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class,
                    "claimRef": {
                        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(claim),
                        "name": name(claim), "uid": uid(claim),
                    },
                    "csi": {"driver": DRIVER, "volumeHandle": volume},
                },
            }),
        });
    }
    let place = || (namespace(claim).to_owned(), name(claim).to_owned());
    if named.is_empty() {
        let (namespace, name) = place();
        writes.push(Write::Patch {
            kind: Kind::Claim,
            namespace,
            name,
            is_status: false,
            patch: json!({"metadata": {"uid": uid(claim)}, "spec": {"volumeName": volume}}),
        });
    }
    let (namespace, name) = place();
    writes.push(Write::Patch {
        kind: Kind::Claim,
        namespace,
        name,
        is_status: true,
        patch: json!({
            "metadata": {"uid": uid(claim)},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}},
        }),
    });
    writes
}

/// A volume whose claim is gone goes, too, and with it the disk, unless it is to be kept.
fn reclaim(volume: &Value, objects: &Objects, state: &mut State, etcds: &Etcds) -> Option<Write> {
    let wanted = text(volume, "/spec/claimRef/uid");
    let is_claimed = objects.claims.iter().any(|claim| uid(claim) == wanted);
    if is_claimed || wanted.is_empty() || text(volume, "/spec/persistentVolumeReclaimPolicy") != "Delete" {
        return None;
    }
    if let Some(disk) = state.disks.remove(name(volume)) {
        etcds.destroy(disk);
    }
    Some(Write::Delete {
        kind: Kind::Volume,
        namespace: String::new(),
        name: name(volume).to_owned(),
        uid: uid(volume).to_owned(),
        is_at_once: false,
    })
}
