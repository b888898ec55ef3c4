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
use crate::build::{CHECK, INSTALL};

/// How long the Job may have no pod, or its pod no node, before the check is skipped. How long a pod usually takes at most.
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

/// What the Job says. `None` if it was stopped after its deadline: another one has to take its place.
///
/// The check is skipped only if the Job never had a pod that could be started: what an earlier pod has found may be forgotten.
pub fn read_image_check(job: &Job, pods: &[Pod], now: Timestamp) -> Option<ImageCheck> {
    if has_ended(job, "Complete") {
        return Some(ImageCheck::Passed);
    }
    let pod = newest_pod(job, pods);
    // Containers that a webhook has injected may keep the Job from completing.
    if pod.is_some_and(has_passed) {
        return Some(ImageCheck::Passed);
    }
    if has_ended(job, "Failed") {
        return None;
    }
    let waits = |why: String| ImageCheck::Running { waits: Some(why) };
    let created = job.metadata.creation_timestamp.as_ref();
    let age = created.map_or(SignedDuration::ZERO, |created| now.duration_since(created.0));
    let failed_pods = job.status.as_ref().and_then(|status| status.failed);
    let is_first = failed_pods.unwrap_or_default() == 0;
    let held_up = |why: String| {
        if age >= HELD_UP_FOR && is_first {
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
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if let Some(reason) = stopped(pod) {
        return Some(waits(format!(
            "its pod {name} was stopped ({reason}), another one follows"
        )));
    }
    if let Some(problem) = problem(pod) {
        return Some(ImageCheck::Failed(problem));
    }
    if let Some(unscheduled) = unscheduled(pod) {
        let words = unscheduled.message.unwrap_or_default();
        return Some(held_up(shorten(&format!("no node takes its pod: {words}"))));
    }
    Some(if age >= HELD_UP_FOR {
        waits(format!(
            "its pod {name} has not ended, see kubectl describe pod {name}"
        ))
    } else {
        ImageCheck::Running { waits: None }
    })
}

fn has_ended(job: &Job, type_: &str) -> bool {
    conditions(job).any(|condition| condition.type_ == type_)
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
    let check = check.find(|container| container.name == CHECK);
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
        let not_pulled = Some(ImageCheck::Failed(ImageProblem::NotStarted {
            text: "ImagePullBackOff: Back-off pulling image \"i\"".to_owned(),
        }));
        for seconds in [5, 1000] {
            assert_eq!(says(seconds, &checking(&pulls)), not_pulled);
        }
        let lies = failed_with(IMAGE_VERSION_DIFFERS, "it holds etcd 3.7.0");
        let differs = Some(ImageCheck::Failed(ImageProblem::VersionDiffers {
            text: "it holds etcd 3.7.0".to_owned(),
        }));
        assert_eq!(says(5, &checking(&ended(1, &lies))), differs);
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
                matches!(
                    found,
                    Some(ImageCheck::Failed(ImageProblem::VersionDiffers { .. }))
                ),
                "{found:?}"
            );
        }
        assert_eq!(again(ended(0, "")), Some(ImageCheck::Passed));
    }

    #[test]
    fn the_operators_program_has_to_be_there_and_containers_of_others_do_not_count() {
        let before = |name: &str, state: &Value| {
            json!({"initContainerStatuses": container(name, state),
                "containerStatuses": container(CHECK, &json!({"waiting": {"reason": "PodInitializing"}}))})
        };
        let pulls =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i\""}});
        for state in [pulls.clone(), ended(1, "no space left on device")] {
            let Some(ImageCheck::Failed(problem)) = says(5, &before(INSTALL, &state)) else {
                panic!("{state}: not told");
            };
            assert!(
                problem.to_string().contains("init container install"),
                "{problem}"
            );
            let injected = before("mesh", &state);
            assert_eq!(says(5, &injected), Some(ImageCheck::Running { waits: None }));
            let Some(ImageCheck::Running { waits: Some(why) }) = says(1000, &injected) else {
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
            let Some(ImageCheck::Running { waits: Some(why) }) = says(1000, &status) else {
                panic!("{reason}");
            };
            assert!(why.contains(reason), "{why}");
        }
        // A Job that was stopped after its deadline, whatever its pod says, and a pod of an earlier Job of this name.
        let failed = json!([{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]);
        for pods in [vec![], vec![pod("job", &checking(&ended(1, "")))]] {
            assert_eq!(read_image_check(&job(3600, &failed), &pods, now()), None);
        }
        let earlier = pod("earlier", &checking(&ended(0, "")));
        let found = read_image_check(&job(5, &json!([])), &[earlier], now());
        assert_eq!(found, Some(ImageCheck::Running { waits: None }));
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
    }

    #[test]
    fn nothing_is_skipped_that_an_earlier_pod_may_have_found_bad() {
        let mut again = job(500, &json!([]));
        again.status.get_or_insert_default().failed = Some(1);
        for pods in [vec![], vec![pod("job", &unscheduled_pod())]] {
            let found = read_image_check(&again, &pods, now());
            assert!(
                matches!(found, Some(ImageCheck::Running { waits: Some(_) })),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_node_that_takes_long_is_told_and_nothing_is_skipped() {
        let creates = checking(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(says(119, &creates), Some(ImageCheck::Running { waits: None }));
        let late = says(500, &creates);
        assert!(
            matches!(late, Some(ImageCheck::Running { waits: Some(_) })),
            "{late:?}"
        );
    }
}
