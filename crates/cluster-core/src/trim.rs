//! What is kept of objects in memory: only what the controller reads. A thousand clusters have thousands of pods.

use etcd_operator_api::reserved;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Node, NodeStatus, PersistentVolumeClaim, Pod, PodCondition, PodSpec,
    PodStatus, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::build::{CLUSTER_UID, ETCD, FETCH, FETCH_CLAIM, INCARNATION, SNAPSHOT_COUNT};
use crate::observed_state::kube_objects::SELECTED_NODE;

/// Keeps of a pod its metadata and what the controllers read of its spec and status.
pub fn pod(pod: &mut Pod) {
    drop_managed_fields(pod);
    pod.spec = pod.spec.take().map(pod_spec);
    pod.status = pod.status.take().map(pod_status);
}

/// The node and the deadline, the etcd container with what its command says of how it was started, and whether the pod fetches
/// a backup.
fn pod_spec(spec: PodSpec) -> PodSpec {
    let etcd = spec.containers.into_iter().filter(|one| one.name == ETCD);
    let etcd = etcd.map(|etcd| Container {
        name: etcd.name,
        image: etcd.image,
        command: etcd
            .command
            .map(|words| words.into_iter().filter(|word| is_read(word)).collect()),
        readiness_probe: etcd.readiness_probe,
        ..Container::default()
    });
    let init_containers = spec.init_containers.into_iter().flatten();
    let fetch = init_containers
        .filter(|one| one.name == FETCH)
        .map(|fetch| Container {
            name: fetch.name,
            ..Container::default()
        });
    let fetch: Vec<_> = fetch.collect();
    let volumes = spec.volumes.into_iter().flatten();
    let volumes: Vec<_> = volumes.filter(|volume| volume.name == FETCH_CLAIM).collect();
    PodSpec {
        node_name: spec.node_name,
        active_deadline_seconds: spec.active_deadline_seconds,
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        containers: etcd.collect(),
        init_containers: (!fetch.is_empty()).then_some(fetch),
        volumes: (!volumes.is_empty()).then_some(volumes),
        ..PodSpec::default()
    }
}

/// Whether a word of a member's command is read. The separator stays, as only flags after it are etcd's.
fn is_read(word: &str) -> bool {
    let prefixes = [CLUSTER_UID, INCARNATION, SNAPSHOT_COUNT];
    word == "--" || prefixes.iter().any(|prefix| word.starts_with(prefix))
}

/// Phase and address, whether the pod is ready and scheduled, and the states of its containers.
fn pod_status(status: PodStatus) -> PodStatus {
    let is_read = |condition: &PodCondition| ["Ready", "PodScheduled"].contains(&&*condition.type_);
    let conditions = status.conditions;
    PodStatus {
        phase: status.phase,
        pod_ip: status.pod_ip,
        start_time: status.start_time,
        conditions: conditions.map(|all| all.into_iter().filter(is_read).collect()),
        container_statuses: status.container_statuses.map(container_statuses),
        init_container_statuses: status.init_container_statuses.map(container_statuses),
        ..PodStatus::default()
    }
}

