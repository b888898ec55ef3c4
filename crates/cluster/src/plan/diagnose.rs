//! Why a member does not say what is on its disk, in words that name the field of the spec that helps.
//!
//! Kubernetes tells what it lacks and not who asked for it. Nothing is decided by these words.

use std::fmt::Write as _;

use etcd_operator_api::contract::Verdict;
use etcd_operator_api::names::ANNOTATION_DISCARD;
use etcd_operator_api::refusal::bounded;

use super::ClusterView;
use super::bootstrap::describe_verdict;
use crate::build::{FETCH, INSTALL};
use crate::desired::{Desired, Image, Storage};
use crate::observed_state::{
    Container, End, INIT_CONTAINER_PREFIX, NODE_PREPARES, NOT_SCHEDULED, Ordinal, Pod, QueryResult,
    most_telling_line,
};

/// What kubelet says of an image that it does not get.
const IMAGE_PULL_REASONS: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
];
/// No more than this of what Kubernetes says is shown: in a status the field that helps must have room after it.
const MAX_CHARS: usize = 300;

/// What is said of a pod that no node takes.
const UNSCHEDULABLE: &str = "finds no node: ";
/// What is said of a container that is not started.
const NOT_STARTED: &str = "is not started yet: ";
/// What is said of a container that has ended.
const ENDED: &str = "has ended with code ";
/// How that ends for one that is about to be started, as every one is for a moment.
const TRANSIENT: [&str; 3] = [NODE_PREPARES, NOT_SCHEDULED, "ContainerCreating"];
/// What is said of members that will not come by themselves.
const ROOT_CAUSES: [&str; 7] = [
    UNSCHEDULABLE,
    ENDED,
    "found a disk that is not empty: ",
    "has a volume that is older than this EtcdCluster",
    "found data of somebody else on its volume",
    "holds data of incarnation ",
    "cannot read its volume: ",
];

/// The first of what stands in the way that is a cause by itself, and not only somebody who has not come yet.
pub fn root_cause(blocked_by: &[String]) -> Option<&str> {
    let is_stuck = |why: &str| {
        let is_transient = TRANSIENT.iter().any(|words| why.ends_with(words));
        why.contains(NOT_STARTED) && !is_transient
    };
    let mut all = blocked_by.iter().map(String::as_str);
    all.find(|why| is_stuck(why) || ROOT_CAUSES.iter().any(|words| why.contains(words)))
}

/// Why there is no report, in words.
pub fn explain(view: &ClusterView<'_>, ordinal: Ordinal) -> String {
    let observed_member = view.observed.member(ordinal);
    let desired = &view.observed.desired;
    let Some(pod) = &observed_member.pod else {
        let name = &desired.name;
        return format!("has no pod yet; if none comes, `kubectl describe statefulset {name}` says why");
    };
    if let Some(why) = &pod.unschedulable {
        let volume = unbound_claim_hint(view, ordinal).filter(|_| why.to_lowercase().contains("volume"));
        return format!(
            "{UNSCHEDULABLE}{}{}{}",
            bounded(why, MAX_CHARS),
            volume.unwrap_or_default(),
            scheduling_hint(desired, why)
        );
    }
    if pod.deleting.is_some() {
        return "is being deleted".to_owned();
    }
    if let Some((_, report)) = view.report(ordinal, view.observed.persisted.incarnation)
        && report.verdict != Verdict::Empty
    {
        return format!(
            "found a disk that is not empty: {}{}",
            describe_verdict(&report.detail, &report.verdict),
            discard_hint(view, ordinal, &report.verdict)
        );
    }
    match (&pod.container, &observed_member.report) {
        (Container::Waiting(why), _) => {
            let said = bounded(why, MAX_CHARS);
            format!("{NOT_STARTED}{said}{}", start_hint(desired, why))
        }
        (Container::Ended { code, words }, _) => {
            let of = pod.end.as_ref().map(|end| end_hint(desired, end));
            format!(
                "{ENDED}{code}: {}{}",
                most_telling_line(words),
                of.unwrap_or_default()
            )
        }
        (Container::Running, QueryResult::NoAnswer(why)) => {
            format!("does not answer: {why}{}", describe_previous_end(desired, pod))
        }
        (Container::Running, QueryResult::Answer(_)) => {
            "reports for another pod or another life of the data".to_owned()
        }
        (Container::Running, _) => "has not reported yet".to_owned(),
    }
}

