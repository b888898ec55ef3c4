//! What the Job says that starts the etcd image of a changed template with `etcd --version`, before any member gets the template.

use std::fmt;

use etcd_operator_api::contract::{self, IMAGE_VERSION_DIFFERS, JobOutcome, JobResult};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::unscheduled::unscheduled;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

use super::container_log::most_telling_line;
use super::start_delay::StartDelay;
use crate::build::{ETCD, INSTALL};

/// After what time a Job whose pod has not ended is told to wait.
const USUALLY_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// At most this much of the words of others is shown.
const MAX_CHARS: usize = 400;

/// Whether the etcd image of a changed template can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageCheck {
    /// It was not asked.
    #[default]
    NotAsked,
    /// The Job has not told it yet.
    Running {
        /// What the Job or its pod waits for, or why there is no Job.
        waits: Option<String>,
    },
    /// etcd of the image runs, and is of the minor version that the template names.
    Passed,
    /// It cannot be found out: no Job can be created, it gets no pod, or its pod no node.
    Skipped {
        /// Why.
        why: String,
    },
    /// It was found bad before, and whether it still is cannot be found out now.
    NotTried {
        /// Why.
        why: String,
    },
    /// It cannot be used.
    Failed(ImageProblem),
}

/// Why an etcd image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageProblem {
    /// The kubelet does not start a container of it, for example because it cannot pull the image.
    NotStarted {
        /// Its words.
        text: String,
    },
    /// It holds another minor version than the template names.
    VersionDiffers {
        /// What it holds, and what is expected.
        text: String,
    },
    /// etcd does not run, or does not tell its version.
    NotRunning {
        /// Its last words.
        text: String,
    },
}

impl ImageProblem {
    /// One word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotStarted { .. } => "NotStarted",
            Self::VersionDiffers { .. } => "VersionDiffers",
            Self::NotRunning { .. } => "NotRunning",
        }
    }

    /// The words of the kubelet or of etcd.
    pub fn text(&self) -> &str {
        match self {
            Self::NotStarted { text } | Self::VersionDiffers { text } | Self::NotRunning { text } => text,
        }
    }

    /// The reverse of `reason` and `text`.
    pub fn read(reason: &str, text: &str) -> Option<Self> {
        let text = text.to_owned();
        let all = [
            Self::NotStarted { text: text.clone() },
            Self::VersionDiffers { text: text.clone() },
            Self::NotRunning { text },
        ];
        all.into_iter().find(|problem| problem.reason() == reason)
    }
}

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { text } => write!(f, "the kubelet does not start it: {text}"),
            Self::VersionDiffers { text } => f.write_str(text),
            Self::NotRunning { text } => write!(f, "etcd does not run in it: {text}"),
        }
    }
}

/// What the Job of an image says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageJob {
    /// etcd of the image runs, and is of the minor version that the template names.
    Passed,
    /// The image cannot be used.
    Failed(ImageProblem),
    /// No node runs its pod: a quota or the scheduler holds it up, or the pod was stopped.
    HeldUp {
        /// In what way.
        why: String,
    },
    /// It has not told anything yet.
    Running {
        /// What its pod waits for, if that takes long.
        waits: Option<String>,
    },
    /// It could not be read: a call failed, it is being deleted, or the Job of its name has another owner.
    Unknown {
        /// Why not.
        why: String,
    },
    /// It was created a moment ago, or another one takes its place: it was stopped before it told anything, or tries another image.
    Begins,
}