/// The states of containers, without what the kubelet says of their images, mounts and resources.
fn container_statuses(all: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    let without_resources = |status: ContainerStatus| ContainerStatus {
        name: status.name,
        ready: status.ready,
        restart_count: status.restart_count,
        state: status.state,
        last_state: status.last_state,
        ..ContainerStatus::default()
    };
    all.into_iter().map(without_resources).collect()
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

/// Keeps of a claim all that an apply compares with, and the annotation with the node that its volume is made for.
pub fn claim(claim: &mut PersistentVolumeClaim) {
    drop_managed_fields(claim);
    claim.status = None;
    if let Some(annotations) = &mut claim.metadata.annotations {
        annotations.retain(|key, _| key == SELECTED_NODE || reserved::annotation(key));
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observed_state::kube_objects::{read_claim, read_pod};

    /// The etcd container, as a kubelet with in-place resizing tells of it.
    fn told_by_kubelet(
        name: &str,
        state: &serde_json::Value,
        last_state: &serde_json::Value,
    ) -> serde_json::Value {
        json!({
            "name": name, "ready": false, "started": false, "restartCount": 4,
            "image": "docker.io/library/etcd:3.6", "imageID": "etcd@sha256:left-out", "containerID": "containerd://left-out",
            "allocatedResources": {"left-out": "1"}, "resources": {"requests": {"left-out": "1"}},
            "volumeMounts": [{"name": "data", "mountPath": "/left-out"}], "user": {"linux": {"uid": 1, "gid": 1}},
            "state": state, "lastState": last_state,
        })
    }

    #[test]
    fn what_is_kept_of_a_pod_is_all_that_is_read_of_it() {
        let ended = |code: i32, message: &str| json!({"terminated": {"exitCode": code, "message": message}});
        let etcd = told_by_kubelet(
            "etcd",
            &json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            &ended(1, "it panicked"),
        );
        let probe = json!({"httpGet": {"path": "/readyz", "port": 2381}, "successThreshold": 1});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"etcd_cluster": "c"}, "annotations": {"etcd.database.coreos.com/intent": "hash"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "c", "uid": "s"}],
            },
            "spec": {
                "nodeName": "n1", "activeDeadlineSeconds": 720, "terminationGracePeriodSeconds": 45,
                "initContainers": [{"name": "install", "image": "left-out"}, {"name": "fetch", "image": "left-out"}],
                "containers": [
                    {
                        "name": "etcd", "image": "etcd:3.6", "readinessProbe": probe, "livenessProbe": probe,
                        "env": [{"name": "left-out"}], "volumeMounts": [{"name": "data", "mountPath": "/left-out"}],
                        "command": [
                            "member", "--cluster-uid=u", "--incarnation=3", "--left-out=1", "--",
                            "etcd", "--snapshot-count=5000", "--listen-peer-urls=left-out",
                        ],
                    },
                    {"name": "left-out", "command": ["sleep"]},
                ],
                "volumes": [
                    {"name": "left-out", "emptyDir": {}},
                    {"name": "restore-backups", "persistentVolumeClaim": {"claimName": "backups"}},
                ],
                "tolerations": [{"key": "left-out"}],
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "left-out",
                "conditions": [
                    {"type": "Initialized", "status": "True", "reason": "left-out"},
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    },
                ],
                "initContainerStatuses": [
                    told_by_kubelet(
                        "install", &ended(0, r#"{"version":1,"memberID":"8e9e05c52164694d","index":7}"#), &json!({})),
                    told_by_kubelet("fetch", &ended(2, "no store"), &ended(3, "no bucket")),
                ],
                "containerStatuses": [etcd],
            },
        }))
        .expect("a pod");
        let mut kept = pod.clone();
        super::pod(&mut kept);
        let read = read_pod(&pod, None).expect("what counts of it");
        assert_eq!(read_pod(&kept, None), Some(read.clone()));
        assert_eq!(kept.metadata, pod.metadata);
        // The controller of backups reads it of the pods of its Jobs.
        let (spec, status) = (
            kept.spec.clone().expect("a spec"),
            kept.status.clone().expect("a status"),
        );
        assert_eq!(
            (
                spec.active_deadline_seconds,
                spec.termination_grace_period_seconds
            ),
            (Some(720), Some(45))
        );
        assert!(status.start_time.is_some());
        let text = serde_json::to_string(&kept).expect("JSON");
        assert!(!text.contains("left-out"), "{text}");
        // All of it was there to be read.
        assert_eq!((read.incarnation, read.snapshot_count), (3, Some(5000)));
        assert!(read.has_single_success_probe && read.is_crash_looping && read.ready);
        assert!(read.end.is_some() && read.unschedulable.is_some() && read.volume_position.is_some());
        let fetch = read.fetch.expect("a fetch");
        assert!(fetch.failure.is_some() && fetch.claim.is_some());
    }

    #[test]
    fn what_is_kept_of_a_claim_is_all_that_is_read_and_compared_of_it() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {
                "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["kubernetes.io/pvc-protection"], "labels": {"a": "b"},
                "annotations": {
                    "volume.kubernetes.io/selected-node": "n1", "etcd.database.coreos.com/applied": "hash",
                    "pv.kubernetes.io/bind-completed": "left-out",
                },
            },
            "spec": {"storageClassName": "fast", "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound", "capacity": {"left-out": "1Gi"}},
        }))
        .expect("a claim");
        let mut kept = claim.clone();
        super::claim(&mut kept);
        assert_eq!(read_claim(&kept), read_claim(&claim));
        assert_eq!(
            (&kept.spec, &kept.metadata.labels),
            (&claim.spec, &claim.metadata.labels)
        );
        let annotations = kept.metadata.annotations.as_ref().expect("annotations");
        assert_eq!(annotations["etcd.database.coreos.com/applied"], "hash");
        let text = serde_json::to_string(&kept).expect("JSON");
        assert!(!text.contains("left-out"), "{text}");
    }
}