/// How a container ended before it was started again, where that is all there is to tell.
fn describe_previous_end(desired: &Desired, pod: &Pod) -> String {
    let end = pod.end.as_ref().filter(|end| end.code != 0);
    let hint = end.map(|end| format!("; before that its container {}", describe_end(desired, end)));
    hint.unwrap_or_default()
}

/// How a container ended, in words.
pub fn describe_end(desired: &Desired, end: &End) -> String {
    format!(
        "ended with code {}: {}{}",
        end.code,
        end.words,
        end_hint(desired, end)
    )
}

/// Which field the end of a container hangs on.
fn end_hint(desired: &Desired, end: &End) -> String {
    if end.reason == "OOMKilled" {
        let limits = desired
            .pod
            .resources
            .as_ref()
            .and_then(|requested| requested.limits.as_ref());
        let limit = limits.and_then(|limits| limits.get("memory"));
        return match limit {
            Some(limit) => format!(
                "it was killed for lack of memory (OOMKilled): spec.pod.resources.limits.memory is {}",
                limit.0
            ),
            None => "it was killed for lack of memory (OOMKilled): its node has too little, or a LimitRange gives its container too low a limit; set spec.pod.resources.limits.memory".to_owned(),
        };
    }
    if is_flag_error(end) {
        return "; correct spec.etcd.extraArgs".to_owned();
    }
    String::new()
}

/// What etcd says of flags that it does not know or cannot read.
const FLAG_ERRORS: [&str; 4] = [
    "flag provided but not defined",
    "for flag -",
    "failed to verify flags",
    "error verifying flags",
];

/// Whether etcd ended because of how it was called: it does so each time.
pub fn is_flag_error(end: &End) -> bool {
    end.code != 0 && FLAG_ERRORS.iter().any(|words| end.words.contains(words))
}

/// What to do about a disk with data of somebody else, which go with the consent of a person alone.
fn discard_hint(view: &ClusterView<'_>, ordinal: Ordinal, verdict: &Verdict) -> String {
    let claim = view.observed.member(ordinal).claim.as_ref();
    let Some(claim) = claim.filter(|_| *verdict == Verdict::Foreign) else {
        return String::new();
    };
    format!(
        ". To delete what is on it, annotate this EtcdCluster with {ANNOTATION_DISCARD} and the UID {}",
        claim.uid
    )
}

/// What the spec has to do with a claim that no volume was found for; the scheduler does not say.
fn unbound_claim_hint(view: &ClusterView<'_>, ordinal: Ordinal) -> Option<String> {
    let Storage::Persistent { claim: wanted, .. } = &view.observed.desired.storage else {
        return None;
    };
    let claim = view.observed.member(ordinal).claim.as_ref()?;
    if claim.volume.is_some() {
        return None;
    }
    let wanted = wanted.storage_class_name.as_ref();
    if let (Some(wanted), Some(class)) = (wanted, claim.class.as_ref())
        && wanted != class
    {
        let name = ordinal.claim(&view.observed.desired.name);
        return Some(format!(
            "; its PersistentVolumeClaim is of before and not bound: it asks for the StorageClass {class}, and spec.storage.storageClassName is {wanted}. It holds nothing: kubectl delete pvc {name}"
        ));
    }
    let mut hint = match wanted {
        Some(class) => format!(
            "; its PersistentVolumeClaim is not bound: spec.storage.storageClassName is {class}, and `kubectl get storageclass` shows which there are"
        ),
        None => "; its PersistentVolumeClaim is not bound: spec.storage.storageClassName is not set, and perhaps no StorageClass is the default one".to_owned(),
    };
    if !view.observed.persisted.has_formed() {
        hint.push_str(". To take another one, delete this EtcdCluster and its PersistentVolumeClaims, and create it anew");
    }
    Some(hint)
}

