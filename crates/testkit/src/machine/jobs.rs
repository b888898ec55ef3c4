//! Jobs that try an image: their controller, and what a kubelet makes of their pods. Only what the operator's Jobs ask for is modelled:
//! one pod at a time, whose container is started until it succeeds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::contract::{self, RefusedImage};
use etcd_operator_etcd::version::{Minor, Version};
use etcd_operator_member::image::{Fault, job_result};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Machine;
use super::api::{Kind, Objects, Write, is_ending, name, namespace, text, uid};
use super::member::{MISSING_REPOSITORY, version_in};
use super::state::State;
use crate::fake::Stored;

/// How long a container takes: the image is pulled, and etcd tells its version.
const TRYING: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// What is known of Jobs that try images.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// When what belongs to a Job happens, by the UID of the Job or pod.
    pub(crate) tried: BTreeMap<String, Instant>,
    /// How many pods a Job has had, by its UID.
    pub(crate) pods: BTreeMap<String, u32>,
    /// The registry has got what it lacked.
    pub(crate) has_missing_images: bool,
    /// A quota refuses the pods of Jobs.
    pub(crate) refuses_pods: bool,
}

/// What the controller of Jobs and kubelets write about them, and when to look again.
pub(crate) fn step(
    machine: &Machine,
    objects: &Objects,
    state: &mut State,
    due: &mut Vec<Instant>,
) -> Vec<Write> {
    let jobs = objects.jobs.iter().filter(|job| !is_ending(job));
    jobs.filter_map(|job| one(machine, job, objects, state, due))
        .collect()
}

/// Whether a pod is one of a Job.
pub(crate) fn is_of_job(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["kind"] == "Job")
}

fn one(
    machine: &Machine,
    job: &Arc<Stored>,
    objects: &Objects,
    state: &mut State,
    due: &mut Vec<Instant>,
) -> Option<Write> {
    let is_finished = job["status"]["conditions"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if is_finished {
        let ttl = job["spec"]["ttlSecondsAfterFinished"].as_u64()?;
        let goes_at = at(state, uid(job), Duration::from_secs(ttl));
        return is_due(goes_at, due).then(|| Write::Delete {
            kind: Kind::Job,
            namespace: namespace(job).to_owned(),
            name: name(job).to_owned(),
            uid: uid(job).to_owned(),
            is_at_once: false,
        });
    }
    let is_live = |pod: &&Arc<Stored>| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let is_own = owners.into_iter().flatten().any(|owner| owner["uid"] == uid(job));
        is_own && !is_ending(pod) && text(pod, "/status/phase") != "Failed"
    };
    let pod = objects.pods.iter().find(is_live);
    let lasts = Duration::from_secs(job["spec"]["activeDeadlineSeconds"].as_u64()?);
    let deadline = at(state, &format!("deadline of {}", uid(job)), lasts);
    if is_due(deadline, due) {
        return Some(match pod {
            Some(pod) => Write::Delete {
                kind: Kind::Pod,
                namespace: namespace(pod).to_owned(),
                name: name(pod).to_owned(),
                uid: uid(pod).to_owned(),
                is_at_once: false,
            },
            None => ends(machine, job, "Failed"),
        });
    }
    let Some(pod) = pod else {
        let had = state.jobs.pods.get(uid(job)).copied().unwrap_or_default();
        if job["status"]["failed"].as_u64().unwrap_or_default() != u64::from(had) {
            return Some(patch_status(job, &json!({"failed": had})));
        }
        if state.jobs.refuses_pods {
            return None;
        }
        state.jobs.pods.insert(uid(job).to_owned(), had + 1);
        return Some(Write::Create {
            kind: Kind::Pod,
            object: pod_of(job, state),
        });
    };
    match text(pod, "/status/phase") {
        "Succeeded" => Some(ends(machine, job, "Complete")),
        _ => run(pod, state, due),
    }
}

