//! Whether a cluster is backed up, from what the backups say of themselves: nothing is judged here a second time.

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::condition::{self, ConditionType, Finding, Truth};

/// What an `EtcdBackup` reports about its backups of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFreshness {
    /// Its name.
    pub name: String,
    /// Whether its last good backup is as recent as it promises; none where nothing is said, as of a single backup.
    pub is_fresh: Option<Truth>,
    /// Whether it ever made one.
    pub has_succeeded: bool,
}

impl BackupFreshness {
    /// Reads an `EtcdBackup`.
    pub fn read(backup: &EtcdBackup) -> Self {
        let status = backup.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let fresh = condition::find(conditions.unwrap_or_default(), ConditionType::BackupFresh);
        Self {
            name: backup.metadata.name.clone().unwrap_or_default(),
            is_fresh: fresh.map(|condition| {
                let truths = [Truth::True, Truth::False];
                let truth = truths
                    .into_iter()
                    .find(|truth| truth.as_str() == condition.status);
                truth.unwrap_or(Truth::Unknown)
            }),
            has_succeeded: status.is_some_and(|status| status.last_success_date.is_some()),
        }
    }
}

/// The condition BackupFresh. It is True if any `EtcdBackup` is fresh. A cluster without backups is Unknown and not
/// False, as that may be wanted.
pub fn finding(backups: &[BackupFreshness]) -> Finding {
    let named = |truth| -> Vec<&str> {
        let so = backups.iter().filter(|backup| backup.is_fresh == Some(truth));
        so.map(|backup| backup.name.as_str()).collect()
    };
    let (fresh, late, not_due) = (named(Truth::True), named(Truth::False), named(Truth::Unknown));
    let single = backups.iter().filter(|backup| backup.is_fresh.is_none());
    let mut single = single
        .filter(|backup| backup.has_succeeded)
        .map(|backup| backup.name.as_str());
    let (status, reason, message) = if !fresh.is_empty() {
        let late = if late.is_empty() {
            String::new()
        } else {
            format!(" Late: {}.", late.join(", "))
        };
        let message = format!("Backed up as promised by {}.{late}", fresh.join(", "));
        (Truth::True, "Fresh", message)
    } else if !late.is_empty() {
        let message = format!(
            "There is no backup as recent as is promised by {}; see there.",
            late.join(", ")
        );
        (Truth::False, "Late", message)
    } else if !not_due.is_empty() {
        let message = format!(
            "The first backup of {} is not due yet, or runs.",
            not_due.join(", ")
        );
        (Truth::Unknown, "NotDueYet", message)
    } else if let Some(name) = single.next() {
        let message = format!("Backed up once, by {name}; no schedule promises another one.");
        (Truth::Unknown, "BackedUpOnce", message)
    } else {
        let message = "This cluster was never backed up: no EtcdBackup names it that made a backup.";
        (Truth::Unknown, "NotBackedUp", message.to_owned())
    };
    Finding {
        type_: ConditionType::BackupFresh,
        status,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, is_fresh: Option<Truth>, has_succeeded: bool) -> BackupFreshness {
        BackupFreshness {
            name: name.to_owned(),
            is_fresh,
            has_succeeded,
        }
    }

    #[test]
    fn a_cluster_is_backed_up_if_one_backup_is_fresh_and_bad_only_if_one_is_promised() {
        let said = |backups: &[BackupFreshness]| {
            let found = finding(backups);
            (found.status, found.reason)
        };
        let late = one("a", Some(Truth::False), true);
        assert_eq!(said(&[]), (Truth::Unknown, "NotBackedUp"));
        assert_eq!(said(&[one("a", None, false)]), (Truth::Unknown, "NotBackedUp"));
        assert_eq!(said(&[one("a", None, true)]), (Truth::Unknown, "BackedUpOnce"));
        assert_eq!(said(std::slice::from_ref(&late)), (Truth::False, "Late"));
        assert_eq!(
            said(&[one("b", Some(Truth::Unknown), false)]),
            (Truth::Unknown, "NotDueYet")
        );
        let both = [late, one("b", Some(Truth::True), true)];
        assert_eq!(said(&both), (Truth::True, "Fresh"));
        assert!(finding(&both).message.contains("Late: a"));
    }
}