/// Which fields keep a pod off nodes, of those that are set and that the scheduler counts nodes against.
fn scheduling_hint(desired: &Desired, why: &str) -> String {
    let pod = &desired.pod;
    let mut hint = String::new();
    if let Some(requested) = describe_requests(desired).filter(|_| why.contains("Insufficient ")) {
        let _ = write!(
            hint,
            "; spec.pod.resources asks for {requested}: ask for less, or add a node with as much to spare"
        );
    }
    if why.contains("didn't match Pod's node affinity/selector") {
        if !pod.node_selector.is_empty() {
            hint.push_str("; spec.pod.nodeSelector says which labels a node must have");
        }
        if pod.affinity.is_some() {
            hint.push_str("; spec.pod.affinity says which nodes it takes");
        }
    }
    if pod.one_per_node && why.contains("anti-affinity") {
        hint.push_str("; spec.pod.antiAffinity wants a node for each member: add nodes, or set it to false");
    }
    if pod.spread.is_some() && why.contains("topology spread constraints") {
        hint.push_str("; spec.pod.topologySpreadConstraints says how far members are apart");
    }
    if hint.is_empty() && why.contains("untolerated taint") {
        hint.push_str("; spec.pod.tolerations says which taints it bears");
    }
    hint
}

/// What each pod asks a node for.
fn describe_requests(desired: &Desired) -> Option<String> {
    let resources = desired.pod.resources.as_ref()?;
    // Kubernetes takes a limit for a request where there is none.
    let mut requested = resources.limits.clone().unwrap_or_default();
    requested.extend(resources.requests.clone().unwrap_or_default());
    let requested: Vec<String> = requested
        .iter()
        .map(|(what, much)| format!("{what} {}", much.0))
        .collect();
    (!requested.is_empty()).then(|| requested.join(", "))
}

/// Which fields a container that is not started hangs on.
fn start_hint(desired: &Desired, why: &str) -> String {
    if IMAGE_PULL_REASONS.iter().any(|reason| why.contains(reason)) {
        let is_of = |name: &str| why.starts_with(&format!("{INIT_CONTAINER_PREFIX}{name} "));
        if is_of(INSTALL) || is_of(FETCH) {
            return "; that image is the operator's own: nodes must be able to pull it, and spec.imagePullSecrets names what its registry asks for".to_owned();
        }
        if why.starts_with(INIT_CONTAINER_PREFIX) {
            return "; spec.pod.patch adds it".to_owned();
        }
        let field = match &desired.image {
            Image::Whole { .. } => "spec.image",
            Image::Tagged { .. } => "spec.repository and spec.version",
        };
        return format!("; correct {field}, or name in spec.imagePullSecrets what the registry asks for");
    }
    let is_named = ["secret \"", "configmap \"", "couldn't find key"]
        .iter()
        .any(|what| why.contains(what));
    if why.starts_with("CreateContainerConfigError") && is_named && !desired.pod.env.is_empty() {
        return "; spec.pod.etcdEnv names it".to_owned();
    }
    // Kubelet waits for what a pod mounts without saying so in its status.
    if !why.ends_with(NODE_PREPARES) {
        return String::new();
    }
    let tls = &desired.tls;
    let server = tls.client.as_ref().map(|client| &client.server);
    let mounted: Vec<&str> = tls.peer.iter().chain(server).map(String::as_str).collect();
    if mounted.is_empty() {
        return String::new();
    }
    format!(
        "; it mounts the Secrets of spec.TLS.static.member, and each must exist: {}",
        mounted.join(", ")
    )
}
