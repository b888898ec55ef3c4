//! Recognizes text of other programs (kernel, API server, kubelet, scheduler, etcd) and turns it into types. Nothing else in this crate
//! decides by wording.

use std::collections::BTreeSet;

use super::container_log::{fatal_lines, most_telling_line};
use super::member::{Container, End, EndCause};
use super::start_delay::{Obstacle, StartDelay, Unschedulable, WaitingCause, WaitingContainer};

impl StartDelay {
    /// Reads the kubelet's reason and message for a waiting container; `init_container` is `None` for that of etcd.
    pub fn from_kubelet(init_container: Option<&str>, reason: Option<&str>, message: Option<&str>) -> Self {
        const IMAGE_PULL: [&str; 4] = [
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "ErrImageNeverPull",
        ];
        const REFERENCES: [&str; 3] = ["secret \"", "configmap \"", "couldn't find key"];
        let separator = if init_container.is_some() { " " } else { ": " };
        let parts: Vec<_> = reason.into_iter().chain(message).collect();
        let text = parts.join(separator);
        let cause = if IMAGE_PULL.iter().any(|word| text.contains(word)) {
            WaitingCause::ImagePull
        } else if text == "ContainerCreating" {
            WaitingCause::Creating
        } else if reason == Some("CreateContainerConfigError")
            && REFERENCES.iter().any(|words| text.contains(words))
        {
            WaitingCause::MissingReference
        } else {
            WaitingCause::Other
        };
        Self::Waiting(WaitingContainer {
            init_container: init_container.map(str::to_owned),
            cause,
            text,
        })
    }
}

impl Unschedulable {
    /// Reads the scheduler's message. Obstacles that are not recognized are only in the text.
    pub fn from_scheduler(text: impl Into<String>) -> Self {
        const OBSTACLES: [(&str, Obstacle); 5] = [
            ("Insufficient ", Obstacle::Resources),
            (
                "didn't match Pod's node affinity/selector",
                Obstacle::NodeAffinity,
            ),
            ("anti-affinity", Obstacle::AntiAffinity),
            ("topology spread constraints", Obstacle::TopologySpread),
            ("untolerated taint", Obstacle::Taint),
        ];
        let text = text.into();
        let named = OBSTACLES.iter().filter(|(words, _)| text.contains(words));
        let mut obstacles: BTreeSet<_> = named.map(|(_, obstacle)| *obstacle).collect();
        if text.to_lowercase().contains("volume") {
            obstacles.insert(Obstacle::Volume);
        }
        Self { obstacles, text }
    }
}

/// Whether the scheduler says that no node reaches the pod's volume. `false` if a node lacks only something else: it
/// could still take the pod later.
pub fn is_volume_unreachable(message: &str) -> bool {
    // Two versions of the scheduler word it differently.
    const CONFLICTS: [&str; 2] = [
        "volume node affinity conflict",
        "didn't match PersistentVolume's node affinity",
    ];
    // Control-plane nodes never take members, whether they reach the volume or not.
    const CONTROL_PLANE_TAINT: &str = "untolerated taint {node-role.kubernetes.io/";
    let Some((_, reasons)) = message.split_once("nodes are available: ") else {
        return false;
    };
    let reasons = reasons
        .split(". ")
        .next()
        .unwrap_or_default()
        .trim_end_matches('.');
    let is_conflict = |reason: &str| CONFLICTS.iter().any(|words| reason.contains(words));
    let mut reasons = reasons.split(", ").peekable();
    is_conflict(message) && reasons.all(|reason| is_conflict(reason) || reason.contains(CONTROL_PLANE_TAINT))
}

/// What a refusal of a pod's creation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRefusal {
    /// A ResourceQuota is used up, or not counted yet. The API server asks it last, so nothing else refuses the pod.
    Quota,
    /// The user may not create pods at all.
    Sender,
    /// An admission webhook does not support dry runs.
    DryRun,
    /// The pod itself.
    Pod,
}

/// Reads what the API server's refusal of a pod's creation is about. An unknown text is about the pod.
pub fn pod_refusal(message: &str) -> PodRefusal {
    // A new quota counts nothing yet.
    const QUOTA: [&str; 2] = [
        " is forbidden: exceeded quota: ",
        " is forbidden: status unknown for quota: ",
    ];
    if QUOTA.iter().any(|words| message.contains(words)) {
        PodRefusal::Quota
    } else if message.starts_with("pods is forbidden: User ")
        && message.contains(" cannot create resource \"pods\" in API group ")
    {
        PodRefusal::Sender
    } else if message.starts_with("admission webhook ") && message.ends_with(" does not support dry run") {
        PodRefusal::DryRun
    } else {
        PodRefusal::Pod
    }
}

