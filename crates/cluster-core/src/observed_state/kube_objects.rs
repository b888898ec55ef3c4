//! From objects of Kubernetes to what counts of them for a plan.

use std::sync::Arc;

use etcd_operator_api::contract::{self, Arrival, JobOutcome, JobResult};
use etcd_operator_api::names::{ANNOTATION_PERMIT, ANNOTATION_PERMIT_LAID};
use etcd_operator_api::unscheduled::unscheduled;
use etcd_operator_etcd_types::id::{MemberId, RaftIndex};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Node, PersistentVolumeClaim};

use super::container_log::most_telling_line;
use super::{Claim, Container, End, Fetch, FetchFailure, Pod, StartDelay, Unschedulable, external_text};
use crate::build::{
    ANNOTATION_SPEC_HASH, FETCH, FETCH_CLAIM, INCARNATION, INSTALL, has_single_success_probe, snapshot_count,
};

/// The container that etcd runs in.
const ETCD: &str = "etcd";
/// Where the scheduler notes for which node a claim gets its volume.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What plans need of a pod; `None` if it has no container of etcd. The caller finds out since when its node is lost.
pub fn read_pod(pod: &core::Pod, node_lost_since: Option<Timestamp>) -> Option<Pod> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref()?;
    let status = pod.status.clone().unwrap_or_default();
    let deleting = meta.deletion_timestamp.as_ref().map(|time| time.0);
    let etcd = spec.containers.iter().find(|container| container.name == ETCD)?;
    let incarnation = etcd
        .command
        .iter()
        .flatten()
        .find_map(|word| word.strip_prefix(INCARNATION)?.parse().ok());
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key));
    let permit = annotation(ANNOTATION_PERMIT);
    let unscheduled = unscheduled(pod);
    Some(Pod {
        uid: meta.uid.clone()?,
        resource_version: meta.resource_version.clone()?,
        node: spec.node_name.clone(),
        ip: status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()),
        ready: is_ready(pod),
        ready_since: ready_condition(pod)
            .filter(|condition| condition.status == "True")
            .and_then(|condition| Some(condition.last_transition_time.as_ref()?.0)),
        unready_since: unready_since(pod),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        deleting,
        incarnation: incarnation.unwrap_or_default(),
        spec_hash: annotation(ANNOTATION_SPEC_HASH).cloned(),
        snapshot_count: snapshot_count(etcd),
        unschedulable: unscheduled
            .map(|unscheduled| Unschedulable::from_scheduler(unscheduled.message.unwrap_or_default())),
        unscheduled_since: unscheduled.and_then(|unscheduled| unscheduled.since),
        image: etcd.image.clone(),
        container: container(pod, &status),
        is_crash_looping: is_crash_looping(&status),
        end: end(&status),
        node_lost_since,
        permit: permit.and_then(|permit| contract::read(permit.as_bytes()).ok()),
        permit_delivery: annotation(ANNOTATION_PERMIT_LAID)
            .and_then(|permit_delivery| permit_delivery.parse().ok()),
        fetch: fetch(spec, &status),
        volume_position: volume_position(&status),
        has_single_success_probe: has_single_success_probe(spec),
    })
}

/// Whether a pod is ready, so that Services lead to it.
pub fn is_ready(pod: &core::Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

fn ready_condition(pod: &core::Pod) -> Option<&core::PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Ready")
}

/// The state of the container that fetches the backup of a restore; `None` if the pod has none.
fn fetch(spec: &core::PodSpec, status: &core::PodStatus) -> Option<Fetch> {
    let mut containers = spec.init_containers.iter().flatten();
    containers.find(|container| container.name == FETCH)?;
    let mut volumes = spec.volumes.iter().flatten();
    let claim = volumes
        .find(|volume| volume.name == FETCH_CLAIM)
        .and_then(|volume| volume.persistent_volume_claim.as_ref())
        .map(|source| source.claim_name.clone());
    let mut states = status.init_container_statuses.iter().flatten();
    let Some(status) = states.find(|status| status.name == FETCH) else {
        return Some(Fetch {
            claim,
            ..Fetch::default()
        });
    };
    let state = status.state.clone().unwrap_or_default();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let ended = state.terminated.as_ref();
    let is_done = ended.is_some_and(|ended| ended.exit_code == 0);
    let failed = ended.or(last).filter(|ended| ended.exit_code != 0);
    Some(Fetch {
        is_done,
        is_running: state.running.is_some(),
        progress: None,
        failure: failed.filter(|_| !is_done).map(failure),
        claim,
    })
}

