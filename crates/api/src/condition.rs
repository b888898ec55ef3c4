//! The condition type that all three kinds share, and how a list of conditions is updated.
//!
//! Pure: the current time is an argument. A condition that did not change keeps its times. A status without changes
//! thus equals the previous one, and the operator does not write it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scope::NotServed;
use crate::span::second;

/// One aspect of an object's state: true, false or unknown.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, for example Available.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub type_: String,
    /// Status of the condition: True, False or Unknown.
    #[schemars(extend("enum" = CONDITION_STATUSES))]
    pub status: String,
    /// Machine-readable cause, as one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
    /// Human-readable cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Generation of the spec that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: Option<String>,
    /// When any part of the condition last changed, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_update_time: Option<String>,
    /// Fields that a newer version of the operator wrote. They are kept, because a list is always written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// The values of a condition's status.
pub const CONDITION_STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// A status that has conditions.
pub trait Conditioned {
    /// Its conditions; empty if none were ever written.
    fn conditions(&self) -> &[Condition];
}

/// The condition types that this operator writes. The first four have the same names as in the older operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// A quorum of voters answers.
    Available,
    /// Members are being replaced.
    Recovering,
    /// The number of members is changing.
    Scaling,
    /// The etcd version is changing. Absent otherwise.
    Upgrading,
    /// The spec is valid, and this operator implements everything that it sets.
    Accepted,
    /// The operator is working on the object.
    Progressing,
    /// The cluster works, but not all of it is healthy.
    Degraded,
    /// The failure of one more voter would stop writes.
    QuorumAtRisk,
    /// A majority of voters is gone.
    QuorumLost,
    /// No member has data left.
    DataLost,
    /// The data is lost with the pods.
    StorageEphemeral,
    /// The operator supports the etcd version.
    VersionSupported,
    /// A recent backup exists.
    BackupFresh,
    /// An object with a name that the operator needs is not owned by this `EtcdCluster`.
    NameConflict,
    /// The API server accepted the changes to existing objects.
    Applied,
    /// The `EtcdCluster`s and `EtcdBackup`s that the spec references exist.
    ReferenceFound,
    /// Backups remain at a location that the spec no longer names.
    BackupsElsewhere,
    /// The object is as its spec asks.
    Ready,
    /// The operator or Kubernetes is still bringing the object to its spec.
    Reconciling,
    /// The object does not become ready before a person acts.
    Stalled,
    /// A one-shot backup or a restore has ended, with success or failure.
    Finished,
    /// Every member runs the current spec.
    RolledOut,
}

impl ConditionType {
    /// What the condition means when it is true, as the reference documentation explains it.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Available => {
                "A quorum of voters answers. Progressing reports whether an alarm stops etcd from accepting writes."
            }
            Self::Recovering => "Members are being replaced.",
            Self::Scaling => "The number of members is changing.",
            Self::Upgrading => {
                "The etcd version is changing, and the message names the versions on the way. Absent otherwise."
            }
            Self::Accepted => "The spec is valid, and this operator implements everything that it sets.",
            Self::Progressing => "The operator is working on the object.",
            Self::Degraded => "The cluster works, but not all of it is healthy.",
            Self::QuorumAtRisk => "The failure of one more voter would stop writes.",
            Self::QuorumLost => "A majority of voters is gone.",
            Self::DataLost => "No member has data left.",
            Self::StorageEphemeral => "The data is lost with the pods.",
            Self::VersionSupported => "The operator supports the etcd version.",
            Self::BackupFresh => "A recent backup exists.",
            Self::Applied => {
                "The API server accepted the changes of the spec to existing volumes and pods. Absent until it rejects one."
            }
            Self::NameConflict => {
                "An object with a name that the operator needs is not owned by this EtcdCluster."
            }
            Self::ReferenceFound => {
                "The EtcdClusters and EtcdBackups that the spec references exist. Secrets are not checked."
            }
            Self::BackupsElsewhere => {
                "Backups remain at a location that the spec no longer names. The operator does not touch them."
            }
            Self::Ready => {
                "The object is as its spec asks: every member of the cluster runs the current spec and serves, the backup is made or scheduled, or the data is restored. With the strategies OnDelete and Paused of spec.updates, members that serve with an earlier pod template count as well. A hibernated cluster is ready when its last pod is gone."
            }
            Self::Reconciling => "The object is being brought to its spec.",
            Self::Stalled => "The object does not become ready before a person acts.",
            Self::Finished => {
                "The one-shot backup or the restore has ended. The reason says whether it succeeded."
            }
            Self::RolledOut => {
                "Every member runs the current spec. With the strategies OnDelete and Paused of spec.updates it is False while a member has an earlier pod template. Absent before the cluster has formed, while it is hibernated, and while its spec is refused."
            }
        }
    }

    /// The type as written in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Recovering => "Recovering",
            Self::Scaling => "Scaling",
            Self::Upgrading => "Upgrading",
            Self::Accepted => "Accepted",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::QuorumAtRisk => "QuorumAtRisk",
            Self::QuorumLost => "QuorumLost",
            Self::DataLost => "DataLost",
            Self::StorageEphemeral => "StorageEphemeral",
            Self::VersionSupported => "VersionSupported",
            Self::BackupFresh => "BackupFresh",
            Self::NameConflict => "NameConflict",
            Self::Applied => "Applied",
            Self::ReferenceFound => "ReferenceFound",
            Self::BackupsElsewhere => "BackupsElsewhere",
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Finished => "Finished",
            Self::RolledOut => "RolledOut",
        }
    }
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The operator does not know.
    Unknown,
}

