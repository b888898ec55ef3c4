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

impl Fingerprint {
    /// The first property in which the two differ, if any: then the volume is another one.
    pub fn difference<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(k, v)| other.0.get(*k).is_some_and(|o| o != *v))
            .map(|(k, _)| k.as_str())
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
}
