//! Names, labels, annotations and finalizers: the ones of the ancestor that others rely on, and ours.

use std::{fmt, str::FromStr};

/// The longest name of an object of ours: its children carry it with a suffix.
pub const MAX_NAME: usize = 52;

/// Label on every object of a cluster, with the value [`APP_VALUE`].
pub const LABEL_APP: &str = "app";
/// The value of [`LABEL_APP`].
pub const APP_VALUE: &str = "etcd";
/// Label with the name of the `EtcdCluster`.
pub const LABEL_CLUSTER: &str = "etcd_cluster";
/// Label with the name of the member.
pub const LABEL_NODE: &str = "etcd_node";
/// Recommended label: the program that keeps the object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "etcd-operator";

/// Annotation of the ancestor with the version a pod runs.
pub const ANNOTATION_VERSION: &str = "etcd.version";
/// Annotation that makes a cluster the business of a cluster-wide operator.
pub const ANNOTATION_SCOPE: &str = "etcd.database.coreos.com/scope";
/// The value of [`ANNOTATION_SCOPE`].
pub const SCOPE_CLUSTERWIDE: &str = "clusterwide";
/// Annotation with the start permit of a member.
pub const ANNOTATION_PERMIT: &str = "etcd.database.coreos.com/permit";
/// Annotation beside it: when it was laid there last, and how often before.
pub const ANNOTATION_PERMIT_LAID: &str = "etcd.database.coreos.com/permit-laid";
/// Annotation on a waiting pod with the process of the operator that took over: what a former one still sends is refused.
pub const ANNOTATION_TAKEN_OVER: &str = "etcd.database.coreos.com/taken-over-by";
/// Annotation on an `EtcdCluster` with the UIDs of claims whose data a person gives up.
pub const ANNOTATION_DISCARD: &str = "etcd.database.coreos.com/discard";
/// Annotation on an `EtcdCluster` with the UIDs of kept claims whose data a person wants to be taken over.
pub const ANNOTATION_ADOPT: &str = "etcd.database.coreos.com/adopt";
/// Annotation on an `EtcdCluster` with the restore that its controller is asked to carry out.
pub const ANNOTATION_RESTORE: &str = "etcd.database.coreos.com/restore";
/// Annotation on an `EtcdCluster` with etcd's ID of a member that a person gives up: another one takes its place.
pub const ANNOTATION_REPLACE: &str = "etcd.database.coreos.com/replace";
/// Annotation on an `EtcdCluster` with the UID of the `EtcdRestore` that made it from its template.
pub const ANNOTATION_MADE_BY: &str = "etcd.database.coreos.com/made-by-restore";
/// Annotation with the hash of the intent that was last applied to an object.
pub const ANNOTATION_APPLIED: &str = "etcd.database.coreos.com/applied";

/// Annotation on an `EtcdBackup`: each new value asks for one backup beside the schedule.
pub const ANNOTATION_BACKUP_NOW: &str = "etcd.database.coreos.com/backup-now";
/// The value of [`LABEL_APP`] on Jobs of backups and their pods: none of a cluster's Services or budgets selects them.
pub const APP_BACKUP_VALUE: &str = "etcd-backup";
/// Label on Jobs and their pods with the name of the `EtcdBackup`.
pub const LABEL_BACKUP: &str = "etcd.database.coreos.com/backup";
/// The value of [`LABEL_APP`] on Jobs of restores and their pods: none of a cluster's Services or budgets selects them.
pub const APP_RESTORE_VALUE: &str = "etcd-restore";
/// Label on Jobs and their pods with the name of the `EtcdRestore`.
pub const LABEL_RESTORE: &str = "etcd.database.coreos.com/restore";
/// Label on Jobs and their pods with what they do.
pub const LABEL_TASK: &str = "etcd.database.coreos.com/task";

/// Finalizer of an `EtcdBackup` whose stored backups go with it.
pub const FINALIZER_STORED: &str = "etcd.database.coreos.com/stored-backups";
/// Finalizer that the ancestor's backup operator may have left behind.
pub const FINALIZER_LEGACY_BACKUP: &str = "backup-operator-periodic";

/// The port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// The port between members.
pub const PEER_PORT: u16 = 2380;
/// The port for metrics, health and a waiting member's report.
pub const METRICS_PORT: u16 = 2381;

/// How the process before etcd ends when it fails or is told to end before etcd was started. etcd itself ends with less,
/// so whoever sees a container that has ended can tell whether its disk was one that etcd could start on.
pub const EXIT_BEFORE_ETCD: u8 = 70;

/// The name of an `EtcdCluster` that its children can carry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More characters than the children's names leave room for.
    #[error("has {0} characters, at most {MAX_NAME} are allowed")]
    TooLong(usize),
    /// Characters outside a DNS label that starts with a letter.
    #[error("must start with a letter and hold only lower-case letters, digits and '-'")]
    NotALabel,
    /// The suffix of client Services.
    #[error("must not end in '-client', which is the suffix of client Services")]
    ClientSuffix,
}

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong(text.len()));
        }
        let body = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts || text.ends_with('-') || !text.chars().all(body) {
            return Err(NameError::NotALabel);
        }
        if text.ends_with("-client") {
            return Err(NameError::ClientSuffix);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ClusterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The headless Service through which members find each other.
    pub fn headless_service(&self) -> String {
        self.0.clone()
    }

    /// The Service for clients.
    pub fn client_service(&self) -> String {
        format!("{}-client", self.0)
    }

    /// The label selector of the members' pods.
    pub fn selector(&self) -> String {
        format!("{LABEL_APP}={APP_VALUE},{LABEL_CLUSTER}={}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_children_cannot_carry_are_refused_with_the_reason() {
        let check = |text: &str| text.parse::<ClusterName>().map(|_| ());
        assert_eq!(check("example-etcd-cluster"), Ok(()));
        assert_eq!(check(&"a".repeat(52)), Ok(()));
        assert_eq!(check(&"a".repeat(53)), Err(NameError::TooLong(53)));
        for bad in ["", "1a", "-a", "a-", "A", "a.b", "a_b", "ä"] {
            assert_eq!(check(bad), Err(NameError::NotALabel), "{bad}");
        }
        assert_eq!(check("orders-client"), Err(NameError::ClientSuffix));
    }

    #[test]
    fn services_and_selector_are_the_ones_clients_of_the_ancestor_know() {
        let name: ClusterName = "c".parse().expect("a name");
        assert_eq!(name.headless_service(), "c");
        assert_eq!(name.client_service(), "c-client");
        assert_eq!(name.selector(), "app=etcd,etcd_cluster=c");
    }
}
