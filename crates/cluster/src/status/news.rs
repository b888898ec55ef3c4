//! What of a status is worth an Event: trouble that was not there before, a cluster that is put to sleep, woken, left alone or
//! looked after again, and a restore that takes a turn. Whoever looks after the cluster may not know of the restore, or its
//! object may be gone by then.

use std::collections::BTreeSet;

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::{self, ConditionType, Truth};

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_runtime::events::Severity;

use crate::memory::Phase;
use crate::plan::Reason;

/// Trouble as the reason of an Event.
fn name(type_: ConditionType) -> Option<&'static str> {
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

/// What the API server refuses, as conditions tell it; none if it takes everything.
pub fn refused(conditions: &[condition::Condition]) -> Option<String> {
    said(conditions, ConditionType::Applied, Truth::False)
}

/// Whose objects have names that are needed, as conditions tell it; none if all names are free.
pub fn conflict(conditions: &[condition::Condition]) -> Option<String> {
    said(conditions, ConditionType::NameConflict, Truth::True)
}

/// What is said of a condition that stands like this.
fn said(conditions: &[condition::Condition], type_: ConditionType, status: Truth) -> Option<String> {
    condition::find(conditions, type_)
        .filter(|one| one.status == status.as_str())
        .map(|one| one.message.clone().unwrap_or_default())
}

/// What a list of refusals is about: the fields and objects that it names, and not what is said of each. Others change that
/// all the time.
fn subjects(refused: &str) -> BTreeSet<&str> {
    let heads = refused.split("; ").map(|one| one.split(": ").next());
    heads.flatten().collect()
}

