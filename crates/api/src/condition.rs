//! The one condition type of all three kinds, and how a list of conditions changes.
//!
//! Pure: the time of a change is an argument, and a condition whose status did not change keeps its time, so that a
//! status that says nothing new is equal to the one before and is not written.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scope::NotServed;
use crate::span::second;

/// Something that is true, false or unknown of an object.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition speaks of, for example Available.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub type_: String,
    /// True, False or Unknown.
    #[schemars(length(max = 16))]
    pub status: String,
    /// The cause in one word, made for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
    /// The cause in a sentence, made for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// The generation of the spec that the condition speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_transition_time: Option<String>,
    /// When anything of the condition last changed, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_update_time: Option<String>,
    /// What a newer version of the operator wrote besides. It stays, for a list is written as a whole.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, Value>,
}

/// A status that has conditions.
pub trait Conditioned {
    /// Its conditions; none where nothing was ever said.
    fn conditions(&self) -> &[Condition];
}

/// The types of conditions, as stable words. The first four are the ancestor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// A quorum of the voters answers.
    Available,
    /// Members are being replaced.
    Recovering,
    /// The number of members is changing.
    Scaling,
    /// The version is changing: the ancestor's word, which is taken away where it stands, as it is true no more.
    Upgrading,
    /// The spec is valid and everything it asks for exists in this operator.
    Accepted,
    /// The operator is at work.
    Progressing,
    /// The cluster works, but worse than it should.
    Degraded,
    /// One more failure would stop writes.
    QuorumAtRisk,
    /// A majority of voters is gone.
    QuorumLost,
    /// No member has data any more.
    DataLost,
    /// Data lives only as long as the pods.
    StorageEphemeral,
    /// The etcd version is one the operator knows to be good.
    VersionSupported,
    /// A recent backup exists.
    BackupFresh,
    /// An object of a name the operator needs belongs to somebody else.
    NameConflict,
    /// What is asked of objects that are there was taken.
    Applied,
    /// The `EtcdCluster`s and `EtcdBackup`s that the spec names exist.
    ReferenceFound,
    /// Backups lie where the spec no longer says, and are left there.
    BackupsElsewhere,
}

impl ConditionType {
    /// What it means when the condition is true.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Available => {
                "A quorum of the voters answers. Whether etcd takes writes then, no alarm standing, Progressing tells."
            }
            Self::Recovering => "Members are being replaced.",
            Self::Scaling => "The number of members is changing.",
            Self::Upgrading => {
                "The version is changing. Told by the older operator only; this one takes it away."
            }
            Self::Accepted => "The spec is valid and everything it asks for exists in this operator.",
            Self::Progressing => "The operator is at work.",
            Self::Degraded => "The cluster works, but worse than it should.",
            Self::QuorumAtRisk => "One more failure would stop writes.",
            Self::QuorumLost => "A majority of voters is gone.",
            Self::DataLost => "No member has data any more.",
            Self::StorageEphemeral => "Data lives only as long as the pods.",
            Self::VersionSupported => "The etcd version is one the operator knows to be good.",
            Self::BackupFresh => "A recent backup exists.",
            Self::Applied => {
                "The API server took what the spec asks of volumes and pods that are there. Absent until it refuses something."
            }
            Self::NameConflict => "An object of a name the operator needs belongs to somebody else.",
            Self::ReferenceFound => {
                "The EtcdClusters and EtcdBackups that the spec names exist; Secrets are not looked up."
            }
            Self::BackupsElsewhere => "Backups lie where the spec no longer says, and are left there.",
        }
    }

    /// The type as it stands in the status.
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
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl Truth {
    /// The value as it stands in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a controller found: a condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it speaks of.
    pub type_: ConditionType,
    /// Whether it holds.
    pub status: Truth,
    /// The cause in one word.
    pub reason: &'static str,
    /// The cause in a sentence.
    pub message: String,
}

/// Puts findings into the list of conditions of before.
///
/// Types of [`ConditionType`] that were not found again are dropped (a condition that does not apply is absent, as
/// the ancestor did it); types this operator does not know stay, for a newer one may have written them, and so does what
/// it does not know of the others.
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
            settle(old, finding, generation, now)
        })
        .collect();
    after.extend(before.iter().filter(|c| !known(&c.type_)).cloned());
    after
}

/// Finds a condition by its type.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_str())
}

/// The conditions of an object that is not this installation's business: `NotServed`, where no condition stands yet.
/// Whoever serves the object after all replaces it; whoever finds conditions there stays silent.
pub fn left_alone(
    before: Option<&[Condition]>,
    not_served: &NotServed,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    before
        .is_none_or(<[Condition]>::is_empty)
        .then(|| given_up(&[], not_served, generation, now))
}

/// The conditions of an object that was this installation's business and is no longer: `NotServed` in place of all
/// that it said before.
pub fn given_up(
    before: &[Condition],
    not_served: &NotServed,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let finding = Finding {
        type_: ConditionType::Accepted,
        status: Truth::Unknown,
        reason: "NotServed",
        message: format!("Left alone: {}.", not_served.why),
    };
    merge(before, &[finding], generation, now)
}

/// The condition of this type, if what it says differs from what it said before: worth an Event.
pub fn news<'a>(before: &[Condition], after: &'a [Condition], type_: ConditionType) -> Option<&'a Condition> {
    let says = |c: &Condition| (c.status.clone(), c.reason.clone(), c.message.clone());
    let after = find(after, type_)?;
    (find(before, type_).map(says) != Some(says(after))).then_some(after)
}

fn settle(old: Option<&Condition>, finding: &Finding, generation: Option<i64>, now: Timestamp) -> Condition {
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
        old.last_transition_time.clone().or(fresh.last_transition_time)
    } else {
        fresh.last_transition_time
    };
    let unchanged = old.status == fresh.status
        && old.reason == fresh.reason
        && old.message == fresh.message
        && old.observed_generation == fresh.observed_generation;
    let last_update_time = if unchanged {
        old.last_update_time.clone().or(fresh.last_update_time)
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

/// All types this operator writes, or takes away where they are not found again.
pub const ALL: [ConditionType; 17] = [
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
    fn a_finding_that_says_nothing_new_changes_nothing() {
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

    #[test]
    fn conditions_that_no_longer_apply_go_and_unknown_ones_stay() {
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
    fn what_a_newer_version_wrote_of_a_condition_is_no_news_and_stays_with_its_type() {
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