impl Truth {
    /// The value as written in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition as a controller found it: without times, which [`merge`] adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Type of the condition.
    pub type_: ConditionType,
    /// Status of the condition.
    pub status: Truth,
    /// Machine-readable cause, as one CamelCase word.
    pub reason: &'static str,
    /// Human-readable cause.
    pub message: String,
}

/// How far an object is from its spec, in the terms of kstatus. Flux, Argo CD and `helm --wait` read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is as its spec asks.
    Ready,
    /// It is not ready, and is being brought to its spec.
    Reconciling,
    /// It is not ready, and stays so until a person acts.
    Stalled,
    /// It is not ready, and the operator neither works on it nor needs a person.
    NotReady,
}

impl Readiness {
    /// The conditions `Ready`, `Reconciling` and `Stalled`. The condition that holds has the message.
    pub fn findings(self, reason: &'static str, message: &str) -> [Finding; 3] {
        let is_ready = self == Self::Ready;
        [
            (ConditionType::Ready, is_ready, true),
            (ConditionType::Reconciling, self == Self::Reconciling, false),
            (ConditionType::Stalled, self == Self::Stalled, false),
        ]
        .map(|(type_, holds, is_explained)| Finding {
            type_,
            status: if holds { Truth::True } else { Truth::False },
            reason,
            message: if holds || is_explained {
                message.to_owned()
            } else {
                String::new()
            },
        })
    }
}

/// Whether a one-shot backup or a restore has ended, and how: the reason of the condition `Finished`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishedReason {
    /// It has ended and succeeded.
    Succeeded,
    /// It has ended and failed.
    Failed,
    /// The last attempt failed, and the operator makes another one by itself.
    Retrying,
    /// It has not ended.
    Unfinished,
}

impl FinishedReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Retrying, Self::Unfinished];

    /// The reason as written in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Retrying => "Retrying",
            Self::Unfinished => "Unfinished",
        }
    }

    /// The reason of the condition `Finished`; `None` if there is no such condition, or its reason is unknown.
    pub fn read(conditions: &[Condition]) -> Option<Self> {
        let reason = find(conditions, ConditionType::Finished)?.reason.as_deref()?;
        Self::ALL.into_iter().find(|known| known.as_str() == reason)
    }

    /// Whether it has ended.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The condition `Finished`. `kubectl wait --for=condition=Finished` returns after a failure, too.
pub fn finished(reason: FinishedReason, message: String) -> Finding {
    Finding {
        type_: ConditionType::Finished,
        status: if reason.is_end() {
            Truth::True
        } else {
            Truth::False
        },
        reason: reason.as_str(),
        message,
    }
}