/// Trouble that the status of after tells and the one of before does not: the reason of an Event, and its words.
pub fn troubles(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<(&'static str, String)> {
    let conditions = |status: &EtcdClusterStatus| status.conditions.clone().unwrap_or_default();
    let (before, after) = (conditions(before), conditions(after));
    let is_true = |all: &[condition::Condition], type_| {
        condition::find(all, type_).is_some_and(|one| one.status == Truth::True.as_str())
    };
    let mut troubles: Vec<_> = condition::ALL
        .iter()
        .filter_map(|type_| {
            let reason = name(*type_)?;
            let is_new = is_true(&after, *type_) && !is_true(&before, *type_);
            let told = condition::find(&after, *type_)?;
            is_new.then(|| (reason, told.message.clone().unwrap_or_default()))
        })
        .collect();
    let blocked = |all: &[condition::Condition]| {
        condition::find(all, ConditionType::Progressing)
            .filter(|one| one.reason.as_deref() == Some(Reason::Blocked.as_str()))
            .map(|one| one.message.clone().unwrap_or_default())
    };
    if let Some(message) = blocked(&after).filter(|_| blocked(&before).is_none()) {
        troubles.push((BLOCKED, message));
    }
    let known = refused(&before);
    let known = known.as_deref().map(subjects).unwrap_or_default();
    let is_news = |now: &String| !subjects(now).is_subset(&known);
    if let Some(message) = refused(&after).filter(is_news) {
        troubles.push((REFUSED, message));
    }
    troubles
}

/// A turn that a cluster takes: how grave it is, the reason of an Event, and its words.
pub type Turn = (Severity, &'static str, String);

/// The turns that the status of after tells and the one of before does not.
pub fn turns(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<Turn> {
    let all = [
        paused(before, after),
        slept(before, after),
        restored(before, after),
    ];
    all.into_iter().flatten().collect()
}

/// Whether it is left alone from now on, or is not any more.
fn paused(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Turn> {
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

/// Whether it sleeps from now on, or is woken. Whoever is only looked on meanwhile is not woken by that.
fn slept(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Turn> {
    let progress = |status: &EtcdClusterStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        condition::find(conditions, ConditionType::Progressing).cloned()
    };
    let is = |status: &EtcdClusterStatus, reason: Reason| {
        progress(status).is_some_and(|one| one.reason.as_deref() == Some(reason.as_str()))
    };
    let is_looked_on = is(after, Reason::Paused) || is(after, Reason::Invalid);
    after.cluster_id.as_ref()?;
    match (is(before, Reason::Hibernated), is(after, Reason::Hibernated)) {
        (false, true) => {
            let words = progress(after)?.message.unwrap_or_default();
            Some((Severity::Normal, "Hibernated", words))
        }
        (true, false) if !is_looked_on => {
            let words = "The size is no longer 0: the members are started with the data on their volumes.";
            Some((Severity::Normal, "Woken", words.to_owned()))
        }
        _ => None,
    }
}

/// What a restore has come to.
fn restored(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Option<Turn> {
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

    fn told(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<&'static str> {
        let troubles = troubles(before, after).into_iter();
        troubles.map(|(reason, _)| reason).collect()
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
        let told = |before: &EtcdClusterStatus, after: &EtcdClusterStatus| turns(before, after).pop();
        let none = EtcdClusterStatus::default();
        let (stopping, back) = (at("r", Phase::Stopping), at("r", Phase::RollingBack));
        assert_eq!(told(&none, &stopping).expect("a turn").1, "RestoreStarted");
        assert_eq!(told(&stopping, &stopping), None);
        assert_eq!(told(&stopping, &at("r", Phase::Preparing)), None);
        let (severity, reason, words) = told(&stopping, &back).expect("a turn");
        assert_eq!((severity, reason), (Severity::Warning, "RestoreRollsBack"));
        assert_eq!(words, "The EtcdRestore back is rolled back: c-0: NotFound.");
        let over = at("r", Phase::Finished);
        assert_eq!(told(&over, &over), None);
        assert_eq!(
            told(&over, &at("s", Phase::Stopping)).expect("a turn").1,
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
        let (paused, refused) = (at(Reason::Paused, true), at(Reason::Invalid, false));
        let new = EtcdClusterStatus::default();
        let table: &[(&EtcdClusterStatus, &EtcdClusterStatus, &[&str])] = &[
            (&awake, &asleep, &["Hibernated"]),
            (&asleep, &asleep, &[]),
            (&asleep, &at(Reason::Waiting, false), &["Woken"]),
            (&asleep, &at(Reason::MembersUnreachable, false), &["Woken"]),
            (&asleep, &refused, &[]),
            (&asleep, &paused, &["Paused"]),
            (&paused, &paused, &[]),
            (&paused, &asleep, &["Unpaused", "Hibernated"]),
            (&paused, &awake, &["Unpaused"]),
            (&new, &paused, &["Paused"]),
            (&new, &awake, &[]),
            (&new, &unformed, &[]),
        ];
        for (before, after, expected) in table {
            let told: Vec<_> = turns(before, after)
                .into_iter()
                .map(|(_, reason, _)| reason)
                .collect();
            assert_eq!(told, *expected, "{before:?} {after:?}");
        }
        let (_, _, words) = turns(&awake, &asleep).remove(0);
        assert_eq!(words, "Hibernated, in words");
    }

    #[test]
    fn trouble_is_told_once_when_it_begins_and_not_while_it_lasts_or_when_it_ends() {
        let well = says(&[
            (ConditionType::QuorumLost, false, "Converged"),
            (ConditionType::Progressing, false, "Converged"),
        ]);
        let lost = says(&[
            (ConditionType::QuorumLost, true, "QuorumLost"),
            (ConditionType::Progressing, false, "QuorumLost"),
        ]);
        let blocked = says(&[(ConditionType::Progressing, false, "Blocked")]);
        assert_eq!(told(&well, &lost), ["QuorumLost"]);
        assert_eq!(told(&EtcdClusterStatus::default(), &lost), ["QuorumLost"]);
        assert_eq!(told(&lost, &lost), [""; 0]);
        assert_eq!(told(&lost, &well), [""; 0]);
        assert_eq!(told(&well, &blocked), ["Blocked"]);
        assert_eq!(troubles(&well, &blocked)[0].1, "Blocked, in words");
        assert_eq!(told(&blocked, &blocked), [""; 0]);
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
                told(&refused(before), &refused(after)),
                expected,
                "{before:?} {after:?}"
            );
        }
    }
}
