//! The hands that reach into the machines from outside: power, wires, volumes and names are taken away and given back.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Machine;
use super::kubelet::ended;
use super::state::{Container, State};
use crate::etcd::{Content, DiskId};

impl Machine {
    /// A node loses power: everything on it ends, and nobody hears of it.
    pub fn lose(&self, node: &str) {
        self.note(node, "loses power");
        let etcds = self.etcds().clone();
        self.with(|state| {
            set_node(state, node, |node| {
                node.is_up = false;
                node.silent.get_or_insert_with(Instant::now);
            });
            let now = Instant::now();
            for pod in state.pods.values_mut().filter(|pod| pod.node == node) {
                if let Container::Running { process, .. } = &pod.container {
                    etcds.kill(*process);
                }
                pod.container = ended(pod, now, 137, "the node lost power", now);
                if let Some(fetch) = &mut pod.fetch {
                    fetch.begin_again();
                }
            }
        });
    }

    /// The registry gets the images that it lacked.
    pub fn bring_missing_images(&self) {
        self.note("registry", "has every image");
        self.with(|state| state.jobs.has_missing_images = true);
    }

    /// A quota refuses the pods of Jobs, or no longer.
    pub fn refuse_job_pods(&self, refuses: bool) {
        self.note("quota", format_args!("refuses the pods of Jobs: {refuses}"));
        self.with(|state| state.jobs.refuses_pods = refuses);
    }

    /// A node comes back with what is on its disks.
    pub fn restore(&self, node: &str) {
        self.note(node, "has power");
        self.with(|state| {
            set_node(state, node, |node| {
                node.is_up = true;
                node.silent = (!node.is_connected).then(Instant::now);
            });
        });
    }

    /// A kubelet loses the API server; what runs on its node runs on.
    pub fn cut_off(&self, node: &str) {
        self.note(node, "loses the API server");
        self.with(|state| {
            set_node(state, node, |node| {
                node.is_connected = false;
                node.silent.get_or_insert_with(Instant::now);
            });
        });
    }

    /// A kubelet finds the API server again.
    pub fn reconnect(&self, node: &str) {
        self.note(node, "finds the API server");
        self.with(|state| {
            set_node(state, node, |node| {
                node.is_connected = true;
                node.silent = (!node.is_up).then(Instant::now);
            });
        });
    }

    /// Files of the downward API on a node come between so late and so late.
    pub fn set_lateness(&self, node: &str, least: Duration, most: Duration) {
        self.with(|state| set_node(state, node, |node| node.lateness = (least, most)));
    }

    /// Lets no more pods on a node, or lets them again.
    pub fn cordon(&self, node: &str, is_cordoned: bool) {
        self.note(
            node,
            if is_cordoned {
                "is cordoned"
            } else {
                "is uncordoned"
            },
        );
        self.fake().update_object("v1", "Node", "", node, |node| {
            node["spec"]["unschedulable"] = json!(is_cordoned);
        });
    }

    /// Lets a pod of this name fit on no node, or on any again.
    pub fn set_too_large(&self, namespace: &str, pod: &str, is_too_large: bool) {
        let key = (namespace.to_owned(), pod.to_owned());
        self.with(|state| {
            if is_too_large {
                state.too_large.insert(key);
            } else {
                state.too_large.remove(&key);
            }
        });
    }

    /// Lets no name resolve at a first start, or any again.
    pub fn set_nameless(&self, is_nameless: bool) {
        self.with(|state| state.is_nameless = is_nameless);
    }

    /// Makes disks that can be told from a copy in their place only by their directories.
    pub fn set_weak(&self, is_weak: bool) {
        self.with(|state| state.is_weak = is_weak);
    }

    /// Makes a storage class known, or unknown.
    pub fn set_class(&self, class: &str, is_known: bool) {
        self.with(|state| {
            if is_known {
                state.classes.insert(class.to_owned());
            } else {
                state.classes.remove(class);
            }
        });
    }

    /// Ties the volume of a claim to a node, as a disk inside it is.
    pub fn tie(&self, namespace: &str, claim: &str, node: &str) {
        let claim = self
            .fake()
            .get_object("v1", "PersistentVolumeClaim", namespace, claim);
        let volume = claim
            .as_ref()
            .and_then(|claim| claim["spec"]["volumeName"].as_str());
        if let Some(volume) = volume {
            self.with(|state| state.homes.insert(volume.to_owned(), node.to_owned()));
        }
    }

    /// Puts another claim in the place of one, on a volume of its own with this content, as somebody does who restores
    /// a snapshot. What lay behind the old one is gone.
    pub fn put_claim(&self, namespace: &str, claim: &str, content: Content) -> Option<DiskId> {
        let kind = "PersistentVolumeClaim";
        let old = self.fake().get_object("v1", kind, namespace, claim)?;
        self.fake().update_object("v1", kind, namespace, claim, |claim| {
            claim["metadata"]["finalizers"] = json!([]);
        });
        self.fake().delete_object("v1", kind, namespace, claim);
        let disk = self.etcds().disk_with(content);
        let volume = format!("snapshot-{disk:?}")
            .to_lowercase()
            .replace(['(', ')'], "-");
        let volume = volume.trim_end_matches('-').to_owned();
        self.with(|state| state.disks.insert(volume.clone(), disk));
        let mut spec = old["spec"].clone();
        spec["volumeName"] = json!(volume);
        let new = self.fake().put_object(json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": claim, "namespace": namespace, "labels": old["metadata"]["labels"],
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": spec,
            "status": old["status"],
        }));
        self.fake().put_object(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {
                    "apiVersion": "v1", "kind": kind, "namespace": namespace, "name": claim,
                    "uid": new["metadata"]["uid"],
                },
                "csi": {"driver": "disks.example", "volumeHandle": volume},
            },
        }));
        self.note(claim, format_args!("is another claim, on {disk:?}"));
        Some(disk)
    }

    /// Puts another disk with this content behind a claim, as a restored snapshot or a copy does. The pod on it loses
    /// what it had.
    pub fn exchange(&self, namespace: &str, claim: &str, content: Content) -> Option<DiskId> {
        let stored = self
            .fake()
            .get_object("v1", "PersistentVolumeClaim", namespace, claim)?;
        let volume = stored["spec"]["volumeName"].as_str()?.to_owned();
        let new = self.etcds().disk_with(content);
        let old = self.with(|state| state.disks.insert(volume, new));
        self.note(
            claim,
            format_args!("has another disk: {new:?} instead of {old:?}"),
        );
        if let Some(old) = old {
            self.etcds().destroy(old);
        }
        Some(new)
    }
}

fn set_node(state: &mut State, name: &str, change: impl FnOnce(&mut super::state::Node)) {
    change(
        state
            .nodes
            .get_mut(name)
            .unwrap_or_else(|| panic!("there is no {name}")),
    );
}
