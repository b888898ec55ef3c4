//! `identity.json` beside the data: which cluster, member and incarnation a volume belongs to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// Identity of a volume. Written durably: to a temporary file, fsync, rename, fsync of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Version of the document format.
    #[serde(default = "version")]
    pub version: u32,
    /// UID of the `EtcdCluster`.
    pub cluster_uid: String,
    /// etcd's ID of the cluster, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Name of the member.
    pub member: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Incarnation of the cluster's data on this volume.
    pub incarnation: i64,
    /// Properties by which the volume is recognized.
    pub fingerprint: Fingerprint,
    /// Whether etcd was ever started on the volume. Set before the start.
    pub ran: bool,
    /// How often etcd was started on the volume.
    pub starts: u64,
}

/// Stable properties of a volume. Two fingerprints are compared only in the properties that both have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub BTreeMap<String, String>);

/// Kinds of properties in a fingerprint. Device names and numbers, sizes and node names are excluded, because they change
/// while the volume stays the same.
pub mod kind {
    /// World Wide Identifier (WWID) of the whole device.
    pub const WWID: &str = "wwid";
    /// Globally unique identifier (NGUID) of an NVMe namespace.
    pub const NGUID: &str = "nguid";
    /// Shorter unique identifier (EUI-64) of an NVMe namespace.
    pub const EUI: &str = "eui";
    /// UUID of a device-mapper device, if it belongs to the volume and not to the mapping.
    pub const DM_UUID: &str = "dmUUID";
    /// Serial number of the whole device, if no other device of the node has the same.
    pub const SERIAL: &str = "serial";
    /// UUID of the file system. A copy of the device has the same one.
    pub const FS_UUID: &str = "fsUUID";
    /// Type and source of a network file system.
    pub const SOURCE: &str = "source";
    /// Directory of the file system that is mounted.
    pub const ROOT: &str = "root";
    /// Inode of the directory that holds the identity.
    pub const INODE: &str = "inode";
    /// Creation time of the directory that holds the identity.
    pub const BIRTH: &str = "birth";
}

/// The kinds that distinguish a device or network share from a copy of it.
const STRONG: [&str; 6] = [
    kind::WWID,
    kind::NGUID,
    kind::EUI,
    kind::DM_UUID,
    kind::SERIAL,
    kind::SOURCE,
];

impl Fingerprint {
    /// The first property in which the two differ, if any: then they are different volumes. A property that only one of
    /// them has does not count.
    pub fn difference<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(k, v)| other.0.get(*k).is_some_and(|o| o != *v))
            .map(|(k, _)| k.as_str())
    }

    /// Whether no property distinguishes the volume from a copy of it.
    pub fn is_weak(&self) -> bool {
        !STRONG.iter().any(|kind| self.0.contains_key(*kind))
    }

    /// Whether no property is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the kinds of `other` that this fingerprint lacks. Existing kinds keep their values.
    #[must_use]
    pub fn with_new_of(mut self, other: &Self) -> Self {
        for (kind, value) in &other.0 {
            self.0.entry(kind.clone()).or_insert_with(|| value.clone());
        }
        self
    }
}

impl Document for Identity {
    const NAME: &'static str = "identity";
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    fn print(pairs: &[(&str, &str)]) -> Fingerprint {
        Fingerprint(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn fingerprints_are_compared_only_where_both_sides_know_the_property() {
        let before = print(&[("wwid", "a"), ("inode", "7")]);
        assert_eq!(before.difference(&print(&[("wwid", "a"), ("uuid", "x")])), None);
        assert_eq!(before.difference(&print(&[("wwid", "b")])), Some("wwid"));
        assert_eq!(before.difference(&Fingerprint::default()), None);
    }

    #[test]
    fn a_fingerprint_without_a_device_or_share_is_weak() {
        assert!(Fingerprint::default().is_weak());
        assert!(print(&[("inode", "7"), ("root", "/a"), ("fsUUID", "u")]).is_weak());
        for kind in super::STRONG {
            assert!(!print(&[("inode", "7"), (kind, "x")]).is_weak(), "{kind}");
        }
    }

    #[test]
    fn unknown_kinds_are_added_and_known_ones_keep_their_values() {
        let merged = print(&[("inode", "7")]).with_new_of(&print(&[("inode", "8"), ("wwid", "a")]));
        assert_eq!(merged, print(&[("inode", "7"), ("wwid", "a")]));
    }
}
