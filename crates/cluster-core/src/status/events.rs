//! What of a status is worth an Event: trouble that was not there before, a cluster that is put to sleep, woken, left alone or
//! looked after again, and a restore that takes a turn. Whoever looks after the cluster may not know of the restore, or its
//! object may be gone by then.

use std::collections::BTreeSet;

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::{self, ConditionType, Truth};

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::severity::Severity;

use super::rollout;
use super::text::Transition;
use crate::persisted_state::Phase;
use crate::plan::Reason;

/// The reason of the Event about a condition that is a problem; `None` for any other one.
fn event_reason(type_: ConditionType) -> Option<&'static str> {
    match type_ {
        ConditionType::QuorumLost => Some("QuorumLost"),
        ConditionType::DataLost => Some("DataLost"),
        ConditionType::NameConflict => Some("NameConflict"),
        _ => None,
    }
}

/// Where the next step is not safe, or not the operator's to take.
const BLOCKED: &str = "Blocked";

/// Where the API server takes no change of what is there.
const REFUSED: &str = "ChangeRefused";

/// The message of the condition Applied if it is False; `None` if nothing is refused.
pub fn refused_changes(conditions: &[condition::Condition]) -> Option<String> {
    message_when(conditions, ConditionType::Applied, Truth::False)
}

/// The message of the condition NameConflict if it is True; `None` if there is no conflict.
pub fn name_conflict(conditions: &[condition::Condition]) -> Option<String> {
    message_when(conditions, ConditionType::NameConflict, Truth::True)
}

/// The message of a condition, if it has this status.
fn message_when(conditions: &[condition::Condition], type_: ConditionType, status: Truth) -> Option<String> {
    condition::find(conditions, type_)
        .filter(|one| one.status == status.as_str())
        .map(|one| one.message.clone().unwrap_or_default())
}

/// The fields and objects that a list of refusals names, without what is said of each, which changes all the time.
fn refusal_subjects(refused: &str) -> BTreeSet<&str> {
    let heads = refused.split("; ").map(|one| one.split(": ").next());
    heads.flatten().collect()
}