/// The member and the log index that the install container reported from the volume. `None` if it found no log.
fn volume_position(status: &core::PodStatus) -> Option<(MemberId, RaftIndex)> {
    let mut states = status.init_container_statuses.iter().flatten();
    let ended = states
        .find(|status| status.name == INSTALL)?
        .state
        .as_ref()?
        .terminated
        .as_ref()?;
    let volume_position: Arrival = contract::read(ended.message.as_ref()?.as_bytes()).ok()?;
    Some((
        volume_position.member_id.parse().ok()?,
        RaftIndex(volume_position.index),
    ))
}

/// Why the fetch container failed, from its result; without one, from its exit code and its last lines. It is then
/// retried.
fn failure(ended: &core::ContainerStateTerminated) -> FetchFailure {
    let message = ended.message.as_deref().unwrap_or_default();
    match contract::read::<JobResult>(message.as_bytes()).map(|result| result.outcome) {
        Ok(JobOutcome::Failed {
            reason,
            message,
            retriable,
        }) => FetchFailure {
            words: format!("{reason}: {message}"),
            is_lasting: !retriable,
        },
        _ => FetchFailure {
            words: format!(
                "it ended with code {}: {}",
                ended.exit_code,
                most_telling_line(message)
            ),
            is_lasting: false,
        },
    }
}

/// The state of the etcd container. One that has ended and waits to be restarted counts as ended.
fn container(pod: &core::Pod, status: &core::PodStatus) -> Container {
    let is_etcd = |state: &&core::ContainerStatus| state.name == ETCD;
    let Some(etcd) = status.container_statuses.iter().flatten().find(is_etcd) else {
        return Container::Waiting(start_delay(pod, status));
    };
    let state = etcd.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Container::Running;
    }
    let last = etcd.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    if let Some(ended) = state.terminated.as_ref().or(last) {
        return external_text::ended_container(ended.exit_code, ended.message.as_deref().unwrap_or_default());
    }
    let waiting = state.waiting.unwrap_or_default();
    match (waiting.reason.as_deref(), waiting.message.as_deref()) {
        (None | Some("PodInitializing"), None) | (None, Some("PodInitializing")) => {
            Container::Waiting(start_delay(pod, status))
        }
        (reason, message) => Container::Waiting(StartDelay::from_kubelet(None, reason, message)),
    }
}

/// How many restarts without becoming ready are a crash loop, whether or not the kubelet waits right now.
const CRASH_LOOP_RESTARTS: i32 = 3;

/// Whether the etcd container ends again and again: the kubelet backs off, or it is not ready after three restarts.
fn is_crash_looping(status: &core::PodStatus) -> bool {
    let mut containers = status.container_statuses.iter().flatten();
    let Some(etcd) = containers.find(|container| container.name == ETCD) else {
        return false;
    };
    let waiting = etcd.state.as_ref().and_then(|state| state.waiting.as_ref());
    let is_backing_off = waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"));
    is_backing_off || (!etcd.ready && etcd.restart_count >= CRASH_LOOP_RESTARTS)
}

/// How the etcd container ended the last time; `None` if it never did.
fn end(status: &core::PodStatus) -> Option<End> {
    let mut containers = status.container_statuses.iter().flatten();
    let etcd = containers.find(|container| container.name == ETCD)?;
    let ended = |state: &Option<core::ContainerState>| state.as_ref()?.terminated.clone();
    let ended = ended(&etcd.state).or_else(|| ended(&etcd.last_state))?;
    Some(external_text::container_end(
        ended.exit_code,
        ended.reason.as_deref().unwrap_or_default(),
        ended.message.as_deref().unwrap_or_default(),
    ))
}

/// Why the container has not been started, from the init containers and the node.
fn start_delay(pod: &core::Pod, status: &core::PodStatus) -> StartDelay {
    let init = status.init_container_statuses.iter().flatten().find_map(|init| {
        let waiting = init.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting
            .reason
            .as_deref()
            .filter(|reason| *reason != "PodInitializing")?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(StartDelay::from_kubelet(
            Some(&init.name),
            Some(reason),
            Some(message),
        ))
    });
    init.unwrap_or_else(|| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.map_or(StartDelay::NotScheduled, |node| StartDelay::NodePreparing {
            node,
        })
    })
}

