//! What of a status is worth an Event that wakes somebody: trouble that was not there before.

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::condition::{self, ConditionType, Truth};

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
    troubles
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
}