/// Merges findings into the previous list of conditions.
///
/// A known type ([`ConditionType`]) without a finding is removed: a condition that does not apply is absent, as in the older
/// operator. Unknown types and unknown fields are kept, because a newer version of the operator may have written them. Fields
/// that `metav1.Condition` requires and a kept condition lacks are added.
pub fn merge(
    before: &[Condition],
    findings: &[Finding],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let known = |name: &str| ALL.iter().any(|t| t.as_str() == name);
    let mut after: Vec<Condition> = findings
        .iter()
        .map(|finding| {
            let old = before.iter().find(|c| c.type_ == finding.type_.as_str());
            with_times(old, finding, generation, now)
        })
        .collect();
    let kept = before.iter().filter(|c| !known(&c.type_));
    after.extend(kept.map(|condition| complete(condition, now)));
    after
}

/// Finds a condition by its type.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_str())
}

/// The conditions of an object that this installation does not serve: `Accepted` and those of kstatus are `Unknown` with
/// reason `NotServed`. So is `Finished`, if objects like this one `can_finish`.
///
/// If the object already has conditions, another installation may serve it. They stay, and only what they lack is added: fields
/// that `metav1.Condition` requires, and conditions of an object that is not served. `None` if they lack nothing. The
/// installation that serves the object replaces the conditions.
pub fn left_alone(
    before: Option<&[Condition]>,
    not_served: &NotServed,
    can_finish: bool,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let before = before.unwrap_or_default();
    let unserved = given_up(&[], not_served, can_finish, generation, now);
    let [told, verdict] =
        [before, &unserved].map(|all| find(all, ConditionType::Accepted).and_then(|one| one.reason.as_ref()));
    let is_told = before.is_empty() || told == verdict;
    let is_missing = |one: &Condition| is_told && before.iter().all(|known| known.type_ != one.type_);
    let mut after: Vec<_> = before.iter().map(|known| complete(known, now)).collect();
    after.extend(unserved.iter().filter(|one| is_missing(one)).cloned());
    (after != before).then_some(after)
}

/// The conditions of an object that this installation served and no longer serves: `Accepted`, `Ready`, `Reconciling`,
/// `Stalled` and, if objects like this one `can_finish`, `Finished`, with reason `NotServed`. They replace all of its other known
/// conditions.
pub fn given_up(
    before: &[Condition],
    not_served: &NotServed,
    can_finish: bool,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let types = [
        ConditionType::Accepted,
        ConditionType::Ready,
        ConditionType::Reconciling,
        ConditionType::Stalled,
    ];
    let types = types
        .into_iter()
        .chain(can_finish.then_some(ConditionType::Finished));
    let findings: Vec<_> = types
        .map(|type_| Finding {
            type_,
            status: Truth::Unknown,
            reason: "NotServed",
            message: format!("Not served: {}.", not_served.why),
        })
        .collect();
    merge(before, &findings, generation, now)
}

/// The condition of this type if its status, reason or message differs from before: then it deserves an Event.
pub fn news<'a>(before: &[Condition], after: &'a [Condition], type_: ConditionType) -> Option<&'a Condition> {
    let content = |c: &Condition| (c.status.clone(), c.reason.clone(), c.message.clone());
    let after = find(after, type_)?;
    (find(before, type_).map(content) != Some(content(after))).then_some(after)
}

/// The condition of a finding. It keeps the transition time while the status stays, and the update time while nothing
/// changes.
fn with_times(
    old: Option<&Condition>,
    finding: &Finding,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let stamp = Some(second(now).to_string());
    let fresh = Condition {
        type_: finding.type_.as_str().to_owned(),
        status: finding.status.as_str().to_owned(),
        reason: Some(finding.reason.to_owned()),
        message: Some(finding.message.clone()),
        observed_generation: generation,
        last_transition_time: stamp.clone(),
        last_update_time: stamp,
        later: BTreeMap::new(),
    };
    let Some(old) = old else { return fresh };
    let last_transition_time = if old.status == fresh.status {
        readable(old.last_transition_time.as_deref()).or(fresh.last_transition_time)
    } else {
        fresh.last_transition_time
    };
    let unchanged = old.status == fresh.status
        && old.reason == fresh.reason
        && old.message == fresh.message
        && old.observed_generation == fresh.observed_generation;
    let last_update_time = if unchanged {
        readable(old.last_update_time.as_deref()).or(fresh.last_update_time)
    } else {
        fresh.last_update_time
    };
    Condition {
        last_transition_time,
        last_update_time,
        later: old.later.clone(),
        ..fresh
    }
}