/// What plans need of a claim. `None` without a UID.
pub fn read_claim(claim: &PersistentVolumeClaim) -> Option<Claim> {
    let meta = &claim.metadata;
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    Some(Claim {
        uid: meta.uid.clone()?,
        volume: volume.filter(|name| !name.is_empty()),
        deleting: meta
            .deletion_timestamp
            .as_ref()
            .map(|_| meta.finalizers.clone().unwrap_or_default()),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        node: meta
            .annotations
            .as_ref()
            .and_then(|all| all.get(SELECTED_NODE).cloned()),
        class: claim
            .spec
            .as_ref()
            .and_then(|spec| spec.storage_class_name.clone()),
    })
}

/// Since when the node of a pod is lost, or the only one that reaches its volume. `None` while the node answers.
/// `node_now` finds a node by its name.
pub fn node_lost_since(
    pod: &core::Pod,
    claim: Option<&super::Claim>,
    node_now: impl Fn(&str) -> Option<Arc<Node>>,
) -> Option<Timestamp> {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
        // Nothing but the node that is gone could ever take a pod whose volume is there.
        return stranded_since(pod, claim?, |name| node_now(name).is_none());
    };
    if let Some(node) = node_now(node) {
        return lost_since(&node);
    }
    // Usually Kubernetes deletes the pods of a node that is gone. Where it does not, such as under a finalizer, the pod has
    // been unready since the node was last heard of.
    let deleting = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    deleting.or_else(|| unready_since(pod))
}

/// Since when a pod is not ready; none while it is.
fn unready_since(pod: &core::Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let since = ready.last_transition_time.as_ref()?;
    (ready.status != "True").then_some(since.0)
}

/// Since when no node takes a pod, because the node for which its volume was made is gone and no other one reaches the
/// volume; else `None`. `is_gone` takes the name of a node.
fn stranded_since(
    pod: &core::Pod,
    claim: &super::Claim,
    is_gone: impl Fn(&str) -> bool,
) -> Option<Timestamp> {
    claim.node.as_deref().filter(|node| is_gone(node))?;
    let unscheduled = unscheduled(pod)?;
    let is_stranded = external_text::is_volume_unreachable(unscheduled.message?);
    unscheduled.since.filter(|_| is_stranded)
}

