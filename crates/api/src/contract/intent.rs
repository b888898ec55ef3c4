//! The request of the restore controller to the cluster controller: an annotation on the `EtcdCluster`. And its record on the
//! `EtcdRestore` that the restore was committed.

use serde::{Deserialize, Serialize};

use super::{Document, StoreOrder, version};

/// A verified restore that the cluster controller is to execute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreIntent {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdRestore`.
    pub uid: String,
    /// Name of the `EtcdRestore`.
    pub name: String,
    /// Store of the backup; its path is the full key of the object.
    pub store: StoreOrder,
    /// Names of the Secrets and the claim to mount for the download; never a credential.
    #[serde(default)]
    pub secrets: RestoreSecrets,
    /// Sizes and hashes of the verified object.
    pub object: ObjectFacts,
    /// Exact etcd revision of the backup.
    pub revision: i64,
    /// etcd version that wrote the backup; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etcd_version: String,
    /// Digest of the keys in the backup.
    pub digest: String,
    /// How much to raise the revision above the last one seen in the old cluster. 0 does not raise it.
    #[serde(default)]
    pub revision_bump: i64,
    /// Seconds for which the previous data are kept.
    #[serde(default)]
    pub keep_previous_seconds: u64,
    /// etcd's ID of the restored cluster whose data the restore controller compared with the backup. The client Service may
    /// route to that cluster, and to none that a further attempt of the same request restores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_cluster: Option<String>,
    /// Whether one member restores the backup and the others join it afterwards, because only one node at a time can mount the
    /// claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single_member: bool,
}

/// Names of what is mounted for the download, in the namespace of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSecrets {
    /// Secret with the credentials of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Secret with the certificate authority of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Secret with the encryption keys of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// PersistentVolumeClaim of the volume that holds the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
}

/// Sizes and hashes that identify a backup object and the snapshot in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFacts {
    /// Size of the stored object in bytes.
    pub size: u64,
    /// SHA-256 of the stored object, in hexadecimal.
    pub sha256: String,
    /// Size in bytes of the snapshot as etcd sent it, including the hash that etcd appends.
    pub snapshot_size: u64,
    /// SHA-256 of the snapshot's database as etcd appended it, in hexadecimal.
    pub snapshot_sha256: String,
}

/// The record on an `EtcdRestore` that it is past its commit point, so that it is never carried out again. It repeats what
/// the status says, which a user or a tool may have removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitRecord {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdRestore`. The record of a copied manifest does not count.
    pub uid: String,
    /// Whether the restore succeeded.
    pub succeeded: bool,
}

impl CommitRecord {
    /// The record in the annotation of an `EtcdRestore`; `None` if there is none for this UID. A record that cannot be read
    /// counts as one that the restore was committed.
    pub fn read(annotation: Option<&str>, uid: &str) -> Option<Self> {
        match super::read::<Self>(annotation?.as_bytes()) {
            Ok(record) => Some(record).filter(|record| record.uid == uid),
            Err(_) => Some(Self {
                version: version(),
                uid: uid.to_owned(),
                succeeded: false,
            }),
        }
    }
}

impl RestoreIntent {
    /// The revision from which etcd's restore tool counts the bump. An etcd without any write reports revision 1, but the tool
    /// counts from 0.
    pub fn raised_from(&self) -> i64 {
        if self.revision > 1 { self.revision } else { 0 }
    }
}

impl Document for CommitRecord {
    const NAME: &'static str = "commit record";
}

impl Document for RestoreIntent {
    const NAME: &'static str = "restore intent";
}
