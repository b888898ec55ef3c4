//! What the Job says that starts the etcd image of a changed template with `etcd --version`, before any member gets the template.

use std::fmt;

use etcd_operator_api::contract::{self, IMAGE_VERSION_DIFFERS, JobOutcome, JobResult};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::unscheduled::unscheduled;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

use super::container_log::most_telling_line;
use super::start_delay::StartDelay;
use crate::build::CHECK;

/// How long the Job may have no pod, or its pod no node, before the check is skipped.
const HELD_UP_FOR: SignedDuration = SignedDuration::from_mins(2);
/// How soon a Job usually has a pod, and that a node.
const USUALLY_WITHIN: SignedDuration = SignedDuration::from_secs(10);
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

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { text } => write!(f, "the kubelet does not start it: {text}"),
            Self::VersionDiffers { text } => f.write_str(text),
            Self::NotRunning { text } => write!(f, "etcd does not run in it: {text}"),
        }
    }
}

/// What the Job says. `None` if it ended without saying anything about the image, for example because its pod was evicted: it has
/// to run once more.
pub fn read_image_check(job: &Job, pods: &[Pod], now: Timestamp) -> Option<ImageCheck> {
    if has_ended(job, "Complete") {
        return Some(ImageCheck::Passed);
    }
    let pod = newest_pod(job, pods);
    // Containers that a webhook has injected may keep the Job from completing.
    if pod.is_some_and(has_passed) {
        return Some(ImageCheck::Passed);
    }
    if let Some(problem) = pod.and_then(problem) {
        return Some(ImageCheck::Failed(problem));
    }
    if has_exceeded_deadline(job) {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let why = format!("Job {name} did not end in time, as on a node that does not start its pod");
        return Some(ImageCheck::Skipped { why });
    }
    if has_ended(job, "Failed") {
        return None;
    }
    let created = job.metadata.creation_timestamp.as_ref();
    let age = created.map_or(SignedDuration::ZERO, |created| now.duration_since(created.0));
    let held_up = |why: String| {
        if age >= HELD_UP_FOR {
            return ImageCheck::Skipped { why };
        }
        ImageCheck::Running {
            waits: (age >= USUALLY_WITHIN).then_some(why),
        }
    };
    let Some(pod) = pod else {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        return Some(held_up(format!(
            "Job {name} has no pod, see kubectl describe job {name}"
        )));
    };
    if let Some(unscheduled) = unscheduled(pod) {
        let words = unscheduled.message.unwrap_or_default();
        return Some(held_up(shorten(&format!("no node takes its pod: {words}"))));
    }
    Some(ImageCheck::Running { waits: None })
}

fn has_ended(job: &Job, type_: &str) -> bool {
    conditions(job).any(|condition| condition.type_ == type_)
}

fn has_exceeded_deadline(job: &Job) -> bool {
    conditions(job).any(|condition| {
        condition.type_ == "Failed" && condition.reason.as_deref() == Some("DeadlineExceeded")
    })
}

/// The conditions of a Job that are true.
fn conditions(job: &Job) -> impl Iterator<Item = &JobCondition> {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.status == "True")
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
        .filter(|container| container.name == CHECK)
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    ended.any(|ended| ended.exit_code == 0)
}

/// What the pod says against the image; none of a pod that was stopped from outside.
fn problem(pod: &Pod) -> Option<ImageProblem> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let is_disrupted =
        conditions.any(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True");
    if pod.metadata.deletion_timestamp.is_some() || is_disrupted || status.reason.is_some() {
        return None;
    }
    let install = status.init_container_statuses.iter().flatten();
    let install = install.filter_map(|container| not_started(container, Some(&container.name)));
    let check = status.container_statuses.iter().flatten();
    let check = check.filter(|container| container.name == CHECK);
    let check = check.filter_map(|container| not_started(container, None).or_else(|| not_running(container)));
    install.chain(check).next()
}