/// A stored time in the form that the schema demands; `None` if it cannot be read. The ancestor stored empty texts.
fn readable(time: Option<&str>) -> Option<String> {
    let time: Timestamp = time?.parse().ok()?;
    Some(second(time).to_string())
}

/// A condition that stays as it is, with the fields that `metav1.Condition` requires.
fn complete(condition: &Condition, now: Timestamp) -> Condition {
    let is_status = CONDITION_STATUSES.contains(&condition.status.as_str());
    let status = if is_status {
        &*condition.status
    } else {
        Truth::Unknown.as_str()
    };
    Condition {
        status: status.to_owned(),
        reason: condition.reason.clone().or_else(|| Some("Unknown".to_owned())),
        message: Some(condition.message.clone().unwrap_or_default()),
        last_transition_time: readable(condition.last_transition_time.as_deref())
            .or_else(|| Some(second(now).to_string())),
        last_update_time: readable(condition.last_update_time.as_deref()),
        ..condition.clone()
    }
}

/// All types that this operator writes, or removes if they no longer apply.
pub const ALL: [ConditionType; 22] = [
    ConditionType::Available,
    ConditionType::Recovering,
    ConditionType::Scaling,
    ConditionType::Upgrading,
    ConditionType::Accepted,
    ConditionType::Progressing,
    ConditionType::Degraded,
    ConditionType::QuorumAtRisk,
    ConditionType::QuorumLost,
    ConditionType::DataLost,
    ConditionType::StorageEphemeral,
    ConditionType::VersionSupported,
    ConditionType::BackupFresh,
    ConditionType::NameConflict,
    ConditionType::Applied,
    ConditionType::ReferenceFound,
    ConditionType::BackupsElsewhere,
    ConditionType::Ready,
    ConditionType::Reconciling,
    ConditionType::Stalled,
    ConditionType::Finished,
    ConditionType::RolledOut,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(status: Truth, message: &str) -> Finding {
        Finding {
            type_: ConditionType::Accepted,
            status,
            reason: "Valid",
            message: message.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn an_unchanged_finding_changes_no_condition() {
        let first = merge(&[], &[finding(Truth::True, "ok")], Some(1), at(100));
        let second = merge(&first, &[finding(Truth::True, "ok")], Some(1), at(200));
        assert_eq!(first, second);
    }

    #[test]
    fn a_new_message_moves_the_update_time_but_not_the_transition_time() {
        let first = merge(&[], &[finding(Truth::False, "a")], Some(1), at(100));
        let second = merge(&first, &[finding(Truth::False, "b")], Some(1), at(200));
        assert_eq!(second[0].last_transition_time, first[0].last_transition_time);
        assert_ne!(second[0].last_update_time, first[0].last_update_time);
    }

    #[test]
    fn a_new_status_moves_both_times() {
        let first = merge(&[], &[finding(Truth::False, "a")], Some(1), at(100));
        let second = merge(&first, &[finding(Truth::True, "a")], Some(1), at(200));
        assert_eq!(
            second[0].last_transition_time.as_deref(),
            Some("1970-01-01T00:03:20Z")
        );
        assert_eq!(second[0].last_update_time, second[0].last_transition_time);
    }

    /// The ancestor stored empty times.
    #[test]
    fn times_that_cannot_be_read_are_replaced_and_others_stay() {
        let stored = |time: Option<&str>| Condition {
            type_: "Accepted".into(),
            status: "True".into(),
            reason: Some("Valid".into()),
            message: Some("ok".into()),
            observed_generation: Some(1),
            last_transition_time: time.map(str::to_owned),
            last_update_time: time.map(str::to_owned),
            later: BTreeMap::new(),
        };
        let now = Some("1970-01-01T00:03:20Z");
        for (time, expected) in [
            (None, now),
            (Some(""), now),
            (Some("yesterday"), now),
            (Some("2019-12-15T15:57:59Z"), Some("2019-12-15T15:57:59Z")),
            (Some("2019-12-15T17:57:59+02:00"), Some("2019-12-15T15:57:59Z")),
        ] {
            let after = merge(&[stored(time)], &[finding(Truth::True, "ok")], Some(1), at(200));
            assert_eq!(after[0].last_transition_time.as_deref(), expected, "{time:?}");
            assert_eq!(after[0].last_update_time.as_deref(), expected, "{time:?}");
        }
    }

    /// Type, status and reason of conditions.
    fn brief(conditions: &[Condition]) -> Vec<(&str, &str, Option<&str>)> {
        conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref()))
            .collect()
    }

    #[test]
    fn an_object_that_is_not_served_has_all_conditions_of_kstatus() {
        let not_served = NotServed { why: "so".to_owned() };
        let unknown = |type_| (type_, "Unknown", Some("NotServed"));
        let mut expected = ["Accepted", "Ready", "Reconciling", "Stalled"]
            .map(unknown)
            .to_vec();
        let told = left_alone(None, &not_served, false, Some(1), at(1)).expect("conditions");
        assert_eq!(brief(&told), expected);
        assert_eq!(left_alone(Some(&told), &not_served, false, Some(2), at(2)), None);
        // As 0.1.0 stored them.
        let before = &told[..1];
        let after = left_alone(Some(before), &not_served, true, Some(1), at(3)).expect("conditions");
        expected.push(unknown("Finished"));
        assert_eq!(brief(&after), expected);
        assert_eq!(after[0], before[0]);
    }

    /// Another installation may serve the object.
    #[test]
    fn conditions_of_an_object_that_is_not_served_are_completed_and_stay() {
        let not_served = NotServed { why: "so".to_owned() };
        let stored: Condition = serde_json::from_value(serde_json::json!({
            "type": "Available", "status": "True", "reason": "Cluster available", "lastTransitionTime": "",
        }))
        .expect("a condition");
        let stored = std::slice::from_ref(&stored);
        let after = left_alone(Some(stored), &not_served, false, Some(1), at(0)).expect("conditions");
        assert_eq!(brief(&after), brief(stored));
        assert_eq!(after[0].message.as_deref(), Some(""));
        assert_eq!(
            after[0].last_transition_time.as_deref(),
            Some("1970-01-01T00:00:00Z")
        );
        assert_eq!(left_alone(Some(&after), &not_served, false, Some(1), at(9)), None);
    }

    #[test]
    fn known_conditions_without_a_finding_are_removed_and_unknown_ones_stay() {
        let before = [
            Condition {
                type_: "Scaling".into(),
                status: "True".into(),
                ..Condition::default()
            },
            Condition {
                type_: "FromTheFuture".into(),
                status: "True".into(),
                ..Condition::default()
            },
        ];
        let after = merge(&before, &[finding(Truth::True, "ok")], None, at(1));
        let types: Vec<_> = after.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, ["Accepted", "FromTheFuture"]);
    }

    #[test]
    fn unknown_fields_stay_with_their_condition_and_are_no_change() {
        let given = serde_json::json!({"type": "Accepted", "status": "True", "later": {"since": [1]}});
        let read: Condition = serde_json::from_value(given.clone()).expect("a condition");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), given);

        let mut first = merge(&[], &[finding(Truth::True, "ok")], Some(1), at(100));
        first[0].later.clone_from(&read.later);
        let second = merge(&first, &[finding(Truth::True, "ok")], Some(1), at(200));
        assert_eq!(second, first);
        let third = merge(&second, &[finding(Truth::False, "no")], Some(2), at(300));
        assert_eq!(third[0].later, read.later);
        assert_eq!(news(&second, &second, ConditionType::Accepted), None);

        let other = Finding {
            type_: ConditionType::Progressing,
            ..finding(Truth::True, "ok")
        };
        assert!(merge(&third, &[other], Some(2), at(400))[0].later.is_empty());
    }
}
