//! Questions about what runs: who reports at an address, where a Service leads, which names resolve.

use etcd_operator_api::contract::Report;
use serde_json::Value;

use super::Machine;
use super::api::{Kind, name, namespace, text, uid};
use super::member::labels;
use super::sets::is_ready;
use super::state::{Container, Pod};
use crate::etcd::{DiskId, ProcessId};

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreported {
    /// Something answers there that does not wait: etcd itself.
    #[error("it does not wait for a permit")]
    NotWaiting,
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// No answer comes.
    #[error("no answer")]
    Unreachable,
}

/// A pod in which a member may run.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its UID.
    pub uid: String,
    /// Its address.
    pub address: String,
    /// Its node.
    pub node: String,
    /// Its disk, once it is mounted.
    pub disk: Option<DiskId>,
    /// Its etcd, if that runs.
    pub process: Option<ProcessId>,
    /// Whether its probe calls it ready.
    pub is_ready: bool,
}

impl Machine {
    /// What the process at an address reports to a caller with these labels.
    pub fn report(&self, address: &str, labels_of_caller: &[String]) -> Result<Report, Unreported> {
        let found = self.look(|state| {
            let pod = state.pod_at(address).ok_or(Unreported::Unreachable)?;
            let is_up = state.nodes.get(&pod.node).is_some_and(|node| node.is_up);
            if !is_up || !self.etcds().connects(labels_of_caller, &labels(pod)) {
                return Err(Unreported::Unreachable);
            }
            match &pod.container {
                Container::Waiting { waiting, .. } => Ok(waiting.clone()),
                Container::Running { process, .. } if self.etcds().is_stopped(*process) => {
                    Err(Unreported::Unreachable)
                }
                Container::Running { .. } => Err(Unreported::NotWaiting),
                Container::Creating(_) | Container::Ended(_) => Err(Unreported::Refused),
            }
        });
        found.map(|waiting| waiting.report())
    }

    /// The newest pod of this name that any kubelet runs.
    pub fn pod(&self, namespace_of: &str, name_of: &str) -> Option<Found> {
        self.look(|state| {
            let mut pods: Vec<(&String, &Pod)> = state
                .pods
                .iter()
                .filter(|(_, pod)| namespace(&pod.object) == namespace_of && name(&pod.object) == name_of)
                .collect();
            pods.sort_by_key(|(uid, _)| (*uid).clone());
            let stored = self.fake().stored_one("v1", "Pod", namespace_of, name_of);
            let stored = stored
                .as_ref()
                .map(|stored| uid(stored))
                .unwrap_or_default()
                .to_owned();
            let own = pods.iter().position(|(uid, _)| **uid == stored);
            let (uid, pod) = own.map_or_else(|| pods.last().copied(), |index| pods.get(index).copied())?;
            Some(found(uid, pod))
        })
    }

    /// Every pod that any kubelet runs.
    pub fn pods(&self) -> Vec<Found> {
        self.look(|state| state.pods.iter().map(|(uid, pod)| found(uid, pod)).collect())
    }

    /// The disk behind a claim.
    pub fn disk(&self, namespace_of: &str, claim: &str) -> Option<DiskId> {
        let (version, kind, _) = Kind::Claim.row();
        let claim = self.fake().stored_one(version, kind, namespace_of, claim)?;
        self.look(|state| state.disks.get(text(&claim, "/spec/volumeName")).copied())
    }

    /// The addresses to which a Service leads.
    pub fn endpoints(&self, namespace_of: &str, service: &str) -> Vec<String> {
        let Some(service) = self.fake().stored_one("v1", "Service", namespace_of, service) else {
            return Vec::new();
        };
        let Some(selector) = service["spec"]["selector"].as_object() else {
            return Vec::new();
        };
        let takes_all = service["spec"]["publishNotReadyAddresses"] == true;
        let pods = self.fake().stored("v1", "Pod");
        let leads = |pod: &Value| {
            namespace(pod) == namespace_of
                && selector
                    .iter()
                    .all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
                && (takes_all || is_ready(pod))
        };
        let addresses = pods
            .iter()
            .filter(|pod| leads(pod))
            .map(|pod| text(pod, "/status/podIP"));
        addresses
            .filter(|address| !address.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Whether names below a Service resolve.
    pub(crate) fn resolves(&self, (namespace_of, service): &(String, String)) -> bool {
        !self.look(|state| state.is_nameless)
            && self
                .fake()
                .stored_one("v1", "Service", namespace_of, service)
                .is_some()
    }
}

fn found(uid: &str, pod: &Pod) -> Found {
    Found {
        uid: uid.to_owned(),
        address: pod.address.clone(),
        node: pod.node.clone(),
        disk: pod.disk,
        process: match &pod.container {
            Container::Running { process, .. } => Some(*process),
            _ => None,
        },
        is_ready: pod.is_ready,
    }
}
