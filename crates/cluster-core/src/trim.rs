//! What is kept of objects in memory: only what the controller reads. A thousand clusters have thousands of pods.

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Node, NodeStatus, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::build::{ETCD, FETCH, FETCH_CLAIM};

/// Removes what the controller does not read of a pod. Metadata, status, node, commands, and etcd's image and readiness
/// probe stay.
pub fn pod(pod: &mut Pod) {
    drop_managed_fields(pod);
    if let Some(spec) = &mut pod.spec {
        let node = spec.node_name.take();
        let fetch_containers = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|init| init.name == FETCH);
        let fetch_containers: Vec<_> = fetch_containers
            .map(|init| k8s_openapi::api::core::v1::Container {
                name: init.name.clone(),
                ..Default::default()
            })
            .collect();
        let mut volumes = spec.volumes.take();
        if let Some(volumes) = &mut volumes {
            volumes.retain(|volume| volume.name == FETCH_CLAIM);
        }
        let mut containers = std::mem::take(&mut spec.containers);
        for container in &mut containers {
            let (name, command) = (std::mem::take(&mut container.name), container.command.take());
            let image = container.image.take().filter(|_| name == ETCD);
            let readiness_probe = container.readiness_probe.take().filter(|_| name == ETCD);
            *container = k8s_openapi::api::core::v1::Container {
                name,
                image,
                command,
                readiness_probe,
                ..Default::default()
            };
        }
        *spec = k8s_openapi::api::core::v1::PodSpec {
            node_name: node,
            containers,
            volumes: volumes.filter(|volumes| !volumes.is_empty()),
            init_containers: (!fetch_containers.is_empty()).then_some(fetch_containers),
            ..Default::default()
        };
    }
}

/// Removes all of a node but its name and the condition Ready: its other fields are large and change often.
pub fn node(node: &mut Node) {
    drop_managed_fields(node);
    node.metadata.annotations = None;
    node.metadata.labels = None;
    node.spec = None;
    let conditions = node.status.take().and_then(|status| status.conditions);
    node.status = conditions.map(|conditions| NodeStatus {
        conditions: Some(
            conditions
                .into_iter()
                .filter(|condition| condition.type_ == "Ready")
                .collect(),
        ),
        ..NodeStatus::default()
    });
}

/// Keeps of a claim all that an apply compares with.
pub fn claim(claim: &mut PersistentVolumeClaim) {
    drop_managed_fields(claim);
}

/// Keeps of a StatefulSet all that an apply compares with, and up to which generation its controller has seen it.
pub fn set(set: &mut StatefulSet) {
    drop_managed_fields(set);
    set.status = set.status.take().map(|status| StatefulSetStatus {
        observed_generation: status.observed_generation,
        ..StatefulSetStatus::default()
    });
}

/// Keeps of a Service all that an apply compares with.
pub fn service(service: &mut Service) {
    drop_managed_fields(service);
    service.status = None;
}

/// Keeps of a budget all that an apply compares with.
pub fn budget(budget: &mut PodDisruptionBudget) {
    drop_managed_fields(budget);
    budget.status = None;
}

/// Who wrote which field is of no use here.
fn drop_managed_fields(object: &mut impl Metadata<Ty = ObjectMeta>) {
    object.metadata_mut().managed_fields = None;
}