/// A container that has ended, read from its exit code and its last lines.
pub fn ended_container(code: i32, last_lines: &str) -> Container {
    Container::Ended {
        code,
        line: most_telling_line(last_lines),
        is_data_damaged: code != 0 && says_data_damaged(last_lines),
    }
}

/// The end of a container, read from its exit code, the kubelet's reason and its last lines.
pub fn container_end(code: i32, reason: &str, last_lines: &str) -> End {
    const FLAG_ERRORS: [&str; 4] = [
        "flag provided but not defined",
        "for flag -",
        "failed to verify flags",
        "error verifying flags",
    ];
    const API_V2_DATA: [&str; 2] = [
        "detected disallowed custom content in v2store",
        "detected disallowed v2 WAL",
    ];
    let line = most_telling_line(last_lines);
    let cause = if code != 0 && FLAG_ERRORS.iter().any(|words| line.contains(words)) {
        EndCause::InvalidFlags
    } else if code != 0 && API_V2_DATA.iter().any(|words| last_lines.contains(words)) {
        EndCause::ApiV2Data
    } else if reason == "OOMKilled" {
        EndCause::OutOfMemory
    } else {
        EndCause::Other
    };
    End { code, cause, line }
}

/// Whether etcd's last lines say that it ended because its data are damaged. Errors that a full disk or a wrong flag
/// can cause do not count.
fn says_data_damaged(last_lines: &str) -> bool {
    const SIGNATURES: [&str; 9] = [
        "walpb: crc mismatch",
        "wal: crc mismatch",
        "wal: max entry size limit exceeded",
        "wal: slice bounds out of range",
        "is out of range [lastIndex(",
        "checksum error",
        "invalid freelist page",
        "invalid database",
        "failed to find database snapshot file",
    ];
    fatal_lines(last_lines).any(|line| SIGNATURES.iter().any(|signature| line.contains(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_message_names_what_nodes_lack() {
        let obstacles = |text: &str| Vec::from_iter(Unschedulable::from_scheduler(text).obstacles);
        assert_eq!(
            obstacles("0/3 nodes are available: 3 Insufficient cpu."),
            [Obstacle::Resources]
        );
        assert_eq!(
            obstacles("pod has unbound immediate PersistentVolumeClaims"),
            [Obstacle::Volume]
        );
        assert_eq!(
            obstacles(
                "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod anti-affinity rules, 1 node(s) had untolerated taint {a: b}"
            ),
            [Obstacle::NodeAffinity, Obstacle::AntiAffinity, Obstacle::Taint]
        );
        assert_eq!(obstacles("preempted"), []);
    }

    #[test]
    fn the_kubelets_reason_and_message_become_a_cause() {
        let cause =
            |reason: &str, message: &str| match StartDelay::from_kubelet(None, Some(reason), Some(message)) {
                StartDelay::Waiting(waiting) => waiting.cause,
                other => panic!("{other:?}"),
            };
        assert_eq!(
            cause("ImagePullBackOff", "no such image"),
            WaitingCause::ImagePull
        );
        let missing = "secret \"tokens\" not found";
        assert_eq!(
            cause("CreateContainerConfigError", missing),
            WaitingCause::MissingReference
        );
        assert_eq!(cause("RunContainerError", missing), WaitingCause::Other);
        let creating = StartDelay::from_kubelet(None, Some("ContainerCreating"), None);
        assert!(creating.is_transient());
    }

    #[test]
    fn an_exit_is_blamed_on_flags_memory_or_data_by_its_last_lines() {
        let cause = |code, reason, lines| container_end(code, reason, lines).cause;
        let flag = "flag provided but not defined: -x";
        assert_eq!(cause(2, "Error", flag), EndCause::InvalidFlags);
        assert_eq!(cause(0, "Completed", flag), EndCause::Other);
        // As etcd 3.6.16 writes it.
        let refused = r#"{"level":"fatal","ts":"2026-11-28T01:03:34.351931Z","caller":"etcdmain/etcd.go:183","msg":"discovery failed","error":"detected disallowed custom content in v2store for stage --v2-deprecation=write-only","stacktrace":"go.etcd.io/etcd/server/v3/etcdmain.Main"}"#;
        assert_eq!(cause(1, "Error", refused), EndCause::ApiV2Data);
        let panics = "panic: detected disallowed v2 WAL for stage --v2-deprecation=write-only [recovered]\n\tpanic: execute job failed";
        assert_eq!(cause(2, "Error", panics), EndCause::ApiV2Data);
        assert_eq!(cause(137, "OOMKilled", ""), EndCause::OutOfMemory);
        let is_damaged = |code, lines| {
            matches!(
                ended_container(code, lines),
                Container::Ended {
                    is_data_damaged: true,
                    ..
                }
            )
        };
        let panics = "panic: tocommit(16) is out of range [lastIndex(10)]";
        assert!(is_damaged(2, panics) && !is_damaged(0, panics) && !is_damaged(1, "no space left on device"));
    }
}