/// Since when a node does not answer; none while it does.
fn lost_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    if ready.status == "True" {
        return None;
    }
    ready.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::trim;

    fn waiting(message: &str) -> core::Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "c-1", "uid": "u"},
            "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .expect("a pod")
    }

    fn made_for(node: Option<&str>) -> super::super::Claim {
        let annotations = node.map_or_else(|| json!({}), |node| json!({SELECTED_NODE: node}));
        let object = json!({"metadata": {"name": "data-c-1", "uid": "u", "annotations": annotations}});
        read_claim(&serde_json::from_value(object).expect("a claim")).expect("a claim")
    }

    const STRANDED: &str = "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) had volume node affinity conflict. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";

    #[test]
    fn a_pod_is_stranded_where_only_a_node_that_is_gone_reaches_its_volume() {
        let since = |message: &str, node, is_gone| {
            stranded_since(&waiting(message), &made_for(node), |name| name == "n1" && is_gone)
        };
        let expected = "2026-01-01T00:00:00Z".parse().ok();
        assert_eq!(since(STRANDED, Some("n1"), true), expected);
        let newer = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.";
        assert_eq!(since(newer, Some("n1"), true), expected);
        // The node is there, the volume was made for none, or for another one.
        assert_eq!(since(STRANDED, Some("n1"), false), None);
        assert_eq!(since(STRANDED, None, true), None);
        assert_eq!(since(STRANDED, Some("n2"), true), None);
        // A node that reaches the volume may take it later.
        for other in ["1 Insufficient cpu", "1 node(s) were unschedulable"] {
            let message =
                format!("0/2 nodes are available: {other}, 1 node(s) had volume node affinity conflict.");
            assert_eq!(since(&message, Some("n1"), true), None, "{other}");
        }
        assert_eq!(
            since("0/2 nodes are available: 2 Insufficient cpu.", Some("n1"), true),
            None
        );
        assert_eq!(since("", Some("n1"), true), None);
    }

    #[test]
    fn a_node_is_lost_since_it_was_last_heard_of() {
        let node = |status: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n1"},
                "status": {"conditions": [
                    {"type": "MemoryPressure", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
                    {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]},
            }))
            .expect("a node")
        };
        assert_eq!(lost_since(&node("True")), None);
        for status in ["Unknown", "False"] {
            assert_eq!(lost_since(&node(status)), "2026-01-01T00:00:00Z".parse().ok());
            let mut trimmed = node(status);
            trim::node(&mut trimmed);
            assert_eq!(lost_since(&trimmed), lost_since(&node(status)));
        }
    }

    #[test]
    fn the_node_of_a_pod_is_lost_also_when_its_object_is_gone_and_the_pod_stays() {
        let pod = |ready: &str, deleted: Option<&str>| -> core::Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "c-1", "uid": "u", "deletionTimestamp": deleted},
                "spec": {"nodeName": "n1", "containers": [{"name": "etcd"}]},
                "status": {"conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]},
            }))
            .expect("a pod")
        };
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "status": {"conditions": [
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T00:00:00Z"},
            ]},
        }))
        .expect("a node");
        let node = Arc::new(node);
        let is_there = |_: &str| Some(Arc::clone(&node));
        let is_gone = |_: &str| None;
        let time = |text: &str| text.parse::<Timestamp>().ok();
        // A pod that tolerates every taint stays where its node does not answer.
        assert_eq!(
            node_lost_since(&pod("False", None), None, is_there),
            time("2026-01-02T00:00:00Z")
        );
        assert_eq!(
            node_lost_since(&pod("False", None), None, is_gone),
            time("2026-01-01T00:00:00Z")
        );
        assert_eq!(
            node_lost_since(&pod("False", Some("2026-01-03T00:00:00Z")), None, is_gone),
            time("2026-01-03T00:00:00Z")
        );
        // It serves: somebody deleted the object of a node that runs.
        assert_eq!(node_lost_since(&pod("True", None), None, is_gone), None);
    }

    /// What is read of the container that brings the object of a restore, as copies keep its pod.
    fn fetched(state: &Value, last: &Value) -> Option<Fetch> {
        let mut pod: core::Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": "1"},
            "spec": {
                "initContainers": [{"name": "install"}, {"name": "fetch", "env": [{"name": "A"}]}],
                "containers": [{"name": "etcd", "command": ["member", "--incarnation=2"]}],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-c-0"}},
                    {"name": "restore-backups", "persistentVolumeClaim": {"claimName": "backups"}},
                ],
            },
            "status": {"initContainerStatuses": [{
                "name": "fetch", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                "state": state, "lastState": last,
            }]},
        }))
        .expect("a pod");
        trim::pod(&mut pod);
        super::read_pod(&pod, None).expect("what counts of it").fetch
    }

    fn ended(code: i32, message: &str) -> Value {
        json!({"terminated": {"exitCode": code, "message": message}})
    }

    #[test]
    fn what_brings_the_object_of_a_restore_is_seen_to_work_to_fail_and_to_be_done() {
        let running = fetched(&json!({"running": {}}), &json!({})).expect("there");
        assert_eq!(
            (running.is_running, running.is_done, running.failure),
            (true, false, None)
        );
        let said = r#"{"version":1,"run":"r","outcome":{"kind":"failed","reason":"NotFound","message":"no object","retriable":false}}"#;
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let failed = fetched(&waiting, &ended(3, said)).expect("there");
        let failure = failed.failure.expect("a failure");
        assert_eq!(
            (failure.words.as_str(), failure.is_lasting),
            ("NotFound: no object", true)
        );
        let killed = fetched(&waiting, &ended(137, "")).expect("there");
        let failure = killed.failure.expect("a failure");
        assert!(
            !failure.is_lasting && failure.words.contains("137"),
            "{failure:?}"
        );
        let done = fetched(&ended(0, ""), &ended(3, said)).expect("there");
        assert_eq!((done.is_done, done.failure), (true, None));
        assert_eq!(done.claim.as_deref(), Some("backups"));
    }

    #[test]
    fn a_pod_without_it_fetches_nothing() {
        let pod: core::Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": "1"},
            "spec": {"initContainers": [{"name": "install"}], "containers": [{"name": "etcd"}]},
        }))
        .expect("a pod");
        assert_eq!(
            super::read_pod(&pod, None).expect("what counts of it").fetch,
            None
        );
    }
}