/// When something is to happen that takes so long from now on, or what was said before.
fn at(state: &mut State, what: &str, after: Duration) -> Instant {
    *state
        .jobs
        .tried
        .entry(what.to_owned())
        .or_insert_with(|| Instant::now() + after)
}

fn is_due(at: Instant, due: &mut Vec<Instant>) -> bool {
    let is_due = Instant::now() >= at;
    if !is_due {
        due.push(at);
    }
    is_due
}

fn ends(machine: &Machine, job: &Value, condition: &str) -> Write {
    let now = machine.stamp(Instant::now());
    let condition =
        json!({"type": condition, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
    patch_status(job, &json!({"conditions": [condition]}))
}

fn patch_status(job: &Value, status: &Value) -> Write {
    Write::Patch {
        kind: Kind::Job,
        namespace: namespace(job).to_owned(),
        name: name(job).to_owned(),
        is_status: true,
        patch: json!({"metadata": {"uid": uid(job)}, "status": status}),
    }
}

fn pod_of(job: &Value, state: &mut State) -> Value {
    let template = &job["spec"]["template"];
    let mut object = json!({"metadata": template["metadata"], "spec": template["spec"]});
    let suffix = state.chance.below(0xf_ffff);
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(format!("{}-{suffix:05x}", name(job)));
    metadata["namespace"] = json!(namespace(job));
    metadata["labels"]["job-name"] = json!(name(job));
    metadata["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": name(job), "uid": uid(job),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

/// What the kubelet of its node tells of a pod.
fn run(pod: &Arc<Stored>, state: &mut State, due: &mut Vec<Instant>) -> Option<Write> {
    let node = state.nodes.get(text(pod, "/spec/nodeName"))?;
    if !node.is_up || !node.is_connected {
        return None;
    }
    let (least, most) = TRYING;
    let takes = state.chance.between(least, most);
    let ends_at = at(state, uid(pod), takes);
    if !is_due(ends_at, due) {
        return None;
    }
    let container = &pod["spec"]["containers"][0];
    let image = text(container, "/image");
    let is_missing = image.starts_with(MISSING_REPOSITORY) && !state.jobs.has_missing_images;
    let (phase, container_state, last_state) = if is_missing {
        let waits = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
        ("Pending", waits, json!({}))
    } else {
        match fault(container) {
            None => ("Succeeded", json!({"terminated": {"exitCode": 0}}), json!({})),
            Some(fault) => {
                let message = String::from_utf8(contract::write(&job_result(&fault))).unwrap_or_default();
                let waits = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
                let ended = json!({"terminated": {"exitCode": 1, "message": message}});
                ("Running", waits, ended)
            }
        }
    };
    let told = &pod["status"]["containerStatuses"][0]["state"];
    if *told == container_state {
        return None;
    }
    let status = json!({
        "name": container["name"], "image": image, "imageID": image, "ready": false, "restartCount": 0,
        "state": container_state, "lastState": last_state,
    });
    Some(Write::Patch {
        kind: Kind::Pod,
        namespace: namespace(pod).to_owned(),
        name: name(pod).to_owned(),
        is_status: true,
        patch: json!({
            "metadata": {"uid": uid(pod)},
            "status": {"phase": phase, "containerStatuses": [status]},
        }),
    })
}

/// What the real check finds in such an image.
fn fault(container: &Value) -> Option<Fault> {
    let words = container["command"].as_array().into_iter().flatten();
    let mut words = words.filter_map(Value::as_str);
    let expected: Minor = words
        .find_map(|word| word.strip_prefix("--etcd-minor="))?
        .parse()
        .ok()?;
    let found: Version = match version_in(text(container, "/image"), false) {
        Ok(found) => found,
        Err(why) => return Some(Fault::NotTold(why)),
    };
    (Minor::of(&found) != Some(expected)).then(|| {
        Fault::Version(RefusedImage {
            found: found.to_string(),
            expected: expected.to_string(),
        })
    })
}
