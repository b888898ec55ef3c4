//! Names, labels, annotations, finalizers and ports: those of the older operator that users rely on, and newer ones.

use std::{fmt, str::FromStr};

/// Maximum length of an object's name: its Jobs, Services and pods append a suffix to it.
pub const MAX_NAME: usize = 52;

/// Label on every object of a cluster, with the value [`APP_VALUE`].
pub const LABEL_APP: &str = "app";
/// The value of [`LABEL_APP`].
pub const APP_VALUE: &str = "etcd";
/// Label with the name of the `EtcdCluster`.
pub const LABEL_CLUSTER: &str = "etcd_cluster";
/// Label with the name of the member.
pub const LABEL_NODE: &str = "etcd_node";
/// Recommended label: the tool that manages the object.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "etcd-operator";

/// Annotation of the older operator with the etcd version of a pod.
pub const ANNOTATION_VERSION: &str = "etcd.version";
/// Annotation that assigns a cluster to a cluster-wide operator.
pub const ANNOTATION_SCOPE: &str = "etcd.database.coreos.com/scope";
/// The value of [`ANNOTATION_SCOPE`].
pub const SCOPE_CLUSTERWIDE: &str = "clusterwide";
/// Annotation on a pod with the start permit of its member.
pub const ANNOTATION_PERMIT: &str = "etcd.database.coreos.com/permit";
/// Annotation beside the permit: when the operator last delivered it, and how often before.
pub const ANNOTATION_PERMIT_LAID: &str = "etcd.database.coreos.com/permit-laid";
/// Annotation on a waiting pod with the operator process that took over. It fences a previous leader: the API server rejects
/// what that leader still sends.
pub const ANNOTATION_TAKEN_OVER: &str = "etcd.database.coreos.com/taken-over-by";
/// Annotation on an `EtcdCluster` with the UIDs of PersistentVolumeClaims whose data the user agrees to discard.
pub const ANNOTATION_DISCARD: &str = "etcd.database.coreos.com/discard";
/// Annotation on an `EtcdCluster` with the UIDs of retained PersistentVolumeClaims whose data the user wants to adopt.
pub const ANNOTATION_ADOPT: &str = "etcd.database.coreos.com/adopt";
/// Annotation on an `EtcdCluster` with the restore that the cluster controller is to execute.
pub const ANNOTATION_RESTORE: &str = "etcd.database.coreos.com/restore";
/// Annotation on an `EtcdCluster` with etcd's ID of a member that the user wants to replace.
pub const ANNOTATION_REPLACE: &str = "etcd.database.coreos.com/replace";
/// On an `EtcdCluster`, any new value restarts its members one by one; on a pod template, the value it was made for.
pub const ANNOTATION_RESTART: &str = "etcd.database.coreos.com/restart";
/// On a pod template, the request by `kubectl rollout restart` that it was made for.
pub const ANNOTATION_RESTARTED_AT: &str = "etcd.database.coreos.com/restarted-at";
/// On the pod template of a StatefulSet, set by `kubectl rollout restart`.
pub const ANNOTATION_KUBECTL_RESTART: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation on an `EtcdCluster` with the UID of the `EtcdRestore` that created it from its template.
pub const ANNOTATION_MADE_BY: &str = "etcd.database.coreos.com/made-by-restore";
/// Annotation on an `EtcdRestore` that is past its commit point. It survives the loss of the status.
pub const ANNOTATION_COMMITTED: &str = "etcd.database.coreos.com/committed";
/// Annotation with the hash of the configuration that was last applied to an object.
pub const ANNOTATION_APPLIED: &str = "etcd.database.coreos.com/applied";

/// Annotation on an `EtcdBackup`: each new value triggers one backup outside the schedule.
pub const ANNOTATION_BACKUP_NOW: &str = "etcd.database.coreos.com/backup-now";
/// Annotation of the Job that tries an etcd image: the hash of its pod.
pub const ANNOTATION_IMAGE_CHECK: &str = "etcd.database.coreos.com/image-check";
/// The value of [`LABEL_APP`] on backup Jobs and their pods. No Service or PodDisruptionBudget of a cluster selects it.
pub const APP_BACKUP_VALUE: &str = "etcd-backup";
/// Label on Jobs and their pods with the name of the `EtcdBackup`.
pub const LABEL_BACKUP: &str = "etcd.database.coreos.com/backup";
/// The value of [`LABEL_APP`] on restore Jobs and their pods. No Service or PodDisruptionBudget of a cluster selects it.
pub const APP_RESTORE_VALUE: &str = "etcd-restore";

/// The value of [`LABEL_APP`] on the Jobs that check an etcd image, and on their pods.
pub const APP_IMAGE_CHECK_VALUE: &str = "etcd-image-check";
/// Label on Jobs and their pods with the name of the `EtcdRestore`.
pub const LABEL_RESTORE: &str = "etcd.database.coreos.com/restore";
/// Label on Jobs and their pods with their task.
pub const LABEL_TASK: &str = "etcd.database.coreos.com/task";

/// Finalizer of an `EtcdBackup` whose stored backups are deleted with it.
pub const FINALIZER_STORED: &str = "etcd.database.coreos.com/stored-backups";
/// Finalizer that the older backup operator may have left behind.
pub const FINALIZER_LEGACY_BACKUP: &str = "backup-operator-periodic";

/// Port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port for peers.
pub const PEER_PORT: u16 = 2380;
/// Port for metrics, health, and the report of a waiting member.
pub const METRICS_PORT: u16 = 2381;

/// Exit code of the `member` process if it fails or is stopped before etcd starts. etcd itself exits with a lower code. The
/// exit code of a container thus shows whether etcd could start on its volume.
pub const EXIT_BEFORE_ETCD: u8 = 70;

/// A name of an `EtcdCluster` that is valid as a prefix for the names of its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

/// Why a text is not a valid cluster name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is too long for the suffixes of dependent objects.
    #[error("has {0} characters, at most {MAX_NAME} are allowed")]
    TooLong(usize),
    /// The name is not a DNS label that starts with a letter.
    #[error("must start with a letter and hold only lower-case letters, digits and '-'")]
    NotALabel,
    /// The name has the suffix of client Services.
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
    fn invalid_names_are_refused_with_the_reason() {
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
    fn services_and_selector_are_those_of_the_older_operator() {
        let name: ClusterName = "c".parse().expect("a name");
        assert_eq!(name.headless_service(), "c");
        assert_eq!(name.client_service(), "c-client");
        assert_eq!(name.selector(), "app=etcd,etcd_cluster=c");
    }
}