/// Reads from the Job and its pods what they say of the image.
pub fn read_image_job(job: &Job, pods: &[Pod], now: Timestamp) -> ImageJob {
    if has_condition(job, "Complete") {
        return ImageJob::Passed;
    }
    let pod = newest_pod(job, pods);
    // Containers that a webhook has injected may keep the Job from completing.
    if pod.is_some_and(has_passed) {
        return ImageJob::Passed;
    }
    // From Kubernetes 1.31 on, `Failed` comes only when the last pod is gone, which an unreachable node delays.
    if has_condition(job, "Failed") || has_condition(job, "FailureTarget") {
        return ImageJob::Begins;
    }
    let Some(pod) = pod else {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let why = format!("Job {name} has no pod, see kubectl events --for job/{name}");
        return ImageJob::HeldUp { why };
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if let Some(reason) = stopped(pod) {
        let why = format!("its pod {name} was stopped ({reason})");
        return ImageJob::HeldUp { why };
    }
    if let Some(problem) = problem(pod) {
        return ImageJob::Failed(problem);
    }
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
        let words = unscheduled(pod).and_then(|unscheduled| unscheduled.message);
        let why = match words {
            Some(words) => shorten(&format!("no node takes its pod: {words}")),
            None => format!("its pod {name} has no node"),
        };
        return ImageJob::HeldUp { why };
    };
    let created = job.metadata.creation_timestamp.as_ref();
    let age = created.map_or(SignedDuration::ZERO, |created| now.duration_since(created.0));
    let is_late = age >= USUALLY_WITHIN;
    let waits = is_late
        .then(|| format!("its pod {name} on node {node} has not ended, see kubectl describe pod {name}"));
    ImageJob::Running { waits }
}

/// Whether a condition of the Job is true.
fn has_condition(job: &Job, type_: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// The pod of this Job, and not of an earlier one of its name.
fn newest_pod<'a>(job: &Job, pods: &'a [Pod]) -> Option<&'a Pod> {
    let uid = job.metadata.uid.as_deref()?;
    let is_own = |pod: &&Pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.uid == uid)
    };
    let created = |pod: &&Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pods.iter().filter(is_own).max_by_key(created)
}

/// Whether the container that runs `etcd --version` has ended well.
fn has_passed(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| &status.container_statuses);
    let mut ended = containers
        .flatten()
        .filter(|container| container.name == ETCD)
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    ended.any(|ended| ended.exit_code == 0)
}

/// Why a pod was stopped from outside, or never accepted by the kubelet. Its containers say nothing about the image then.
fn stopped(pod: &Pod) -> Option<&str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("deleted");
    }
    let status = pod.status.as_ref()?;
    if let Some(reason) = status.reason.as_deref() {
        return Some(reason);
    }
    let mut conditions = status.conditions.iter().flatten();
    let disrupted =
        conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")?;
    Some(disrupted.reason.as_deref().unwrap_or("disrupted"))
}

/// What the pod says against the image. Containers that others have added say nothing about it.
fn problem(pod: &Pod) -> Option<ImageProblem> {
    let status = pod.status.as_ref()?;
    let mut install = status.init_container_statuses.iter().flatten();
    let install = install.find(|container| container.name == INSTALL);
    let mut check = status.container_statuses.iter().flatten();
    let check = check.find(|container| container.name == ETCD);
    install
        .and_then(|install| not_installed(install).or_else(|| not_started(install, Some(INSTALL))))
        .or_else(|| check.and_then(|check| not_running(check).or_else(|| not_started(check, None))))
}

/// How a container ended that failed, the last time if it is started again.
fn failure(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let states = [&container.state, &container.last_state];
    let mut ends = states
        .into_iter()
        .flatten()
        .filter_map(|state| state.terminated.as_ref());
    ends.next().filter(|ended| ended.exit_code != 0)
}

/// Why the operator's program, which runs the check, could not be brought into the pod.
fn not_installed(install: &ContainerStatus) -> Option<ImageProblem> {
    let text = format!("its init container {INSTALL} {}", end(failure(install)?));
    Some(ImageProblem::NotStarted { text })
}

/// A container that the kubelet does not start.
fn not_started(container: &ContainerStatus, init: Option<&str>) -> Option<ImageProblem> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| *reason != "PodInitializing")?;
    let delay = StartDelay::from_kubelet(init, Some(reason), waiting.message.as_deref());
    (!delay.is_transient()).then(|| ImageProblem::NotStarted {
        text: shorten(&delay.to_string()),
    })
}

/// How the check ended, if it failed.
fn not_running(check: &ContainerStatus) -> Option<ImageProblem> {
    let ended = failure(check)?;
    let message = ended.message.as_deref().unwrap_or_default();
    let result = contract::read::<JobResult>(message.as_bytes()).map(|result| result.outcome);
    Some(match result {
        Ok(JobOutcome::Failed { reason, message, .. }) if reason == IMAGE_VERSION_DIFFERS => {
            ImageProblem::VersionDiffers {
                text: shorten(&message),
            }
        }
        Ok(JobOutcome::Failed { message, .. }) => ImageProblem::NotRunning {
            text: shorten(&message),
        },
        _ => ImageProblem::NotRunning { text: end(ended) },
    })
}