/// A container that the kubelet does not start; one before etcd's must end well.
fn not_started(container: &ContainerStatus, init: Option<&str>) -> Option<ImageProblem> {
    let state = container.state.as_ref()?;
    if let (Some(name), Some(ended)) = (
        init,
        state.terminated.as_ref().filter(|ended| ended.exit_code != 0),
    ) {
        let text = format!("its init container {name} {}", end(ended));
        return Some(ImageProblem::NotStarted { text });
    }
    let waiting = state.waiting.as_ref()?;
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
fn not_running(container: &ContainerStatus) -> Option<ImageProblem> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    if ended.exit_code == 0 {
        return None;
    }
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
    shorten(&format!("ended with code {}: {line}", ended.exit_code))
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
            "status": status,
        }))
        .expect("a pod")
    }

    fn container(name: &str, state: &Value) -> Value {
        json!([{"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    }

    fn checking(state: &Value) -> Value {
        json!({"containerStatuses": container(CHECK, state)})
    }

    /// What a Job of this age says that has this pod.
    fn says(seconds: i64, status: &Value) -> Option<ImageCheck> {
        read_image_check(&job(seconds, &json!([])), &[pod("job", status)], now())
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

    const UNSCHEDULED: &str = "0/3 nodes are available: 3 Insufficient cpu.";

    fn unscheduled_pod() -> Value {
        json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNSCHEDULED}
        ]})
    }

    #[test]
    fn a_job_that_has_succeeded_passes_the_image() {
        let done = json!([{"type": "Complete", "status": "True"}]);
        assert_eq!(
            read_image_check(&job(5, &done), &[], now()),
            Some(ImageCheck::Passed)
        );
    }

    #[test]
    fn an_image_passes_although_an_injected_container_keeps_the_job_from_completing() {
        let sidecar = container("proxy", &json!({"running": {}}));
        let mut status = checking(&ended(0, ""));
        let statuses = status["containerStatuses"].as_array_mut().expect("containers");
        statuses.insert(0, sidecar[0].clone());
        assert_eq!(says(5, &status), Some(ImageCheck::Passed));
    }

    #[test]
    fn an_image_that_cannot_be_pulled_has_another_version_or_does_not_run_fails() {
        let pulls =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i\""}});
        assert_eq!(
            says(5, &checking(&pulls)),
            Some(ImageCheck::Failed(ImageProblem::NotStarted {
                text: "ImagePullBackOff: Back-off pulling image \"i\"".to_owned()
            }))
        );
        let init = json!({"initContainerStatuses": container("install", &pulls),
            "containerStatuses": container(CHECK, &json!({"waiting": {"reason": "PodInitializing"}}))});
        let Some(ImageCheck::Failed(problem)) = says(5, &init) else {
            panic!("not told");
        };
        assert!(
            problem.to_string().contains("init container install"),
            "{problem}"
        );
        let lies = failed_with(IMAGE_VERSION_DIFFERS, "it holds etcd 3.7.0");
        assert_eq!(
            says(5, &checking(&ended(1, &lies))),
            Some(ImageCheck::Failed(ImageProblem::VersionDiffers {
                text: "it holds etcd 3.7.0".to_owned()
            }))
        );
        for message in [
            failed_with("NotRunning", "it is not there"),
            "exec format error".to_owned(),
        ] {
            let found = says(5, &checking(&ended(1, &message)));
            assert!(
                matches!(found, Some(ImageCheck::Failed(ImageProblem::NotRunning { .. }))),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_stops_the_pod_from_outside_says_nothing_about_the_image() {
        let mut evicted = checking(&ended(137, ""));
        evicted["reason"] = json!("Evicted");
        let failed = json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]);
        let again = read_image_check(&job(5, &failed), &[pod("job", &evicted)], now());
        assert_eq!(again, None);
        // A pod that was deleted, and one of an earlier Job of this name.
        assert_eq!(read_image_check(&job(5, &failed), &[], now()), None);
        let earlier = pod("earlier", &checking(&ended(1, "")));
        assert_eq!(read_image_check(&job(5, &failed), &[earlier], now()), None);
    }

    #[test]
    fn without_a_pod_or_a_node_the_check_is_skipped_after_two_minutes_and_not_before() {
        let without_pod = |age| read_image_check(&job(age, &json!([])), &[], now());
        for (age, is_skipped) in [(0, false), (119, false), (120, true), (500, true)] {
            for found in [without_pod(age), says(age, &unscheduled_pod())] {
                let skipped = matches!(found, Some(ImageCheck::Skipped { .. }));
                assert_eq!(skipped, is_skipped, "{age}: {found:?}");
            }
        }
        let Some(ImageCheck::Skipped { why }) = says(120, &unscheduled_pod()) else {
            panic!("not skipped");
        };
        assert!(why.contains("3 Insufficient cpu"), "{why}");
        // A node pulls the image for as long as it takes.
        let pulls = checking(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(says(500, &pulls), Some(ImageCheck::Running { waits: None }));
        let late = json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]);
        let found = read_image_check(&job(600, &late), &[], now());
        assert!(matches!(found, Some(ImageCheck::Skipped { .. })), "{found:?}");
    }
}