/// Problems that one status reports and the one before does not: the reason and the message of an Event for each. A
/// refusal is new only if it names another field or object.
pub fn new_problems(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<(&'static str, String)> {
    let conditions = |status: &EtcdClusterStatus| status.conditions.clone().unwrap_or_default();
    let (before, after) = (conditions(before), conditions(after));
    let is_true = |all: &[condition::Condition], type_| {
        condition::find(all, type_).is_some_and(|one| one.status == Truth::True.as_str())
    };
    let mut problems: Vec<_> = condition::ALL
        .iter()
        .filter_map(|type_| {
            let reason = event_reason(*type_)?;
            let is_new = is_true(&after, *type_) && !is_true(&before, *type_);
            let condition_now = condition::find(&after, *type_)?;
            is_new.then(|| (reason, condition_now.message.clone().unwrap_or_default()))
        })
        .collect();
    let blocked = |all: &[condition::Condition]| {
        condition::find(all, ConditionType::Progressing)
            .filter(|one| one.reason.as_deref() == Some(Reason::Blocked.as_str()))
            .map(|one| one.message.clone().unwrap_or_default())
    };
    if let Some(message) = blocked(&after).filter(|_| blocked(&before).is_none()) {
        problems.push((BLOCKED, message));
    }
    let known = refused_changes(&before);
    let known = known.as_deref().map(refusal_subjects).unwrap_or_default();
    let is_new_refusal = |now: &String| !refusal_subjects(now).is_subset(&known);
    if let Some(message) = refused_changes(&after).filter(is_new_refusal) {
        problems.push((REFUSED, message));
    }
    problems
}

/// Events about what has changed from one status to the next: pause, hibernation, restore and rollout.
pub fn transitions(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Transition> {
    let all = [
        pause_transition(before, after),
        hibernation_transition(before, after),
        restore_transition(before, after),
    ];
    let rollout = rollout::transitions(before, after);
    all.into_iter().flatten().chain(rollout).collect()
}

/// The Event about a cluster that is paused, or no longer is.
fn pause_transition(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let (reason, words) = match (before.control_paused, after.control_paused) {
        (false, true) => (
            "Paused",
            "The cluster is paused: it is looked at, and nothing is done about it.",
        ),
        (true, false) => (
            "Unpaused",
            "The cluster is no longer paused: it is looked after again.",
        ),
        _ => return None,
    };
    Some((Severity::Normal, reason, words.to_owned()))
}

/// The Event about a cluster that is hibernated, or no longer is. One that is paused or refused meanwhile has not
/// resumed.
fn hibernation_transition(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let progress = |status: &EtcdClusterStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        condition::find(conditions, ConditionType::Progressing).cloned()
    };
    let is = |status: &EtcdClusterStatus, reason: Reason| {
        progress(status).is_some_and(|one| one.reason.as_deref() == Some(reason.as_str()))
    };
    let is_observed_only = is(after, Reason::Paused) || is(after, Reason::Invalid);
    after.cluster_id.as_ref()?;
    match (is(before, Reason::Hibernated), is(after, Reason::Hibernated)) {
        (false, true) => {
            let words = progress(after)?.message.unwrap_or_default();
            Some((Severity::Normal, "Hibernated", words))
        }
        (true, false) if !is_observed_only => {
            let words = "The size is no longer 0: the members are started with the data on their volumes.";
            Some((Severity::Normal, "Woken", words.to_owned()))
        }
        _ => None,
    }
}

/// The Event about a restore that has entered another phase. `None` for phases that have no Event.
fn restore_transition(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Transition> {
    let is_at = |restore: &RestoreProgress, phase: Phase| restore.phase == phase.as_str();
    let restore = after.restore.as_ref()?;
    let last = before.restore.as_ref().filter(|last| last.uid == restore.uid);
    if last.is_some_and(|last| last.phase == restore.phase) {
        return None;
    }
    let (severity, reason, what) = match restore {
        _ if is_at(restore, Phase::Stopping) => {
            let what = "begins: the pods are stopped";
            (Severity::Normal, "RestoreStarted", what.to_owned())
        }
        _ if is_at(restore, Phase::Committed) => {
            let what = "is committed: the restored data take the place of the old ones";
            (Severity::Normal, "RestoreCommitted", what.to_owned())
        }
        _ if is_at(restore, Phase::Finished) => {
            let what = "is over: the restored data are served";
            (Severity::Normal, "RestoreSucceeded", what.to_owned())
        }
        _ if is_at(restore, Phase::RollingBack) => {
            let why = restore.message.as_deref().unwrap_or_default();
            let what = format!("is rolled back: {why}");
            (Severity::Warning, "RestoreRollsBack", what)
        }
        _ => return None,
    };
    let words = format!("The EtcdRestore {} {}.", restore.name, what.trim_end_matches('.'));
    Some((severity, reason, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_operator_api::condition::Finding;
    use jiff::Timestamp;

    fn says(findings: &[(ConditionType, bool, &'static str)]) -> EtcdClusterStatus {
        let findings: Vec<_> = findings
            .iter()
            .map(|(type_, is_so, reason)| Finding {
                type_: *type_,
                status: if *is_so { Truth::True } else { Truth::False },
                reason,
                message: format!("{reason}, in words"),
            })
            .collect();
        EtcdClusterStatus {
            conditions: Some(condition::merge(&[], &findings, Some(1), Timestamp::UNIX_EPOCH)),
            ..EtcdClusterStatus::default()
        }
    }

    fn condition_now(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<&'static str> {
        let problems = new_problems(before, after).into_iter();
        problems.map(|(reason, _)| reason).collect()
    }

    #[test]
    fn each_turn_of_a_restore_is_told_once_also_when_its_object_is_gone() {
        let at = |uid: &str, phase: Phase| EtcdClusterStatus {
            restore: Some(RestoreProgress {
                uid: uid.to_owned(),
                name: "back".to_owned(),
                phase: phase.as_str().to_owned(),
                message: Some("c-0: NotFound".to_owned()),
                ..RestoreProgress::default()
            }),
            ..EtcdClusterStatus::default()
        };
        let condition_now =
            |before: &EtcdClusterStatus, after: &EtcdClusterStatus| transitions(before, after).pop();
        let none = EtcdClusterStatus::default();
        let (stopping, back) = (at("r", Phase::Stopping), at("r", Phase::RollingBack));
        assert_eq!(
            condition_now(&none, &stopping).expect("a turn").1,
            "RestoreStarted"
        );
        assert_eq!(condition_now(&stopping, &stopping), None);
        assert_eq!(condition_now(&stopping, &at("r", Phase::Preparing)), None);
        let (severity, reason, words) = condition_now(&stopping, &back).expect("a turn");
        assert_eq!((severity, reason), (Severity::Warning, "RestoreRollsBack"));
        assert_eq!(words, "The EtcdRestore back is rolled back: c-0: NotFound.");
        let over = at("r", Phase::Finished);
        assert_eq!(condition_now(&over, &over), None);
        assert_eq!(
            condition_now(&over, &at("s", Phase::Stopping)).expect("a turn").1,
            "RestoreStarted"
        );
    }

    #[test]
    fn sleep_and_wake_pause_and_its_end_are_told_once_each() {
        let at = |reason: Reason, is_paused: bool| EtcdClusterStatus {
            control_paused: is_paused,
            cluster_id: Some("1f".to_owned()),
            ..says(&[(ConditionType::Progressing, false, reason.as_str())])
        };
        let unformed = EtcdClusterStatus {
            cluster_id: None,
            ..at(Reason::Hibernated, false)
        };
        let (awake, asleep) = (at(Reason::Converged, false), at(Reason::Hibernated, false));
        let (pause_transition, refused) = (at(Reason::Paused, true), at(Reason::Invalid, false));
        let new = EtcdClusterStatus::default();
        let table: &[(&EtcdClusterStatus, &EtcdClusterStatus, &[&str])] = &[
            (&awake, &asleep, &["Hibernated"]),
            (&asleep, &asleep, &[]),
            (&asleep, &at(Reason::Waiting, false), &["Woken"]),
            (&asleep, &at(Reason::MembersUnreachable, false), &["Woken"]),
            (&asleep, &refused, &[]),
            (&asleep, &pause_transition, &["Paused"]),
            (&pause_transition, &pause_transition, &[]),
            (&pause_transition, &asleep, &["Unpaused", "Hibernated"]),
            (&pause_transition, &awake, &["Unpaused"]),
            (&new, &pause_transition, &["Paused"]),
            (&new, &awake, &[]),
            (&new, &unformed, &[]),
        ];
        for (before, after, expected) in table {
            let condition_now: Vec<_> = transitions(before, after)
                .into_iter()
                .map(|(_, reason, _)| reason)
                .collect();
            assert_eq!(condition_now, *expected, "{before:?} {after:?}");
        }
        let (_, _, words) = transitions(&awake, &asleep).remove(0);
        assert_eq!(words, "Hibernated, in words");
    }

    #[test]
    fn trouble_is_told_once_when_it_begins_and_not_while_it_lasts_or_when_it_ends() {
        let healthy = says(&[
            (ConditionType::QuorumLost, false, "Converged"),
            (ConditionType::Progressing, false, "Converged"),
        ]);
        let lost = says(&[
            (ConditionType::QuorumLost, true, "QuorumLost"),
            (ConditionType::Progressing, false, "QuorumLost"),
        ]);
        let blocked = says(&[(ConditionType::Progressing, false, "Blocked")]);
        assert_eq!(condition_now(&healthy, &lost), ["QuorumLost"]);
        assert_eq!(
            condition_now(&EtcdClusterStatus::default(), &lost),
            ["QuorumLost"]
        );
        assert_eq!(condition_now(&lost, &lost), [""; 0]);
        assert_eq!(condition_now(&lost, &healthy), [""; 0]);
        assert_eq!(condition_now(&healthy, &blocked), ["Blocked"]);
        assert_eq!(new_problems(&healthy, &blocked)[0].1, "Blocked, in words");
        assert_eq!(condition_now(&blocked, &blocked), [""; 0]);
    }

    #[test]
    fn a_refusal_is_told_once_for_what_it_is_about_however_it_is_listed_and_worded() {
        let refused = |list: &[&str]| {
            let finding = Finding {
                type_: ConditionType::Applied,
                status: if list.is_empty() {
                    Truth::True
                } else {
                    Truth::False
                },
                reason: "Refused",
                message: list.join("; "),
            };
            EtcdClusterStatus {
                conditions: Some(condition::merge(&[], &[finding], Some(1), Timestamp::UNIX_EPOCH)),
                ..EtcdClusterStatus::default()
            }
        };
        let size = "spec.storage.size or spec.pod.labels (give it back; or not): no";
        let labels = "spec.pod.labels or spec.pod.annotations: apply Pod ns/c-0: no";
        let of_another = "spec.pod.labels or spec.pod.annotations: apply Pod ns/c-1: no, for the 7th time";
        let set = "apply StatefulSet ns/c: exceeded quota: q, used: 3";
        let used_by_more = "apply StatefulSet ns/c: exceeded quota: q, used: 4";
        let table: &[(&[&str], &[&str], bool)] = &[
            (&[], &[size], true),
            (&[size, labels], &[labels, size], false),
            (&[size, labels], &[size], false),
            (&[labels], &[labels, of_another], false),
            (&[set], &[used_by_more], false),
            (&[set], &[labels], true),
            (&[set], &[set, labels], true),
            (&[set], &[], false),
        ];
        for (before, after, is_told) in table {
            let expected: &[&str] = if *is_told { &["ChangeRefused"] } else { &[] };
            assert_eq!(
                condition_now(&refused(before), &refused(after)),
                expected,
                "{before:?} {after:?}"
            );
        }
    }
}