fn end(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().unwrap_or_default();
    let line = most_telling_line(message);
    let reason = ended.reason.as_deref().filter(|reason| *reason != "Error");
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    shorten(&format!("ended with code {}{reason}: {line}", ended.exit_code))
}

fn shorten(text: &str) -> String {
    bounded(text.trim_end_matches(['.', ' ', ':']), MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().expect("a time")
    }

    fn job(seconds: i64, conditions: &Value) -> Job {
        let created = now() - SignedDuration::from_secs(seconds);
        serde_json::from_value(json!({
            "metadata": {"name": "c-image-1", "uid": "job", "creationTimestamp": created.to_string()},
            "status": {"conditions": conditions},
        }))
        .expect("a Job")
    }

    fn pod(owner: &str, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "c-image-1-x", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "c-image-1", "uid": owner}
            ]},
            "spec": {"nodeName": "n1", "containers": []},
            "status": status,
        }))
        .expect("a pod")
    }

    fn container(name: &str, state: &Value) -> Value {
        json!([{"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    }

    fn checking(state: &Value) -> Value {
        json!({"containerStatuses": container(ETCD, state)})
    }

    /// What a Job of this age says that has this pod.
    fn says(seconds: i64, status: &Value) -> ImageJob {
        read_image_job(&job(seconds, &json!([])), &[pod("job", status)], now())
    }

    fn ended(code: i32, message: &str) -> Value {
        json!({"terminated": {"exitCode": code, "message": message}})
    }

    fn failed_with(reason: &str, message: &str) -> String {
        let result = JobResult {
            version: contract::VERSION,
            run: "image-check".to_owned(),
            outcome: JobOutcome::Failed {
                reason: reason.to_owned(),
                message: message.to_owned(),
                retriable: false,
            },
        };
        String::from_utf8(contract::write(&result)).expect("text")
    }

    const RUNNING: ImageJob = ImageJob::Running { waits: None };

    #[test]
    fn a_job_that_has_succeeded_passes_the_image() {
        let done = json!([{"type": "Complete", "status": "True"}]);
        assert_eq!(read_image_job(&job(5, &done), &[], now()), ImageJob::Passed);
    }

    #[test]
    fn an_image_passes_although_an_injected_container_keeps_the_job_from_completing() {
        let sidecar = container("proxy", &json!({"running": {}}));
        let mut status = checking(&ended(0, ""));
        let statuses = status["containerStatuses"].as_array_mut().expect("containers");
        statuses.insert(0, sidecar[0].clone());
        assert_eq!(says(5, &status), ImageJob::Passed);
    }

    #[test]
    fn an_image_that_cannot_be_pulled_has_another_version_or_does_not_run_fails() {
        let pulls =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i\""}});
        let not_pulled = ImageJob::Failed(ImageProblem::NotStarted {
            text: "ImagePullBackOff: Back-off pulling image \"i\"".to_owned(),
        });
        for seconds in [5, 1000] {
            assert_eq!(says(seconds, &checking(&pulls)), not_pulled);
        }
        let lies = failed_with(IMAGE_VERSION_DIFFERS, "it holds etcd 3.7.0");
        let differs = ImageJob::Failed(ImageProblem::VersionDiffers {
            text: "it holds etcd 3.7.0".to_owned(),
        });
        assert_eq!(says(5, &checking(&ended(1, &lies))), differs);
        for (state, text) in [
            (
                ended(1, &failed_with("NotRunning", "it is not there")),
                "it is not there",
            ),
            (
                ended(1, "exec format error"),
                "ended with code 1: exec format error",
            ),
            (
                json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "killed"}}),
                "ended with code 137 (OOMKilled): killed",
            ),
        ] {
            let expected = ImageProblem::NotRunning {
                text: text.to_owned(),
            };
            assert_eq!(says(5, &checking(&state)), ImageJob::Failed(expected));
        }
    }

    #[test]
    fn an_image_that_has_failed_is_bad_while_it_is_started_again_and_good_once_it_runs() {
        let lies = failed_with(IMAGE_VERSION_DIFFERS, "it holds etcd 3.7.0");
        let again = |state: Value| {
            let mut status = checking(&state);
            status["containerStatuses"][0]["lastState"] = ended(1, &lies);
            says(1000, &status)
        };
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
        for state in [back_off, json!({"running": {}}), ended(1, &lies)] {
            let found = again(state);
            assert!(
                matches!(found, ImageJob::Failed(ImageProblem::VersionDiffers { .. })),
                "{found:?}"
            );
        }
        assert_eq!(again(ended(0, "")), ImageJob::Passed);
    }

    #[test]
    fn the_operators_program_has_to_be_there_and_containers_of_others_do_not_count() {
        let before = |name: &str, state: &Value| {
            json!({"initContainerStatuses": container(name, state),
                "containerStatuses": container(ETCD, &json!({"waiting": {"reason": "PodInitializing"}}))})
        };
        let pulls =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i\""}});
        for state in [pulls, ended(1, "no space left on device")] {
            let ImageJob::Failed(problem) = says(5, &before(INSTALL, &state)) else {
                panic!("{state}: not told");
            };
            assert!(
                problem.to_string().contains("init container install"),
                "{problem}"
            );
            let injected = before("mesh", &state);
            assert_eq!(says(5, &injected), RUNNING);
            let ImageJob::Running { waits: Some(why) } = says(1000, &injected) else {
                panic!("{state}: neither bad nor skipped, but told");
            };
            assert!(why.contains("kubectl describe pod c-image-1-x"), "{why}");
        }
    }

    #[test]
    fn what_stops_the_pod_from_outside_says_nothing_about_the_image() {
        let mut evicted = checking(&ended(137, ""));
        evicted["reason"] = json!("Evicted");
        let mut drained = checking(&ended(137, ""));
        drained["conditions"] = json!([
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        ]);
        let rejected = json!({"phase": "Failed", "reason": "OutOfcpu"});
        for (status, reason) in [
            (evicted, "Evicted"),
            (drained, "EvictionByEvictionAPI"),
            (rejected, "OutOfcpu"),
        ] {
            let ImageJob::HeldUp { why } = says(1000, &status) else {
                panic!("{reason}");
            };
            assert!(why.contains(reason), "{why}");
        }
        // A pod of an earlier Job of this name.
        let earlier = pod("earlier", &checking(&ended(0, "")));
        let found = read_image_job(&job(5, &json!([])), &[earlier], now());
        assert!(matches!(found, ImageJob::HeldUp { .. }), "{found:?}");
    }

    #[test]
    fn a_job_that_was_stopped_after_its_deadline_tells_nothing_whatever_its_pod_says() {
        for type_ in ["Failed", "FailureTarget"] {
            let failed = json!([{"type": type_, "status": "True", "reason": "DeadlineExceeded"}]);
            for pods in [vec![], vec![pod("job", &checking(&ended(1, "")))]] {
                assert_eq!(read_image_job(&job(600, &failed), &pods, now()), ImageJob::Begins);
            }
        }
    }

    #[test]
    fn a_job_without_a_pod_or_a_node_is_held_up() {
        let without_pod = read_image_job(&job(5, &json!([])), &[], now());
        assert!(matches!(without_pod, ImageJob::HeldUp { .. }), "{without_pod:?}");
        for (conditions, words) in [
            (
                json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient cpu."}]),
                "3 Insufficient cpu",
            ),
            (json!([]), "has no node"),
        ] {
            let mut unscheduled = pod("job", &json!({"conditions": conditions}));
            unscheduled.spec.get_or_insert_default().node_name = None;
            let ImageJob::HeldUp { why } = read_image_job(&job(5, &json!([])), &[unscheduled], now()) else {
                panic!("{words}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_node_that_takes_long_is_told() {
        let creates = checking(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(says(119, &creates), RUNNING);
        let ImageJob::Running { waits: Some(why) } = says(120, &creates) else {
            panic!("not told");
        };
        assert!(why.contains("node n1"), "{why}");
    }

    #[test]
    fn a_problem_survives_its_way_through_a_status() {
        let text = || "words".to_owned();
        for problem in [
            ImageProblem::NotStarted { text: text() },
            ImageProblem::VersionDiffers { text: text() },
            ImageProblem::NotRunning { text: text() },
        ] {
            let read = ImageProblem::read(problem.reason(), problem.text());
            assert_eq!(read, Some(problem));
        }
        assert_eq!(ImageProblem::read("Unknown", "words"), None);
    }
}
