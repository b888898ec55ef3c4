//! Pods for which the scheduler finds no node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// What the scheduler reports of a pod for which it finds no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unscheduled<'a> {
    /// The reason, for example `Unschedulable`.
    pub reason: Option<&'a str>,
    /// Why each node is unsuitable, without what the scheduler repeats.
    pub message: Option<&'a str>,
    /// Since when it reports that.
    pub since: Option<Timestamp>,
}

impl Unscheduled<'_> {
    /// Reason and message as one text, if there is any.
    pub fn text(&self) -> Option<String> {
        let words: Vec<_> = self.reason.into_iter().chain(self.message).collect();
        (!words.is_empty()).then(|| words.join(": "))
    }
}

/// Reads the condition `PodScheduled`; `None` unless it is false.
pub fn unscheduled(pod: &Pod) -> Option<Unscheduled<'_>> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let condition =
        conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(Unscheduled {
        reason: condition.reason.as_deref(),
        message: condition.message.as_deref().map(without_repetition),
        since: condition.last_transition_time.as_ref().map(|time| time.0),
    })
}

/// The message without its last sentence, if the one before ends with the same words. What fails before preemption fails during
/// preemption for the same cause, and the scheduler appends it: `persistentvolumeclaim "backups" not found. not found.`
fn without_repetition(message: &str) -> &str {
    match message.trim_end_matches('.').rsplit_once(". ") {
        Some((before, last)) if before.ends_with(last) => before,
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &str, message: &str) -> Pod {
        serde_json::from_value(json!({"status": {"conditions": [
            {"type": "Initialized", "status": "False"},
            {
                "type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            },
        ]}}))
        .expect("a pod")
    }

    #[test]
    fn only_a_pod_without_a_node_is_unscheduled() {
        assert_eq!(unscheduled(&Pod::default()), None);
        assert_eq!(unscheduled(&pod("True", "")), None);
        let pod = pod("False", "0/1 nodes are available: 1 Insufficient cpu.");
        let unscheduled = unscheduled(&pod).expect("it has no node");
        assert_eq!(
            unscheduled.since,
            Some("2026-01-01T00:00:00Z".parse().expect("a time"))
        );
        assert_eq!(
            unscheduled.text().as_deref(),
            Some("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")
        );
    }

    #[test]
    fn what_the_scheduler_repeats_is_left_out() {
        for (message, wanted) in [
            (
                r#"0/1 nodes are available: persistentvolumeclaim "backups" not found. not found."#,
                r#"0/1 nodes are available: persistentvolumeclaim "backups" not found"#,
            ),
            (
                r#"persistentvolumeclaim "backups" not found."#,
                r#"persistentvolumeclaim "backups" not found."#,
            ),
            (
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found.",
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found.",
            ),
            ("", ""),
        ] {
            assert_eq!(without_repetition(message), wanted);
        }
    }
}
