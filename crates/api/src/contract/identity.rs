//! Whose disk this is: `identity.json` beside the data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Document, version};

/// Whose disk this is. Written to a temporary file, synced, renamed, and the directory synced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The version of the document.
    #[serde(default = "version")]
    pub version: u32,
    /// The UID of the `EtcdCluster`.
    pub cluster_uid: String,
    /// etcd's ID of the cluster, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The member's name.
    pub member: String,
    /// etcd's ID of the member, in hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Which life of the cluster's data this is.
    pub incarnation: i64,
    /// By what the volume is known again.
    pub fingerprint: Fingerprint,
    /// Whether etcd was ever started on it; set before the start.
    pub ran: bool,
    /// How often etcd was started on it.
    pub starts: u64,
}

/// Stable properties of a volume, compared only where both sides have the property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub BTreeMap<String, String>);

/// The kinds of properties in a fingerprint. Never a name or number of a device, a size or a node: they change while
/// the volume stays.
pub mod kind {
    /// The worldwide name of the whole device.
    pub const WWID: &str = "wwid";
    /// The globally unique name of an NVMe namespace.
    pub const NGUID: &str = "nguid";
    /// The shorter unique name of an NVMe namespace.
    pub const EUI: &str = "eui";
    /// The UUID of a mapped device, where it belongs to the volume and not to the mapping.
    pub const DM_UUID: &str = "dmUUID";
    /// The serial number of the whole device, if no other device of the node has the same.
    pub const SERIAL: &str = "serial";
    /// The UUID of the file system. A copy of the device has the same.
    pub const FS_UUID: &str = "fsUUID";
    /// The type and source of a network file system.
    pub const SOURCE: &str = "source";
    /// The directory of the file system that is mounted.
    pub const ROOT: &str = "root";
    /// The inode of the directory that holds the identity.
    pub const INODE: &str = "inode";
    /// When the directory that holds the identity was made.
    pub const BIRTH: &str = "birth";
}

/// The kinds that tell one device or share from its copy.
const STRONG: [&str; 6] = [
    kind::WWID,
    kind::NGUID,
    kind::EUI,
    kind::DM_UUID,
    kind::SERIAL,
    kind::SOURCE,
];

impl Fingerprint {
    /// The first property in which the two differ, if any: then the volume is another one.
    pub fn difference<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(k, v)| other.0.get(*k).is_some_and(|o| o != *v))
            .map(|(k, _)| k.as_str())
    }

    /// Whether nothing in it tells the volume from a copy of it in its place.
    pub fn is_weak(&self) -> bool {
        !STRONG.iter().any(|kind| self.0.contains_key(*kind))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the kinds it does not have; those it has stay as they were.
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
    fn a_fingerprint_without_a_device_or_share_is_weak_whatever_else_it_has() {
        assert!(Fingerprint::default().is_weak());
        assert!(print(&[("inode", "7"), ("root", "/a"), ("fsUUID", "u")]).is_weak());
        for kind in super::STRONG {
            assert!(!print(&[("inode", "7"), (kind, "x")]).is_weak(), "{kind}");
        }
    }

    #[test]
    fn new_kinds_are_taken_over_and_known_ones_stay() {
        let learnt = print(&[("inode", "7")]).with_new_of(&print(&[("inode", "8"), ("wwid", "a")]));
        assert_eq!(learnt, print(&[("inode", "7"), ("wwid", "a")]));
    }
}
